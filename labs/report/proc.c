// SPDX-License-Identifier: MIT
/*
 * proc.c —— 线程睡在哪个系统调用里，等的是哪一类 fd
 *
 * 程序等的往往不是 verbs：对端的 TCP 消息没有来、它自己在睡、锁拿不到。/proc/PID/task/
 * TID/syscall 说得出是哪一个系统调用和它的参数，不打断那个线程。
 */
#include "proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static size_t read_text(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	if (fd >= 0)
		close(fd);
	n = n < 0 ? 0 : n;
	out[n] = '\0';
	return (size_t)n;
}

bool proc_ended(int fd)
{
	struct pollfd look = { .fd = fd, .events = POLLIN };

	return fd < 0 || poll(&look, 1, 0) == 1;
}

size_t proc_threads(pid_t pid, pid_t *threads, size_t most)
{
	const struct dirent *entry;
	char path[64];
	size_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && n < most && (entry = readdir(dir))) {
		pid_t tid = (pid_t)atoi(entry->d_name);

		if (tid > 0)
			threads[n++] = tid;
	}
	if (dir)
		closedir(dir);
	return n;
}

struct call {
	long number;
	const char *name;
	bool has_fd; /* its first argument */
};

/* 每种机器都有的；别的照号码说。*/
static const struct call *find_call(long number)
{
	static const struct call calls[] = {
		{ SYS_read, "read", true },
		{ SYS_write, "write", true },
		{ SYS_readv, "readv", true },
		{ SYS_recvfrom, "recvfrom", true },
		{ SYS_recvmsg, "recvmsg", true },
		{ SYS_sendto, "sendto", true },
		{ SYS_accept, "accept", true },
		{ SYS_accept4, "accept4", true },
		{ SYS_connect, "connect", true },
		{ SYS_ioctl, "ioctl", true },
		{ SYS_epoll_pwait, "epoll_wait", false },
		{ SYS_ppoll, "poll", false },
		{ SYS_pselect6, "select", false },
#ifdef SYS_poll
		{ SYS_poll, "poll", false },
		{ SYS_select, "select", false },
		{ SYS_epoll_wait, "epoll_wait", false },
#endif
		{ SYS_futex, "futex", false },
		{ SYS_nanosleep, "nanosleep", false },
		{ SYS_clock_nanosleep, "clock_nanosleep", false },
		{ SYS_wait4, "wait4", false },
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (calls[i].number == number)
			return &calls[i];
	return NULL;
}

/* "socket:[123]" 取冒号前；设备取最后一段。*/
static void kind_of_fd(pid_t pid, int fd, char *out, size_t size)
{
	char path[64], target[256];
	const char *name = target;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
	n = readlink(path, target, sizeof(target) - 1);
	if (n <= 0)
		return;
	target[n] = '\0';
	if (!strncmp(target, "anon_inode:", 11))
		name = target + 11;
	else if (target[0] == '/')
		name = strrchr(target, '/') + 1;
	else
		target[strcspn(target, ":")] = '\0';
	snprintf(out, size, "%.*s", (int)size - 1, name);
}

#define MOST_FDS 256

/* 那个进程的 @fd，在这里的号码；-1：拿不到。*/
static int take_fd(int process, int fd)
{
	return (int)syscall(SYS_pidfd_getfd, process, fd, 0);
}

static const char *unanswered(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return NULL;
	if (info.tcpi_state == TCP_SYN_SENT)
		return "SYN_SENT";
	return info.tcpi_retransmits ? "retransmitting" : NULL;
}

const char *proc_unanswered_tcp(pid_t pid)
{
	int process = (int)syscall(SYS_pidfd_open, pid, 0);
	const char *found = NULL;

	for (int fd = 0; process >= 0 && fd < MOST_FDS && !found; fd++) {
		int mine = take_fd(process, fd);

		found = unanswered(mine);
		if (mine >= 0)
			close(mine);
	}
	if (process >= 0)
		close(process);
	return found;
}

bool proc_readable(pid_t pid, int fd)
{
	int process = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd look = { .fd = take_fd(process, fd), .events = POLLIN };
	bool readable = look.fd >= 0 && poll(&look, 1, 0) == 1 &&
			(look.revents & POLLIN);

	if (look.fd >= 0)
		close(look.fd);
	if (process >= 0)
		close(process);
	return readable;
}

/* poll 的第一个 fd。那块内存是程序的，随时会没有：借内核的手去读。*/
static int first_polled(pid_t pid, unsigned long long address)
{
	struct pollfd fd = { .fd = -1 };
	struct iovec to = { &fd, sizeof(fd) };
	struct iovec from = { (void *)(uintptr_t)address, sizeof(fd) };

	if (process_vm_readv(pid, &to, 1, &from, 1, 0) != (ssize_t)sizeof(fd))
		return -1;
	return fd.fd;
}

/* 一次只睡一会儿的，是在循环里等，不是在睡。*/
static bool is_nap(pid_t pid, unsigned long long address)
{
	struct timespec t = { .tv_sec = 1 };
	struct iovec to = { &t, sizeof(t) };
	struct iovec from = { (void *)(uintptr_t)address, sizeof(t) };

	return process_vm_readv(pid, &to, 1, &from, 1, 0) ==
		       (ssize_t)sizeof(t) &&
	       !t.tv_sec && t.tv_nsec < 300000000;
}

void proc_blocked(pid_t pid, pid_t tid, struct blocked *out)
{
	char path[64], text[256];
	unsigned long long first = 0, third = 0;
	const struct call *call;
	long number = -1;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", (int)pid,
		 (int)tid);
	if (!read_text(path, text, sizeof(text)))
		return;
	if (sscanf(text, "%ld %llx %*x %llx", &number, &first, &third) < 1 ||
	    number < 0) {
		snprintf(out->call, sizeof(out->call), "running");
		return;
	}
	call = find_call(number);
	if (!call) {
		snprintf(out->call, sizeof(out->call), "syscall %ld", number);
		return;
	}
	snprintf(out->call, sizeof(out->call), "%s", call->name);
	if ((!strcmp(call->name, "nanosleep") && is_nap(pid, first)) ||
	    (!strcmp(call->name, "clock_nanosleep") && is_nap(pid, third)))
		snprintf(out->call, sizeof(out->call), "usleep");
	if (call->has_fd)
		kind_of_fd(pid, (int)first, out->on, sizeof(out->on));
	else if (!strcmp(call->name, "poll"))
		kind_of_fd(pid, first_polled(pid, first), out->on,
			   sizeof(out->on));
}
