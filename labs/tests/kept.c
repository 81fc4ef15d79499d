// SPDX-License-Identifier: MIT
/*
 * kept.c —— LD_PRELOAD：程序正常结束时，把它还留着的东西写进 KEPT
 *
 *	KEPT=FILE          每样一行，追加："PROGRAM: 24 bytes, 0x1234 of OBJECT"
 *	KEPT_FOLDER=DIR    只看 DIR 里的目标文件（程序、插件）自己要来的：系统的库留着什么，
 *	                   与我们无关
 *	KEPT_FAIL=N        它们向系统要东西（内存、描述符、线程、一次读写），第 N 次落空；
 *	                   同一处调用只数前三次，因为循环里有几次由时间定
 *	KEPT_WHOSE=NAME    落空的不是它们，而是路径里有 NAME 的
 *	KEPT_POLL=1        poll 也会落空
 *	KEPT_HARMLESS=1    落空的只是“再来一次就好”：等待被信号打断、此刻没有数据、敲门的
 *	                   人走了。程序该像什么也没发生
 *	KEPT_FAILED=FILE   落空过，这里就有一行："socket|Too many open files"
 *
 * 看 malloc、mmap、线程、描述符与 dlopen 的库。与 LeakSanitizer 不同，它不问“还有没有指针指着”：main 返回
 * 之前没有拆的，就是留下的。也不必另编译一遍，所以每个测试里的每个程序都带着它跑。
 */
#include "real.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_OBJECTS 128
#define MAX_FDS	    1024
#define SLOTS	    (1 << 16) /* 2 的幂 */
#define SITES	    1024

/* glibc 自己的名字：dlsym 要内存，不能由它来找。*/
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *p);

struct object {
	uintptr_t base, from, to;
	bool ours;
	char name[PATH_MAX];
};

struct block {
	void *p; /* NULL：空；TAKEN：有过 */
	size_t size;
	uintptr_t caller;
};

static struct {
	uintptr_t caller;
	int times;
} sites[SITES];

static char taken_mark;
#define TAKEN ((void *)&taken_mark)

static struct object objects[MAX_OBJECTS];
static int object_count, objects_before;
static struct block blocks[SLOTS];
static bool open_before[MAX_FDS];
static bool watching, full, harmless_only;
static long asked, fail_at, threads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* 记录器与捣乱者活到进程结束为止：它们留着的不算。*/
static bool is_ours(const char *path)
{
	const char *folder = getenv("KEPT_FOLDER");
	const char *slash = strrchr(path, '/');
	size_t len = folder ? strlen(folder) : 0;

	return len && slash && (size_t)(slash - path) == len &&
	       !strncmp(path, folder, len) && !strstr(slash, "libqptrace") &&
	       !strstr(slash, "libsaboteur") && !strstr(slash, "kept.so") &&
	       !strstr(slash, "spy.so");
}

static void absolute(const char *name, char *path)
{
	ssize_t n;

	if (*name) {
		if (!realpath(name, path))
			snprintf(path, PATH_MAX, "%s", name);
		return;
	}
	n = readlink("/proc/self/exe", path, PATH_MAX - 1);
	path[n > 0 ? n : 0] = '\0';
}

static const struct object *object_at(uintptr_t at)
{
	for (int i = object_count; i-- > 0;)
		if (at >= objects[i].from && at < objects[i].to)
			return &objects[i];
	return NULL;
}

static int add_object(struct dl_phdr_info *info, size_t size, void *context)
{
	char path[PATH_MAX];

	(void)size;
	(void)context;
	absolute(info->dlpi_name, path);
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		struct object *o = &objects[object_count];

		if (ph->p_type != PT_LOAD || !(ph->p_flags & PF_X) ||
		    object_count == MAX_OBJECTS)
			continue;
		if (object_at(info->dlpi_addr + ph->p_vaddr))
			continue;
		o->base = info->dlpi_addr;
		o->from = o->base + ph->p_vaddr;
		o->to = o->from + ph->p_memsz;
		o->ours = is_ours(path);
		snprintf(o->name, sizeof(o->name), "%s", path);
		object_count++;
	}
	return 0;
}

