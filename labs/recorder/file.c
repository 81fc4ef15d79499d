// SPDX-License-Identifier: MIT
/*
 * file.c —— 记录文件：归谁、怎样映射、怎样变长
 *
 * 映射一次，映射到它最长的时候；文件自己一块一块地长。碰到文件末尾以外的页是 SIGBUS，会
 * 打死别人的程序，所以先向文件系统要到地方（fallocate），再用那一块：磁盘满了，要不到，
 * 就不用。fd 只在变长时用得着；它是借住在别人进程里的：不占程序数得着的号码，不假定它一直
 * 是我们的。
 */
#include "file.h"

#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int file = -1;
static dev_t file_dev;
static ino_t file_ino;
static char file_name[sizeof(recorder.file) + 24];
/* first：这条命令的第一份的；NULL：就是 header。*/
static struct recording_header *header, *first;
static bool complained;
/* 与文件的第一页一起写下去：无论何时被杀，文件要么是空的，要么有头。*/
static char first_page[HEADER_SIZE];
static const struct timespec nap = { .tv_nsec = 1000000 };

/* 每个线程至少一块，哪怕超过 --last。*/
#define MOST_THREADS 4096u
#define MOST_NAMES   100

/* 程序数着 fd 过日子（“第一个打开的应当是 3”）：躲到高处去。*/
static int move_up(int fd)
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
	int fd = open(file_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
	struct stat st;

	if (fd < 0)
		return -errno;
	/* 映射着的是 file_ino：名字下面换了别的文件，就不再长了。*/
	if (fstat(fd, &st) ||
	    (header && (st.st_dev != file_dev || st.st_ino != file_ino))) {
		close(fd);
		return -ESTALE;
	}
	file = move_up(fd);
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
	const char *name = strerrorname_np(err);
	int n = snprintf(text, sizeof(text),
			 "qptrace: %s %s: %s%s\n"
			 "qptrace: next: choose another file with -o\n",
			 what, file_name, name ? name : "unknown error",
			 err == ELOOP ? ", symbolic links are not followed"
				      : "");

	(void)!write(STDERR_FILENO, text, (size_t)n);
}

/* 9p、NFS 的有些版本没有 fallocate：写零，一样会说磁盘满了。*/
static int make_room(off_t at, size_t size)
{
	static const char zeros[HEADER_SIZE];
	struct rlimit most;
	ssize_t n;

	/* 超过 ulimit -f 的写会引来 SIGXFSZ，那是要程序命的。*/
	if (!getrlimit(RLIMIT_FSIZE, &most) &&
	    (uint64_t)at + size > most.rlim_cur)
		return -EFBIG;
	if (at && !fallocate(file, 0, at, (off_t)size))
		return 0;
	if (at && errno != EOPNOTSUPP && errno != ENOSYS)
		return -errno;
	for (size_t done = 0; done < size; done += (size_t)n) {
		n = pwrite(file, (at ? zeros : first_page) + done % HEADER_SIZE,
			   HEADER_SIZE - done % HEADER_SIZE, at + (off_t)done);
		if (n < 0 && errno == EINTR)
			n = 0;
		if (n < 0)
			return -errno;
	}
	return 0;
}

/*
 * 要到了地方，缺页仍可能是 SIGBUS：9p 上另一个进程打开同一个文件，会把刚变长的 inode 缩回去，
 * 要再写一次才又变长。MADV_POPULATE_WRITE（Linux 5.14）先替我们缺页，不行时返回 EFAULT，不发
 * 信号。
 */
static int take(char *map, off_t at, size_t size)
{
	int rc = make_room(at, size);

	for (int i = 0; !rc && madvise(map + at, size, MADV_POPULATE_WRITE);
	     i++) {
		if (errno == EINVAL)
			return 0;
		if (errno != EFAULT || i == 100)
			return -errno;
		nanosleep(&nap, NULL);
		rc = make_room(at, size);
	}
	return rc;
}

static size_t most_blocks(void)
{
	return CONTROL_BLOCKS + MOST_THREADS + recorder.last / BLOCK_SIZE;
}

static struct block *block_at(size_t index)
{
	return (struct block *)((char *)header + HEADER_SIZE +
				index * BLOCK_SIZE);
}

size_t file_index(const struct block *block)
{
	return (size_t)((const char *)block - (const char *)block_at(0)) /
	       BLOCK_SIZE;
}

struct recording_header *file_header(void)
{
	return header;
}

