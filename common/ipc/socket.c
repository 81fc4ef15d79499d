// SPDX-License-Identifier: MIT
/*
 * socket.c —— Unix socket 在文件系统里的那个名字：谁的，还活着吗
 *
 * 原版启动时见到文件就删，于是第二个 engine 会把正在服务的那一个“偷”走：老的还活着，
 * 却再没有人连得上它；收到 SIGTERM 时又不删，留下一个连不通的文件。文件在不在，与有没有
 * 人在听，是两回事：只有 connect 一下才知道。
 */
#include "socket.h"

#include "base/call_failed.h"
#include "base/deadline.h"
#include "base/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG	 128
#define RETRY_MS 10

static int address_of(const char *path, struct sockaddr_un *address)
{
	size_t length = strlen(path);

	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (length && length < sizeof(address->sun_path)) {
		memcpy(address->sun_path, path, length);
		return 0;
	}
	return fail(-ENAMETOOLONG,
		    length ? "choose a shorter path" : "name a path",
		    "the socket's path is %zu bytes long, not 1 ... %zu: %s",
		    length, sizeof(address->sun_path) - 1, path);
}

static int in_use(const char *path)
{
	return call_failed_for(EADDRINUSE, "another engine listens there",
			       "choose another --socket, or stop that engine",
			       "bind(\"%s\")", path);
}

/*
 * flock 的锁随进程消失而消失，不会像文件那样留下来骗人。锁住之后再看一眼：名字若已不指
 * 向这个 inode（上一位正好在退出，把它删了），就重来。
 */
static int take_lock(struct engine_socket *s)
{
	struct stat mine, named;

	for (;;) {
		/* O_NOFOLLOW：悬空的 symlink 会让 O_CREAT 在别处新建文件。*/
		s->lock = open(s->lock_path,
			       O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (s->lock < 0 && errno == ELOOP)
			return call_failed_for(
				ELOOP, "it is a symbolic link",
				"remove it, or choose another --socket",
				"open(\"%s\")", s->lock_path);
		if (s->lock < 0)
			return call_failed(errno, "open(\"%s\")", s->lock_path);
		if (flock(s->lock, LOCK_EX | LOCK_NB)) {
			int err = errno;

			close(s->lock);
			if (err == EWOULDBLOCK)
				return in_use(s->path);
			return call_failed(err, "flock(\"%s\")", s->lock_path);
		}
		if (!fstat(s->lock, &mine) && !lstat(s->lock_path, &named) &&
		    mine.st_ino == named.st_ino && mine.st_dev == named.st_dev)
			return 0;
		close(s->lock);
	}
}

static void drop_lock(struct engine_socket *s)
{
	unlink(s->lock_path);
	close(s->lock);
}

/* 0：名字空着（或已经清空）；-EADDRINUSE：有人在听。*/
static int clear_name(const char *path, const struct sockaddr_un *address)
{
	struct stat st;
	int fd, err;

	if (lstat(path, &st))
		return errno == ENOENT
			       ? 0
			       : call_failed(errno, "lstat(\"%s\")", path);
	if (!S_ISSOCK(st.st_mode))
		return fail(-EEXIST,
			    "choose another --socket, or remove it yourself",
			    "%s is there and is not a socket", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return call_failed(errno, "socket(AF_UNIX)");
	err = connect(fd, (const struct sockaddr *)address, sizeof(*address))
		      ? errno
		      : 0;
	close(fd);
	/* 连上了，或对方的 backlog 满了（EAGAIN）：都说明它活着。*/
	if (!err || err == EAGAIN)
		return in_use(path);
	/* 只有 ECONNREFUSED 说明没有人在听；别的（如 EACCES）什么也没证明。*/
	if (err != ECONNREFUSED)
		return call_failed(err, "connect(\"%s\")", path);
	if (unlink(path) && errno != ENOENT)
		return call_failed(errno, "unlink(\"%s\")", path);
	return 0;
}

static int bind_name(struct engine_socket *s, const struct sockaddr_un *address)
{
	struct stat st;
	mode_t mask;
	int rc;

	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->fd < 0)
		return call_failed(errno, "socket(AF_UNIX)");
	/* 先 bind 再 chmod，中间就有一瞬间谁都能连；用 umask，它生来就是 0600。*/
	mask = umask(0177);
	rc = bind(s->fd, (const struct sockaddr *)address, sizeof(*address));
	umask(mask);
	if (rc || listen(s->fd, BACKLOG)) {
		rc = call_failed(errno, "bind(\"%s\")", s->path);
		close(s->fd);
		return rc;
	}
	if (!lstat(s->path, &st)) {
		s->device = st.st_dev;
		s->inode = st.st_ino;
	}
	return 0;
}

int engine_socket_listen(struct engine_socket *s, const char *path)
{
	struct sockaddr_un address;
	int rc = address_of(path, &address);

	if (rc)
		return rc;
	*s = (struct engine_socket){ .fd = -1, .lock = -1, .path = path };
	snprintf(s->lock_path, sizeof(s->lock_path), "%s.lock", path);
	rc = take_lock(s);
	if (rc)
		return rc;
	rc = clear_name(path, &address);
	if (!rc)
		rc = bind_name(s, &address);
	if (rc)
		drop_lock(s);
	return rc;
}

void engine_socket_close(struct engine_socket *s)
{
	struct stat st;

	/* 名字可能已经是别人的了（被删掉重建过）：只删自己建的那一个。*/
	if (!lstat(s->path, &st) && st.st_dev == s->device &&
	    st.st_ino == s->inode)
		unlink(s->path);
	close(s->fd);
	drop_lock(s);
}

int engine_socket_connect(const char *path, int64_t deadline)
{
	struct sockaddr_un address;
	int err = address_of(path, &address);
	int fd;

	if (err)
		return err;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return call_failed(errno, "socket(AF_UNIX)");
	for (;;) {
		if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
			return fd;
		err = errno;
		/* EAGAIN：engine 的 backlog 满了，稍等即可。*/
		if (err != EAGAIN || deadline_passed(deadline) ||
		    deadline_sleep_ms(RETRY_MS, deadline))
			break;
	}
	close(fd);
	if (err == ECONNREFUSED || err == ENOENT)
		return call_failed_for(
			err, "no engine listens there",
			"start rdma_engine first; compare --socket",
			"connect(\"%s\")", path);
	if (err == EACCES)
		return call_failed_for(
			err, "only the user whose engine it is may connect",
			"run as that user, or start an rdma_engine of your own",
			"connect(\"%s\")", path);
	return call_failed(err, "connect(\"%s\")", path);
}