/* 调用者在哪个目标文件里。没见过的地址，是后来 dlopen 的：再列一遍。*/
static const struct object *caller_at(uintptr_t caller)
{
	static __thread bool inside;
	const struct object *o;

	if (!watching || inside)
		return NULL;
	inside = true;
	pthread_mutex_lock(&lock);
	o = object_at(caller);
	if (!o) {
		/* 不拿着锁去拿 ld.so 的锁：另一个线程可能反过来。*/
		pthread_mutex_unlock(&lock);
		dl_iterate_phdr(add_object, NULL);
		pthread_mutex_lock(&lock);
		o = object_at(caller);
	}
	pthread_mutex_unlock(&lock);
	inside = false;
	return o;
}

static bool by_us(uintptr_t caller)
{
	const struct object *o = caller_at(caller);

	return o && o->ours;
}

static size_t slot_of(const void *p)
{
	return ((uintptr_t)p >> 4) * 2654435761U & (SLOTS - 1);
}

static void note(void *p, size_t size, uintptr_t caller)
{
	size_t i = slot_of(p);

	pthread_mutex_lock(&lock);
	for (size_t n = 0; n < SLOTS; n++, i = (i + 1) & (SLOTS - 1)) {
		if (blocks[i].p && blocks[i].p != TAKEN)
			continue;
		blocks[i] = (struct block){ p, size, caller };
		pthread_mutex_unlock(&lock);
		return;
	}
	full = true;
	pthread_mutex_unlock(&lock);
}

/* 返回它是谁要的；没记过则 0。*/
static uintptr_t forget(const void *p)
{
	uintptr_t caller = 0;
	size_t i = slot_of(p);

	if (!watching || !p)
		return 0;
	pthread_mutex_lock(&lock);
	for (size_t n = 0; n < SLOTS && blocks[i].p;
	     n++, i = (i + 1) & (SLOTS - 1)) {
		if (blocks[i].p != p)
			continue;
		caller = blocks[i].caller;
		blocks[i].p = TAKEN;
		break;
	}
	pthread_mutex_unlock(&lock);
	return caller;
}

/* 这一处调用第几次要？*/
static int times_at(uintptr_t caller)
{
	int times = 0;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < SITES && !times; i++) {
		if (!sites[i].caller)
			sites[i].caller = caller;
		if (sites[i].caller == caller)
			times = ++sites[i].times;
	}
	pthread_mutex_unlock(&lock);
	return times;
}

/* 这一次该落空吗？@harmless：再来一次就好的那个 errno，没有则 0。*/
static bool fails(const char *call, int err, int harmless, uintptr_t caller)
{
	const char *whose = fail_at ? getenv("KEPT_WHOSE") : NULL, *file;
	const struct object *o = fail_at ? caller_at(caller) : NULL;
	FILE *out;

	if (harmless_only)
		err = harmless;
	if (!err || !o || (whose ? !strstr(o->name, whose) : !o->ours) ||
	    times_at(caller) > 3 ||
	    __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED) != fail_at)
		return false;
	file = getenv("KEPT_FAILED");
	out = file ? fopen(file, "ae") : NULL;
	if (out) {
		fprintf(out, "%s|%s\n", call, strerror(err));
		fclose(out);
	}
	errno = err;
	return true;
}

static bool refused(const char *call, int err, uintptr_t caller)
{
	return fails(call, err, 0, caller);
}

#define CALLER ((uintptr_t)__builtin_return_address(0))

/* 要得到的都记下来。*/
#define TRACKED(wanted, size)                  \
	uintptr_t caller = CALLER;             \
	bool ours = by_us(caller);             \
	void *p;                               \
	if (refused(__func__, ENOMEM, caller)) \
		return NULL;                   \
	p = wanted;                            \
	if (p && ours)                         \
		note(p, size, caller);         \
	return p

void *malloc(size_t size)
{
	TRACKED(__libc_malloc(size), size);
}

void *calloc(size_t n, size_t size)
{
	TRACKED(__libc_calloc(n, size), n * size);
}

