// SPDX-License-Identifier: MIT
/*
 * auth.c —— auth_token：比较时不泄漏“对到第几个字节”
 *
 * memcmp 一遇到不同就返回：量一量回答的快慢，就能一个字节一个字节地猜出来。所以两边都
 * 先算 SHA-256，再用 CRYPTO_memcmp 比这 32 个字节：无论错在哪里，用时都一样；连 token
 * 的长度也看不出来。
 */
#include "auth.h"

#include "base/call_failed.h"
#include "base/report.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

static int load_failed(int err, const char *call, const char *path)
{
	return call_failed_for(err, NULL, "name a file that this user can read",
			       "%s(\"%s\")", call, path);
}

static int read_all(char token[ENGINE_TOKEN_SIZE], int fd, const char *path)
{
	struct stat st;
	/* 多读一个换行，再多读一个，看得出太长。*/
	ssize_t n = read(fd, token, ENGINE_TOKEN_SIZE);

	if (n < 0)
		return load_failed(errno, "read", path);
	if (n && token[n - 1] == '\n')
		n--;
	if (!n || n > ENGINE_TOKEN_MOST)
		return fail(-EINVAL, "put one line into it",
			    "the token in %s is not 1 ... %d bytes long", path,
			    ENGINE_TOKEN_MOST);
	if (!fstat(fd, &st) && st.st_mode & (S_IRWXG | S_IRWXO))
		report_warning("chmod 600 it",
			       "others may read the token in %s", path);
	return (int)n;
}

int engine_token_read(char token[ENGINE_TOKEN_SIZE], const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int n;

	if (fd < 0)
		return load_failed(errno, "open", path);
	n = read_all(token, fd, path);
	close(fd);
	return n;
}

int engine_auth_load(struct engine_auth *auth, const char *path)
{
	char token[ENGINE_TOKEN_SIZE];
	int n = engine_token_read(token, path);

	if (n < 0)
		return n;
	/* 只留下摘要：token 本身不必在内存里待上几个月。*/
	SHA256((const unsigned char *)token, (size_t)n, auth->digest);
	OPENSSL_cleanse(token, sizeof(token));
	auth->needed = true;
	return 0;
}

bool engine_auth_check(const struct engine_auth *auth, struct engine_text token)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];

	if (!auth->needed)
		return true;
	SHA256((const unsigned char *)(token.data ? token.data : ""),
	       token.size, digest);
	return !CRYPTO_memcmp(digest, auth->digest, sizeof(digest));
}
