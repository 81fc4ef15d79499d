// SPDX-License-Identifier: MIT
/*
 * file.c —— 记录文件：归谁、写到哪个 fd
 *
 * fd 是借住在别人进程里的：不占程序数得着的号码，不假定它一直是我们的。
 */
#include "file.h"

#include "line.h"
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int file = -1;
static dev_t file_dev;
static ino_t file_ino;
static char file_name[sizeof(recorder.file) + 24];

/* 程序数着 fd 过日子（“第一个打开的应当是 3”）：躲到高处去。*/
int file_move_up(int fd)
{
	static const int places[] = { 900, 200, 50 };
	int high = -1;

	for (size_t i = 0; i < 3 && high < 0; i++)
		high = fcntl(fd, F_DUPFD_CLOEXEC, places[i]);
	if (high < 0)
		return fd;
	close(fd);
	return high;
}

/* 名字猜得到，目录也许人人可写：不跟着别人放的符号链接走；里面是程序的事，不给别人看。*/
static int open_file(int flags)
{
	int fd = open(file_name,
		      O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | flags,
		      0600);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st)) {
		int err = errno;

		close(fd);
		return -err;
	}
	file = file_move_up(fd);
	file_dev = st.st_dev;
	file_ino = st.st_ino;
	return 0;
}

/* 有的程序（daemon）关掉所有 fd；号码随后可能已经是它自己的文件了。*/
static bool still_ours(void)
{
	struct stat st;

	if (file < 0)
		return false;
	if (!fstat(file, &st) && st.st_dev == file_dev && st.st_ino == file_ino)
		return true;
	file = -1;
	return open_file(0) == 0;
}

static void complain(const char *what, int err)
{
	char text[sizeof(file_name) + 256];
	const char *parts[] = {
		"qptrace: ",
		what,
		" ",
		file_name,
		": ",
		strerrorname_np(err),
		err == ELOOP ? ", symbolic links are not followed" : "",
		"\nqptrace: next: choose another file with -o\n"
	};
	size_t used = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		size_t len = parts[i] ? strlen(parts[i]) : 0;

		if (used + len > sizeof(text))
			break;
		memcpy(text + used, parts[i], len);
		used += len;
	}
	recorder_say(text, used);
}

void file_write(const char *text, size_t len)
{
	ssize_t n;

	if (!len || !still_ours())
		return;
	while (len) {
		n = write(file, text, len);
		if (n < 0 && errno == EINTR)
			continue;
		/* 正好在查看之后被程序关掉：still_ours() 会再打开它。*/
		if (n < 0 && errno == EBADF && still_ours())
			continue;
		if (n <= 0) {
			complain("no longer recording, cannot write", errno);
			close(file);
			file = -1;
			return;
		}
		text += n;
		len -= (size_t)n;
	}
}

void file_close(void)
{
	if (file >= 0)
		close(file);
	file = -1;
}

/*
 * 文件归先到的进程：`qptrace sh -c 'server & client'` 里有两个进程都用 verbs，
 * 后到的写 FILE.PID。空文件才算没有主人，用 flock 防止两个同时以为如此。
 */
static int claim(bool child)
{
	size_t len = strlen(recorder.file);
	struct stat st;
	int rc = 0;

	memcpy(file_name, recorder.file, len + 1);
	if (!child) {
		rc = open_file(O_CREAT);
		if (rc)
			return rc;
		if (!flock(file, LOCK_EX | LOCK_NB) && !fstat(file, &st) &&
		    st.st_size == 0)
			return 0;
		close(file);
	}
	file_name[len++] = '.';
	len += put_decimal(file_name + len, (uint64_t)getpid());
	file_name[len] = '\0';
	return open_file(O_CREAT | O_TRUNC);
}

int file_claim(bool child)
{
	int rc = claim(child);

	if (rc)
		complain("not recording, cannot open", -rc);
	return rc;
}