void *aligned_alloc(size_t align, size_t size)
{
	TRACKED(__libc_memalign(align, size), size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
	uintptr_t caller = CALLER;
	bool ours = by_us(caller);
	void *p = refused(__func__, ENOMEM, caller)
			  ? NULL
			  : __libc_memalign(align, size);

	if (!p)
		return ENOMEM;
	if (ours)
		note(p, size, caller);
	*out = p;
	return 0;
}

/* 别人也可以给我们的换地方：仍是我们的。*/
void *realloc(void *old, size_t size)
{
	uintptr_t caller = CALLER, first;
	bool ours = by_us(caller);
	void *p;

	if (refused(__func__, ENOMEM, caller))
		return NULL;
	first = forget(old);
	p = __libc_realloc(old, size);
	if (p && (ours || first))
		note(p, size, ours ? caller : first);
	else if (!p && size && first)
		note(old, size, first);
	return p;
}

void free(void *p)
{
	forget(p);
	__libc_free(p);
}

/* strdup 们与 asprintf 在 libc 里面要内存，要的人却是调用它们的。*/
static char *copy(const char *text, size_t len, uintptr_t caller)
{
	bool ours = by_us(caller);
	char *p = refused("strdup", ENOMEM, caller) ? NULL
						    : __libc_malloc(len + 1);

	if (!p)
		return NULL;
	memcpy(p, text, len);
	p[len] = '\0';
	if (ours)
		note(p, len + 1, caller);
	return p;
}

char *strndup(const char *text, size_t most)
{
	return copy(text, strnlen(text, most), CALLER);
}

char *strdup(const char *text)
{
	return copy(text, strlen(text), CALLER);
}

int asprintf(char **out, const char *format, ...)
{
	char text[4096]; /* 我们的程序只用它拼路径 */
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof(text))
		return -1;
	*out = copy(text, (size_t)n, CALLER);
	return *out ? n : -1;
}

void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
	REAL(mmap);
	uintptr_t caller = CALLER;
	bool ours = by_us(caller);
	void *p;

	if (refused(__func__, ENOMEM, caller))
		return MAP_FAILED;
	p = real(at, size, prot, flags, fd, offset);
	if (p != MAP_FAILED && ours && !(flags & MAP_FIXED))
		note(p, size, caller);
	return p;
}

int munmap(void *p, size_t size)
{
	REAL(munmap);
	forget(p);
	return real(p, size);
}

/* 不是生来 detached 的线程，得有人 join。*/
static bool is_joinable(const pthread_attr_t *attr)
{
	int how = PTHREAD_CREATE_JOINABLE;

	if (attr)
		pthread_attr_getdetachstate(attr, &how);
	return how == PTHREAD_CREATE_JOINABLE;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
		   void *(*run)(void *), void *arg)
{
	REAL(pthread_create);
	uintptr_t caller = CALLER;
	bool ours = by_us(caller);
	int rc;

	if (refused(__func__, EAGAIN, caller))
		return EAGAIN;
	rc = real(thread, attr, run, arg);
	if (!rc && ours && is_joinable(attr))
		__atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
	return rc;
}

int pthread_join(pthread_t thread, void **result)
{
	REAL(pthread_join);

	if (by_us(CALLER))
		__atomic_sub_fetch(&threads, 1, __ATOMIC_RELAXED);
	return real(thread, result);
}

