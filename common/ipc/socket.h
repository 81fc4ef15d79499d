/* SPDX-License-Identifier: MIT */
/*
 * socket.h - the name of a Unix socket in the file system: taken by one
 * engine at a time, left behind by none, and opened by its owner only.
 *
 * A socket's file outlives its process, so that the file alone says nothing about
 * whether somebody listens. Who wants the name locks PATH.lock first (two engines
 * that start at once cannot both find the name free), then asks by connecting: a
 * live socket is left alone, a dead one is replaced. unix(7), flock(2).
 */
#ifndef IPC_SOCKET_H
#define IPC_SOCKET_H

#include <stdint.h>
#include <sys/types.h>

struct engine_socket {
	int fd;	  /* listens; non-blocking */
	int lock; /* PATH.lock, locked */
	const char *path;
	char lock_path[128];
	dev_t device; /* of the file that this process made */
	ino_t inode;
};

/*
 * Listen at @path (which must stay), mode 0600. -EADDRINUSE: another one lives
 * there; -EEXIST: what is there is no socket; or -errno (all reported). Undone by
 * engine_socket_close().
 */
int engine_socket_listen(struct engine_socket *s, const char *path);

/* Remove the file, if it is still this process's, and the lock; close. */
void engine_socket_close(struct engine_socket *s);

/*
 * Connect to the engine at @path, trying again until @deadline while it has no
 * room for one more. Returns the socket (non-blocking), or -errno (reported).
 */
int engine_socket_connect(const char *path, int64_t deadline);

#endif
