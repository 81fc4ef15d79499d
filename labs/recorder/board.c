// SPDX-License-Identifier: MIT
/*
 * board.c —— 一台机器上的几个记录器互相看得见：各自贴出自己的 QP 与 MR
 *
 * 真的程序是两个进程，rkey 对不对、PSN 合不合，只有对端知道；出了错再去比两份记录，不如当场
 * 就说。用 memfd 而不用 /dev/shm 里的文件：进程怎样死（kill -9、断电）它都随之消失，没有
 * 人需要打扫；/proc/PID/fd 只让同一个用户打开，别人看不见。
 *
 * 写的一端不等任何人：版本号先变单、后变双；读的一端整块抄走，前后版本相同而且是双的才算数。
 */
#include "board.h"

#include "file.h"
#include "recorder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME	    "qptrace-board-1"
#define MOST_QPS    256u
#define MOST_MRS    2048u
#define MOST_BOARDS 256
#define MOST_LOOKS  4096 /* 进程；再多就不看了 */
#define MOST_FDS    1024
#define FRESH_NS    500000000
#define SECOND	    1000000000
#define RETRIES	    100 /* of 1 ms: who writes may not have a CPU just now */

struct board {
	uint32_t size;	       /* of this struct: another version has another */
	_Atomic uint32_t turn; /* odd: being written */
	bool more_mrs;	       /* than there is room for */
	uint32_t qps_end, mrs_end; /* places in use are below these */
	struct board_qp qps[MOST_QPS];
	struct explain_mr mrs[MOST_MRS];
};

static struct board *mine;
static int mine_fd = -1;
static bool tried;

/* ---- 写 ------------------------------------------------------------------- */

static void open_board(void)
{
	tried = true;
	mine_fd = file_move_up(memfd_create(NAME, MFD_CLOEXEC));
	if (ftruncate(mine_fd, sizeof(*mine)))
		return;
	mine = mmap(NULL, sizeof(*mine), PROT_READ | PROT_WRITE, MAP_SHARED,
		    mine_fd, 0);
	if (mine == MAP_FAILED)
		mine = NULL;
	else
		mine->size = sizeof(*mine);
}

static bool begin_turn(void)
{
	if (!tried)
		open_board();
	if (mine)
		atomic_fetch_add(&mine->turn, 1);
	return mine != NULL;
}

static void end_turn(void)
{
	atomic_fetch_add(&mine->turn, 1);
}

/* 空的是：QP 号 0 的，lkey 与 rkey 都是 0 的。*/
static bool is_free_qp(const struct board_qp *qp)
{
	return !qp->told.qp_num;
}

static bool is_free_mr(const struct explain_mr *mr)
{
	return !mr->lkey && !mr->rkey;
}