struct block *file_grow(void)
{
	uint32_t blocks = header ? atomic_load(&header->blocks) : 0;
	int rc = -EBADF;

	if (!header || blocks >= most_blocks())
		return NULL;
	if (still_ours())
		rc = take((char *)header,
			  (off_t)(HEADER_SIZE + (uint64_t)blocks * BLOCK_SIZE),
			  BLOCK_SIZE);
	if (rc) {
		if (!complained)
			complain("the recording cannot grow any more,", -rc);
		complained = true;
		return NULL;
	}
	atomic_store(&header->blocks, blocks + 1);
	return block_at(blocks);
}

static size_t mapped_size(void)
{
	return HEADER_SIZE + most_blocks() * BLOCK_SIZE;
}

static int map_file(void)
{
	const struct recording_header head = {
		.magic = RECORDING_MAGIC,
		.version = RECORDING_VERSION,
		.endian = RECORDING_ENDIAN,
		.header_size = HEADER_SIZE,
		.block_size = BLOCK_SIZE,
		.block_head = sizeof(struct block),
		.event_head = sizeof(struct event_head),
		.record_size = sizeof(struct record),
		.pid = getpid(),
	};
	void *at = mmap(NULL, mapped_size(), PROT_READ | PROT_WRITE, MAP_SHARED,
			file, 0);

	if (at == MAP_FAILED)
		return -errno;
	header = at;
	memcpy(first_page, &head, sizeof(head));
	return take(at, 0, HEADER_SIZE);
}

/* 旁边看着的人睡在第一份的头上：别的进程的，也从那里叫它。头也许还没有写，或者又短了。*/
static bool find_first(void)
{
	int fd = open(recorder.file, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	void *at = MAP_FAILED;

	if (fd >= 0 && !fstat(fd, &st) && st.st_size >= HEADER_SIZE)
		at = mmap(NULL, HEADER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED,
			  fd, 0);
	if (fd >= 0)
		close(fd);
	if (at == MAP_FAILED)
		return false;
	if (madvise(at, HEADER_SIZE, MADV_POPULATE_WRITE) && errno == EFAULT) {
		munmap(at, HEADER_SIZE);
		return false;
	}
	first = at;
	atomic_fetch_add(&first->others, 1);
	file_wake();
	return true;
}

void file_knows(bool peer, uint32_t qpn)
{
	_Atomic uint64_t *bits = peer ? header->dest_qpns : header->qpns;

	atomic_fetch_or(&bits[qpn % QPN_BITS / 64], UINT64_C(1) << (qpn % 64));
}

void file_wake(void)
{
	struct recording_header *of = first ? first : header;

	atomic_fetch_add(&of->wake, 1);
	syscall(SYS_futex, &of->wake, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* 子进程里：映射也是父进程的。*/
void file_close(void)
{
	if (first)
		munmap(first, HEADER_SIZE);
	first = NULL;
	if (header)
		munmap(header, mapped_size());
	header = NULL;
	if (file >= 0)
		close(file);
	file = -1;
}

/*
 * 文件归先到的进程：`qptrace sh -c 'server & client'` 里有两个进程都用 verbs，后到的写
 * FILE.PID；exec 之后号码不变，是 FILE.PID.2。空文件才算没有主人，用 flock 防止两个同时
 * 以为如此。别人映射着的文件不能截短：那是它的 SIGBUS。
 */
static int claim(bool child)
{
	const size_t len = strlen(recorder.file);
	struct stat st;
	int rc = 0;

	memcpy(file_name, recorder.file, len + 1);
	for (int i = child; i < MOST_NAMES; i++) {
		if (i)
			snprintf(file_name + len, sizeof(file_name) - len,
				 i > 1 ? ".%d.%d" : ".%d", (int)getpid(), i);
		rc = open_file(O_CREAT);
		if (rc)
			return rc;
		if (!flock(file, LOCK_EX | LOCK_NB) && !fstat(file, &st) &&
		    st.st_size == 0)
			return 0;
		close(file);
		file = -1;
	}
	return -EEXIST;
}

int file_claim(bool child)
{
	int rc = claim(child);

	complained = false;
	if (!rc) {
		rc = map_file();
		if (rc)
			ftruncate(file, 0);
	}
	if (rc) {
		file_close();
		complain("not recording, cannot open", -rc);
	} else if (recorder.watcher && strcmp(file_name, recorder.file)) {
		for (int i = 0; i < 100 && !find_first(); i++)
			nanosleep(&nap, NULL);
	}
	return rc;
}