/* 别的请求：落空就是 -1 与这样的 errno；归还的那一次（@may 不成立）不会失败。*/
#define REFUSABLE_IF(may, type, name, err, harmless, params, args) \
	type name params                                           \
	{                                                          \
		REAL(name);                                        \
		uintptr_t caller = CALLER;                         \
		if ((may) && fails(#name, err, harmless, caller))  \
			return (type)-1;                           \
		return real args;                                  \
	}
#define REFUSABLE(type, name, err, params, args) \
	REFUSABLE_IF(true, type, name, err, 0, params, args)
#define NOT_NOW (flags & MSG_DONTWAIT ? EAGAIN : 0)

REFUSABLE(int, socket, EMFILE, (int family, int kind, int protocol),
	  (family, kind, protocol))
REFUSABLE(int, epoll_create1, EMFILE, (int flags), (flags))
REFUSABLE(int, signalfd, EMFILE, (int fd, const sigset_t *set, int flags),
	  (fd, set, flags))
REFUSABLE(int, eventfd, EMFILE, (unsigned int value, int flags), (value, flags))
REFUSABLE(int, memfd_create, EMFILE, (const char *name, unsigned int flags),
	  (name, flags))
REFUSABLE(int, pipe2, EMFILE, (int fds[2], int flags), (fds, flags))
REFUSABLE_IF(true, int, accept4, EMFILE, ECONNABORTED,
	     (int fd, struct sockaddr *from, socklen_t *len, int flags),
	     (fd, from, len, flags))
REFUSABLE(int, bind, EACCES, (int fd, const struct sockaddr *to, socklen_t len),
	  (fd, to, len))
REFUSABLE(int, listen, ENOBUFS, (int fd, int n), (fd, n))
REFUSABLE(int, connect, ENETUNREACH,
	  (int fd, const struct sockaddr *to, socklen_t len), (fd, to, len))
REFUSABLE(int, getsockname, ENOBUFS,
	  (int fd, struct sockaddr *out, socklen_t *len), (fd, out, len))
REFUSABLE(int, getpeername, ENOTCONN,
	  (int fd, struct sockaddr *out, socklen_t *len), (fd, out, len))
REFUSABLE(int, getsockopt, ENOBUFS,
	  (int fd, int level, int name, void *value, socklen_t *len),
	  (fd, level, name, value, len))
REFUSABLE(int, fstat, EIO, (int fd, struct stat *out), (fd, out))
REFUSABLE(int, fsync, EIO, (int fd), (fd))
REFUSABLE(int, fdatasync, EIO, (int fd), (fd))
REFUSABLE(int, ftruncate, EIO, (int fd, off_t size), (fd, size))
REFUSABLE(ssize_t, read, EIO, (int fd, void *out, size_t size), (fd, out, size))
REFUSABLE(ssize_t, pread, EIO, (int fd, void *out, size_t size, off_t at),
	  (fd, out, size, at))
REFUSABLE(ssize_t, write, EIO, (int fd, const void *data, size_t size),
	  (fd, data, size))
REFUSABLE(ssize_t, pwrite, EIO,
	  (int fd, const void *data, size_t size, off_t at),
	  (fd, data, size, at))
REFUSABLE_IF(true, ssize_t, send, ECONNRESET, NOT_NOW,
	     (int fd, const void *data, size_t size, int flags),
	     (fd, data, size, flags))
REFUSABLE_IF(true, ssize_t, sendmsg, ECONNRESET, NOT_NOW,
	     (int fd, const struct msghdr *message, int flags),
	     (fd, message, flags))
REFUSABLE_IF(true, ssize_t, recvmsg, ECONNRESET, NOT_NOW,
	     (int fd, struct msghdr *message, int flags), (fd, message, flags))
REFUSABLE(ssize_t, getrandom, ENOSYS,
	  (void *out, size_t size, unsigned int flags), (out, size, flags))
REFUSABLE_IF(true, int, epoll_wait, ENOMEM, EINTR,
	     (int fd, struct epoll_event *out, int n, int ms), (fd, out, n, ms))

REFUSABLE_IF(harmless_only || getenv("KEPT_POLL"), int, poll, ENOMEM, EINTR,
	     (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms))
REFUSABLE_IF(!(how & LOCK_UN), int, flock, ENOLCK, 0, (int fd, int how),
	     (fd, how))
REFUSABLE_IF(how != EPOLL_CTL_DEL, int, epoll_ctl, ENOSPC, 0,
	     (int fd, int how, int target, struct epoll_event *event),
	     (fd, how, target, event))
/* MSG_TRUNC：丢掉看过的。*/
REFUSABLE_IF(!(flags & MSG_TRUNC), ssize_t, recv, ECONNRESET, NOT_NOW,
	     (int fd, void *out, size_t size, int flags),
	     (fd, out, size, flags))

int open(const char *path, int flags, ...)
{
	REAL(open);
	uintptr_t caller = CALLER;
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	if (refused(__func__, EMFILE, caller))
		return -1;
	return real(path, flags, mode);
}

int fcntl(int fd, int how, ...)
{
	REAL(fcntl);
	uintptr_t caller = CALLER;
	va_list args;
	void *arg;

	va_start(args, how);
	arg = va_arg(args, void *);
	va_end(args);
	if (refused(__func__, EIO, caller))
		return -1;
	return real(fd, how, arg);
}

static void each_fd(void (*visit)(int fd, FILE *out), FILE *out)
{
	DIR *dir = opendir("/proc/self/fd");

	for (struct dirent *e; dir && (e = readdir(dir));) {
		int fd = atoi(e->d_name);

		if (e->d_name[0] != '.' && fd < MAX_FDS && fd != dirfd(dir) &&
		    (!out || fd != fileno(out)))
			visit(fd, out);
	}
	if (dir)
		closedir(dir);
}

static bool by_librdmacm;

void *rdma_create_event_channel(void)
{
	/* UCX 用 dlopen 装它：那样 RTLD_NEXT 找不到。*/
	void *library = dlopen("librdmacm.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *(*real)(void) = library ? dlsym(library, __func__) : NULL;

	by_librdmacm = true;
	return real ? real() : NULL;
}

static void remember_fd(int fd, FILE *out)
{
	(void)out;
	open_before[fd] = true;
}

static void tell_fd(int fd, FILE *out)
{
	const char *log = getenv("SPY_LOG"); /* spy.c 的，不是程序的 */
	char link[64], what[PATH_MAX];
	ssize_t n;

	if (open_before[fd])
		return;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, what, sizeof(what) - 1);
	what[n > 0 ? n : 0] = '\0';
	if (log && !strcmp(what, log))
		return;
	if (by_librdmacm && strstr(what, "infiniband") &&
	    !strstr(what, "rdma_cm")) /* 设备，它要用到最后；channel 不是 */
		return;
	/* UCX 在它自己的 destructor 里才关设备，拒绝了的连接也留着 socket。*/
	if (dlsym(RTLD_DEFAULT, "ucp_cleanup") &&
	    (strstr(what, "infiniband") || !strncmp(what, "socket:", 7)))
		return;
	fprintf(out, "%s: descriptor %d, %s\n", program_invocation_short_name,
		fd, what);
}

/* dlopen 了而没有 dlclose 的。*/
static int tell_object(struct dl_phdr_info *info, size_t size, void *out)
{
	char path[PATH_MAX];

	(void)size;
	absolute(info->dlpi_name, path);
	for (int i = 0; i < objects_before; i++)
		if (objects[i].base == info->dlpi_addr)
			return 0;
	if (is_ours(path))
		fprintf(out, "%s: library %s\n", program_invocation_short_name,
			path);
	return 0;
}

__attribute__((constructor)) static void begin(void)
{
	const char *fail = getenv("KEPT_FAIL");
	char self[PATH_MAX];

	/* 在 valgrind 里，free 是它的：这里一次也看不到。*/
	if (!getenv("KEPT") || strstr(getenv("LD_PRELOAD"), "vgpreload"))
		return;
	fail_at = fail ? atol(fail) : 0;
	harmless_only = getenv("KEPT_HARMLESS");
	dl_iterate_phdr(add_object, NULL);
	objects_before = object_count;
	absolute("", self);
	if (is_ours(self))
		each_fd(remember_fd, NULL);
	else
		memset(open_before, true, sizeof(open_before));
	watching = true;
}

__attribute__((destructor)) static void end(void)
{
	FILE *out;

	if (!watching)
		return;
	watching = false;
	out = fopen(getenv("KEPT"), "ae");
	if (!out)
		return;
	setvbuf(out, NULL, _IOLBF, 0);
	for (size_t i = 0; i < SLOTS; i++) {
		const struct object *o;

		if (!blocks[i].p || blocks[i].p == TAKEN)
			continue;
		o = object_at(blocks[i].caller);
		fprintf(out, "%s: %zu bytes, 0x%lx of %s\n",
			program_invocation_short_name, blocks[i].size,
			o ? blocks[i].caller - o->base : 0,
			o ? o->name : "what is closed");
	}
	if (full)
		fprintf(out, "%s: more than %d blocks\n",
			program_invocation_short_name, SLOTS);
	if (threads)
		fprintf(out, "%s: %ld threads\n", program_invocation_short_name,
			threads);
	each_fd(tell_fd, out);
	dl_iterate_phdr(tell_object, out);
	fclose(out);
}