/* 从上一次给出的地方找起：注册一万个 MR 也不必每次从头看。*/
#define PUT(what, type, MOST)                                         \
	uint32_t board_put_##what(uint32_t place, const type *new)    \
	{                                                             \
		static uint32_t last;                                 \
		uint32_t tries = 0;                                   \
                                                                      \
		if (!begin_turn())                                    \
			return 0;                                     \
		while (!place && tries++ < (MOST)) {                  \
			last = last % (MOST) + 1;                     \
			if (is_free_##what(&mine->what##s[last - 1])) \
				place = last;                         \
		}                                                     \
		if (place)                                            \
			mine->what##s[place - 1] = *new;              \
		if (place > mine->what##s_end)                        \
			mine->what##s_end = place;                    \
		if (!place && (MOST) == MOST_MRS)                     \
			mine->more_mrs = true;                        \
		end_turn();                                           \
		return place;                                         \
	}                                                             \
                                                                      \
	void board_drop_##what(uint32_t place)                        \
	{                                                             \
		if (!place || !mine || !begin_turn())                 \
			return;                                       \
		memset(&mine->what##s[place - 1], 0,                  \
		       sizeof(mine->what##s[0]));                     \
		end_turn();                                           \
	}
PUT(qp, struct board_qp, MOST_QPS)
PUT(mr, struct explain_mr, MOST_MRS)

/* @name: /proc/PID/fd 里的一个，@dir 是那里。*/
static bool is_board(int dir, const char *name)
{
	static const char wanted[] = "/memfd:" NAME;
	char text[sizeof(wanted)];

	return readlinkat(dir, name, text, sizeof(text)) >=
		       (ssize_t)sizeof(wanted) - 1 &&
	       !memcmp(text, wanted, sizeof(wanted) - 1);
}

/*
 * 映射与 fd 仍是父进程的：写进去，别人就以为是它的；留着 fd，别人看到的就是父进程的那一块。
 * 那个号码也许早已是程序自己的文件。
 */
void board_after_fork(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", mine_fd);
	if (is_board(AT_FDCWD, path))
		close(mine_fd);
	if (mine)
		munmap(mine, sizeof(*mine));
	mine = NULL;
	tried = false;
}

/* ---- 读 ------------------------------------------------------------------- */

/* 贴了 board 的进程，与它的 fd。*/
static struct known {
	int pid;
	unsigned int fd;
} known[MOST_BOARDS];
static size_t n_known;
static int64_t looked; /* ns */

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

/* @dir: /proc/PID/fd。*/
static void look_at_fds(int pid, int dir)
{
	DIR *fds = fdopendir(dir);
	struct dirent *entry;

	for (int i = 0; fds && i < MOST_FDS && (entry = readdir(fds)); i++) {
		if (!is_board(dir, entry->d_name))
			continue;
		known[n_known++] = (struct known){
			pid, (unsigned int)strtoul(entry->d_name, NULL, 10)
		};
		break;
	}
	if (fds)
		closedir(fds);
	else
		close(dir);
}

static void look_around(void)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	char path[64];
	int pid, dir;

	n_known = 0;
	for (int i = 0; proc && n_known < MOST_BOARDS && i < MOST_LOOKS &&
			(entry = readdir(proc));
	     i++) {
		pid = atoi(entry->d_name);
		if (pid <= 0 || pid == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fd", pid);
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dir >= 0)
			look_at_fds(pid, dir);
	}
	if (proc)
		closedir(proc);
	looked = now_ns();
}

/* 只抄用着的那些。*/
static bool copy_used(struct board *to, const struct board *from)
{
	to->size = from->size;
	to->more_mrs = from->more_mrs;
	to->qps_end = from->qps_end;
	to->mrs_end = from->mrs_end;
	if (to->size != sizeof(*to) || to->qps_end > MOST_QPS ||
	    to->mrs_end > MOST_MRS)
		return false;
	memcpy(to->qps, from->qps, to->qps_end * sizeof(to->qps[0]));
	memcpy(to->mrs, from->mrs, to->mrs_end * sizeof(to->mrs[0]));
	return true;
}

static bool copy_out(struct board *to, const struct board *from)
{
	const struct timespec nap = { .tv_nsec = 1000000 };

	for (int i = 0; i < RETRIES; i++) {
		uint32_t turn = atomic_load(&from->turn);
		bool good = copy_used(to, from);

		atomic_thread_fence(memory_order_acquire);
		if (!(turn & 1) && turn == atomic_load(&from->turn))
			return good;
		nanosleep(&nap, NULL);
	}
	return false;
}

static bool read_board(struct board *to, const struct known *whose)
{
	struct board *theirs = MAP_FAILED;
	struct stat st;
	char path[64];
	bool good;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%u", whose->pid, whose->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (!fstat(fd, &st) && st.st_uid == geteuid() &&
	    st.st_size == sizeof(*theirs))
		theirs = mmap(NULL, sizeof(*theirs), PROT_READ, MAP_SHARED, fd,
			      0);
	close(fd);
	if (theirs == MAP_FAILED)
		return false;
	good = copy_out(to, theirs);
	munmap(theirs, sizeof(*theirs));
	return good;
}

bool board_find(struct neighbour *out,
		bool (*meant)(const struct board_qp *qp, void *arg), void *arg)
{
	static struct board *b; /* 抄来的 */

	if (!b)
		b = recorder_pages(sizeof(*b));
	if (!looked || now_ns() - looked > FRESH_NS)
		look_around();
	for (size_t i = 0; b && i < n_known; i++) {
		if (!read_board(b, &known[i]))
			continue;
		for (uint32_t k = 0; k < b->qps_end; k++) {
			if (is_free_qp(&b->qps[k]) || !meant(&b->qps[k], arg))
				continue;
			*out = (struct neighbour){ known[i].pid, &b->qps[k],
						   b->mrs, b->mrs_end,
						   !b->more_mrs };
			return true;
		}
	}
	return false;
}

bool board_is_alone(void)
{
	return !n_known;
}
