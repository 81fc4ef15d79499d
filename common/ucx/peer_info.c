// SPDX-License-Identifier: MIT
/*
 * peer_info.c —— 24 个字节：两个 tag 和它们的 checksum
 *
 * tag matching 里没有“连接”：worker 收到的每条消息只带一个 64 位 tag，要靠 tag 分清
 * 它是谁发来的、发给谁的。所以两边先各造两个全世界独一无二的 tag，再告诉对方：“以后
 * 用这个 tag 给我发”。msg_tag 收数据，ctrl_tag 收控制消息（关闭）。
 *
 * UCX-Py 对 Python 元组的 repr 文本做 SHA-1，取前 64 位。要与它互通，就得先把同样的
 * 文本一个字符不差地拼出来。SHA-1 在这里只是为了“不重复”，不是为了保密。
 */
#include "peer_info.h"

#include "base/report.h"

#include <endian.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define SEED_BYTES 16

int ucx_hash64bits(const char *text, uint64_t *hash)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	uint64_t first;

	if (!EVP_Digest(text, strlen(text), digest, NULL, EVP_sha1(), NULL))
		return fail(-EIO,
			    "install libssl3; a FIPS mode may forbid SHA-1",
			    "EVP_Digest(SHA-1): libcrypto refused");
	/* Python 取 16 个十六进制数字当作整数：也就是前 8 个字节，高位在前。*/
	memcpy(&first, digest, sizeof(first));
	*hash = be64toh(first);
	return 0;
}

/* Python 的 repr(bytes)：b'...'。@out：4 * @n + 4 字节。*/
static void python_bytes_repr(char *out, const unsigned char *bytes, size_t n)
{
	/* Python 优先用单引号；里面有 ' 而没有 " 时才换成双引号。*/
	char quote =
		memchr(bytes, '\'', n) && !memchr(bytes, '"', n) ? '"' : '\'';
	char *at = out;

	*at++ = 'b';
	*at++ = quote;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = bytes[i];

		if (c == '\t' || c == '\n' || c == '\r')
			at += sprintf(at, "\\%c",
				      c == '\t'	  ? 't'
				      : c == '\n' ? 'n'
						  : 'r');
		else if (c < ' ' || c >= 0x7f)
			at += sprintf(at, "\\x%02x", c);
		else if (c == '\\' || c == quote)
			at += sprintf(at, "\\%c", c);
		else
			*at++ = (char)c;
	}
	*at++ = quote;
	*at = '\0';
}

int ucx_checksum(uint64_t msg_tag, uint64_t ctrl_tag, uint64_t *checksum)
{
	char text[64];

	snprintf(text, sizeof(text), "(%ju, %ju)", msg_tag, ctrl_tag);
	return ucx_hash64bits(text, checksum);
}

// region generate-tags
int ucx_generate_tags(const void *handle, struct ucx_peer_info *info)
{
	unsigned char seed[SEED_BYTES];
	char repr[4 * SEED_BYTES + 4], text[128];
	int rc;

	/* 只用 handle（一个指针）不够：两个进程里的 endpoint 地址可能恰好相同。*/
	if (getrandom(seed, sizeof(seed), 0) != sizeof(seed))
		return fail(-errno, NULL, "getrandom(%d bytes): %s", SEED_BYTES,
			    strerror(errno));
	python_bytes_repr(repr, seed, sizeof(seed));
	snprintf(text, sizeof(text), "('msg_tag', %s, %ju)", repr,
		 (uintmax_t)(uintptr_t)handle);
	rc = ucx_hash64bits(text, &info->msg_tag);
	snprintf(text, sizeof(text), "('ctrl_tag', %s, %ju)", repr,
		 (uintmax_t)(uintptr_t)handle);
	if (!rc)
		rc = ucx_hash64bits(text, &info->ctrl_tag);
	return rc ? rc
		  : ucx_checksum(info->msg_tag, info->ctrl_tag,
				 &info->checksum);
}
// endregion generate-tags

int ucx_check_peer_info(const struct ucx_peer_info *info, const char *peer)
{
	uint64_t expected;
	int rc = ucx_checksum(info->msg_tag, info->ctrl_tag, &expected);

	if (rc || expected == info->checksum)
		return rc;
	return fail(-EPROTO,
		    "the peer must be UCX-Py from 2021 or later or this "
		    "program, on a machine of the same byte order",
		    "%s: wrong checksum in the peer info: 0x%jx instead of "
		    "0x%jx for msg_tag 0x%jx, ctrl_tag 0x%jx",
		    peer, info->checksum, expected, info->msg_tag,
		    info->ctrl_tag);
}
