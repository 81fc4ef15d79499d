// SPDX-License-Identifier: MIT
/*
 * unit_recorder.c FOLDER —— 记录器的底下几层：放到最后一个、再多一个，拿了的都还
 *
 * 它住在别人的进程里，越界毁的是别人的内存，漏的是别人的 fd。源文件整个拿进来，write 与 mmap
 * 换成这里的：前者一次只写一点，常被打断；后者会没有内存。越界与漏掉的块由 ASan 来抓。
 */
#include "../open_files.h"
#include "../unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static ssize_t scanty_write(int fd, const void *data, size_t size);
static void *scanty_mmap(void *at, size_t size, int prot, int flags, int fd,
			 off_t offset);

#define write scanty_write
#define mmap  scanty_mmap
#include "recorder/file.c"
#include "recorder/format.c"
#include "recorder/objects.c"
#include "recorder/proc.c"
#include "recorder/recorder.c"
#include "recorder/ring.c"
#undef BUCKETS
#undef MOST_FDS
#define ids		  ids_of_cm
#define explain_neighbour nobody_answers
static struct explanation nobody_answers(const union ibv_gid *to);
#include "recorder/ids.c"
#undef explain_neighbour
#undef ids
#include "recorder/board.c"
#undef write
#undef mmap

static struct explanation nobody_answers(const union ibv_gid *to)
{
	(void)to;
	return (struct explanation){ .cause = "nobody answers" };
}

/* writer.c 的：ids.c 说的，这里只数。*/
static int warnings;

void writer_lock(void)
{
}

void writer_unlock(void)
{
}

void writer_add(uint64_t stamp, const struct line *line)
{
	(void)stamp;
	(void)line;
	warnings++;
}

static int no_memory; /* the next calls of mmap that fail */
static int disk_full; /* so are all files */
static unsigned int writes;
static char complained[1024];

/* 轮流：被打断，至多 1000 字节，fd 刚被程序关掉，至多 1000 字节。*/
static ssize_t scanty_write(int fd, const void *data, size_t size)
{
	int err = writes % 4 == 0 ? EINTR : writes % 4 == 2 ? EBADF : 0;

	if (fd == STDERR_FILENO) {
		strncat(complained, data, size);
		return (ssize_t)size;
	}
	err = disk_full ? ENOSPC : err;
	if (++writes > 1000) {
		CHECK(false, "it writes for ever");
		exit(1);
	}
	if (err) {
		errno = err;
		return -1;
	}
	return syscall(SYS_write, fd, data, size < 1000 ? size : 1000);
}

static void *scanty_mmap(void *at, size_t size, int prot, int flags, int fd,
			 off_t offset)
{
	if (no_memory) {
		no_memory--;
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return mmap(at, size, prot, flags, fd, offset);
}

static void put_file(const char *path, const char *text, size_t len)
{
	FILE *out = fopen(path, "w");

	if (!out || fwrite(text, 1, len, out) != len || fclose(out))
		exit(2);
}

/* fork 出来的做 @body，它的失败也算。*/
static void in_a_child(void (*body)(void))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		unit_failures = 0;
		body();
		fflush(stdout);
		_exit(unit_failures ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	CHECK(!status, "the child ended with %d", status);
}

/* ---- recorder.c ----------------------------------------------------------- */

static void try_file_names(void)
{
	static char path[sizeof(recorder.file) + 1];

	unsetenv("QPTRACE_FILE");
	read_environment();
	CHECK(!recorder.file[0], "it was told nothing");
	memset(path, 'x', sizeof(path) - 1);
	setenv("QPTRACE_FILE", path, 1);
	read_environment();
	CHECK(!recorder.file[0], "a path of %zu bytes", strlen(path));
	path[sizeof(path) - 2] = '\0';
	setenv("QPTRACE_FILE", path, 1);
	read_environment();
	CHECK(!strcmp(recorder.file, path), "one of %zu", strlen(path));
}

/* ---- proc.c --------------------------------------------------------------- */

static void try_read_text(const char *folder)
{
	static const size_t sizes[] = { 0, 9, 10, 11 };
	char *path = NULL, *out = malloc(10);
	int before = open_files();

	for (size_t i = 0; i < 4 && asprintf(&path, "%s/text", folder) > 0;
	     i++) {
		size_t want = sizes[i] < 9 ? sizes[i] : 9;

		put_file(path, "0123456789a", sizes[i]);
		memset(out, 'x', 10);
		CHECK(read_text(path, out, 10) == want, "%zu bytes", sizes[i]);
		CHECK(strlen(out) == want, "%zu bytes", sizes[i]);
		free(path);
	}
	CHECK(!read_text("/none", out, 10) && !*out, "no such file");
	CHECK(!read_text(folder, out, 10) && !*out, "a folder");
	CHECK(open_files() == before, "none is left open");
	free(out);
}

static void *pauses(void *arg)
{
	pthread_barrier_wait(arg);
	pthread_barrier_wait(arg);
	return NULL;
}

static void try_threads(void)
{
	pid_t *few = malloc(2 * sizeof(*few)), all[10];
	pthread_barrier_t barrier;
	pthread_t threads[3];
	int before = open_files();

	pthread_barrier_init(&barrier, NULL, 4);
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, pauses, &barrier);
	pthread_barrier_wait(&barrier);
	CHECK(threads_of_process(few, 2) == 2, "two of three");
	CHECK(threads_of_process(all, 10) == 3, "all but this one");
	CHECK(open_files() == before, "none is left open");
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	free(few);
}

/* ---- file.c --------------------------------------------------------------- */

static void check_file(const char *path, const char *text, size_t len)
{
	static char came[1 << 15];
	FILE *in = fopen(path, "r");
	size_t n = in ? fread(came, 1, sizeof(came), in) : 0;

	CHECK(n == len && !memcmp(came, text, n), "%s: %zu of %zu bytes", path,
	      n, len);
	if (in)
		fclose(in);
}

/* 写到一半，号码成了程序自己的文件；后来盘满了。*/
static void try_file(const char *folder)
{
	static char text[2500], twice[5000];
	int before = open_files(), other;
	char path[200];

	for (size_t i = 0; i < sizeof(twice); i++)
		text[i % 2500] = twice[i] = (char)('a' + i % 2500 % 23);
	snprintf(path, sizeof(path), "%s/other", folder);
	put_file(path, "", 0);
	other = open(path, O_WRONLY | O_CLOEXEC);
	snprintf(recorder.file, sizeof(recorder.file), "%s/record", folder);
	CHECK(!file_claim(false), "%s", recorder.file);
	file_write(text, sizeof(text));
	check_file(recorder.file, text, sizeof(text));
	dup2(other, file);
	close(other);
	other = file;
	writes = 1; /* 第一次就写得进 */
	file_write(text, sizeof(text));
	check_file(path, "", 0);
	check_file(recorder.file, twice, sizeof(twice));
	close(other);
	disk_full = 1;
	file_write(text, sizeof(text));
	disk_full = 0;
	CHECK(strstr(complained, "no longer recording, cannot write") &&
		      strstr(complained, "ENOSPC"),
	      "said: %s", complained);
	CHECK(open_files() == before, "it is closed");
	file_write(text, sizeof(text));
	check_file(recorder.file, twice, sizeof(twice));
	CHECK(!file_claim(true), "FILE.PID");
	file_close();
	CHECK(open_files() == before, "it is closed");
}

/* ---- board.c -------------------------------------------------------------- */

static int no_qps, no_mrs; /* met: as none of ours is */

static struct board_qp qp_number(uint32_t n)
{
	return (struct board_qp){ { .qp_num = n, .attr_mask = (int)n },
				  (void *)UINTPTR_MAX };
}

static struct explain_mr mr_number(uint32_t n)
{
	return (struct explain_mr){
		.pd = (void *)&no_mrs, .addr = n, .length = ~0ull - n, .rkey = n
	};
}

static bool is_dropped(uint32_t n, uint32_t most)
{
	return n == 1 || n == most / 2 || n == most - 1;
}

static bool is_same_qp(const struct board_qp *qp, void *arg)
{
	return !memcmp(qp, arg, sizeof(*qp));
}

/* 在另一个进程里，看它的父进程贴了什么。*/
static void compare_boards(void)
{
	static const struct explain_mr none;
	struct neighbour found = { 0 };

	board_after_fork();
	for (uint32_t n = 1; n <= MOST_QPS + 1; n++) {
		struct board_qp qp = qp_number(n);
		bool is = board_find(&found, is_same_qp, &qp);

		CHECK(is == (n <= MOST_QPS && !is_dropped(n, MOST_QPS)),
		      "QP %u: %d", n, is);
	}
	CHECK(found.pid == getppid() && found.n_mrs == MOST_MRS &&
		      !found.all_mrs,
	      "%zu MRs of %d", found.n_mrs, found.pid);
	for (uint32_t n = 1; n <= MOST_MRS; n++) {
		struct explain_mr mr = mr_number(n);

		CHECK(!memcmp(&found.mrs[n - 1],
			      is_dropped(n, MOST_MRS) ? &none : &mr,
			      sizeof(mr)),
		      "MR %u", n);
	}
}

/* 到最后一个为止都有地方，再多一个没有；空出来的可以再用。*/
static void try_full_board(void)
{
	for (uint32_t n = 1; n <= MOST_MRS + 1; n++) {
		struct board_qp qp = qp_number(n);
		struct explain_mr mr = mr_number(n);

		CHECK(n > MOST_QPS + 1 ||
			      board_put_qp(0, &qp) == (n <= MOST_QPS ? n : 0),
		      "QP %u", n);
		CHECK(board_put_mr(0, &mr) == (n <= MOST_MRS ? n : 0), "MR %u",
		      n);
	}
	for (uint32_t n = 1; n <= MOST_MRS; n++) {
		if (is_dropped(n, MOST_QPS) && n <= MOST_QPS)
			board_drop_qp(n);
		if (is_dropped(n, MOST_MRS))
			board_drop_mr(n);
	}
	in_a_child(compare_boards);
	for (uint32_t n = 1; n <= MOST_MRS; n++) {
		struct board_qp qp = qp_number(n);
		struct explain_mr mr = mr_number(n);

		if (is_dropped(n, MOST_QPS) && n <= MOST_QPS)
			CHECK(board_put_qp(0, &qp) == n, "QP %u again", n);
		if (is_dropped(n, MOST_MRS))
			CHECK(board_put_mr(0, &mr) == n, "MR %u again", n);
	}
}

/* 拆掉的不留在板上，也不留给后来的。*/
static void try_objects_on_the_board(void)
{
	static const enum object_kind kinds[] = { OBJECT_QP, OBJECT_MR };
	struct object *object;
	uint32_t place;

	board_drop_qp(7);
	board_drop_mr(7);
	for (int i = 0; i < 2; i++) {
		object = object_add(kinds[i], &no_mrs, NULL);
		object->mr = mr_number(7);
		object->told.qp_num = 7;
		object_show(object);
		place = object->place;
		CHECK(place == 7, "there was one place, not %u", place);
		object_free(object_detach(kinds[i], &no_mrs));
		CHECK(kinds[i] == OBJECT_QP ? is_free_qp(&mine->qps[6])
					    : is_free_mr(&mine->mrs[6]),
		      "it is off the board");
		object = object_add(kinds[i], &no_mrs, NULL);
		CHECK(!object->place, "the next one begins blank");
		object_show(object);
		CHECK(object->place == 7, "the only place, tried last");
		object_free(object_detach(kinds[i], &no_mrs));
	}
}

static bool is_mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char text[512];
	bool is = false;

	while (maps && fgets(text, sizeof(text), maps))
		is = is || strstr(text, NAME);
	if (maps)
		fclose(maps);
	return is;
}

/* 子进程贴自己的，父进程的那一块它既不映射，也不开着。*/
static void leave_the_parents(void)
{
	struct board *was = mine;
	int before = open_files(), fd = mine_fd;
	struct board_qp qp = qp_number(1);

	board_after_fork();
	CHECK(was && !is_mapped(), "the parent's board is not mapped");
	CHECK(open_files() == before - 1, "and not open");
	CHECK(board_put_qp(0, &qp) && mine->qps_end < MOST_QPS,
	      "it has a board of its own");
	/* 号码成了程序的文件：不是我们的，不关。*/
	dup2(STDOUT_FILENO, mine_fd);
	fd = mine_fd;
	board_after_fork();
	CHECK(fcntl(fd, F_GETFD) >= 0, "the program's file is open");
	no_memory = 1;
	CHECK(!board_put_qp(0, &qp), "no memory, no board");
}

/* @fd: 一块板，每次改它的头。*/
static void try_odd_boards(void)
{
	int fd = memfd_create(NAME, MFD_CLOEXEC);
	const struct known whose = { getpid(), (unsigned int)fd };
	struct board *to = calloc(1, sizeof(*to)), *from;
	int before = open_files();

	CHECK(!ftruncate(fd, 4096) && !read_board(to, &whose), "4096 bytes");
	if (ftruncate(fd, sizeof(*from)))
		exit(2);
	from = mmap(NULL, sizeof(*from), PROT_WRITE, MAP_SHARED, fd, 0);
	from->size = sizeof(*from);
	from->qps_end = MOST_QPS;
	from->mrs_end = MOST_MRS;
	CHECK(read_board(to, &whose), "a full one");
	from->turn = 1;
	CHECK(!read_board(to, &whose), "one that is being written");
	from->turn = 2;
	from->qps_end++;
	CHECK(!read_board(to, &whose), "too many QPs");
	from->qps_end--;
	from->mrs_end++;
	CHECK(!read_board(to, &whose), "too many MRs");
	from->mrs_end--;
	from->size++;
	CHECK(!read_board(to, &whose), "of another version");
	CHECK(open_files() == before, "none is left open");
	munmap(from, sizeof(*from));
	close(fd);
	CHECK(!read_board(to, &whose), "one that is gone");
	free(to);
}

static bool count_it(const struct board_qp *qp, void *arg)
{
	*(int *)arg += qp->told.qp_num != 0;
	return false;
}

/* 先看的一块长，后看的短：长的那块的尾巴不是后一块的。*/
static void try_two_boards(void)
{
	struct neighbour found;
	int met = 0;

	n_known = 2;
	looked = INT64_MAX; /* fresh for ever */
	for (uint32_t i = 0; i < 2; i++) {
		int fd = memfd_create(NAME, MFD_CLOEXEC);
		struct board *board;

		known[i] = (struct known){ getpid(), (unsigned int)fd };
		if (ftruncate(fd, sizeof(*board)))
			exit(2);
		board = mmap(NULL, sizeof(*board), PROT_WRITE, MAP_SHARED, fd,
			     0);
		board->size = sizeof(*board);
		board->qps_end = 2 - i;
		board->qps[0] = board->qps[1] = qp_number(1 + i);
		munmap(board, sizeof(*board));
	}
	CHECK(!board_find(&found, count_it, &met), "none is meant");
	CHECK(met == 3, "%d QPs", met);
	for (int i = 0; i < 2; i++)
		close((int)known[i].fd);
	looked = 0;
}

/* 每个都有这个进程的板开着，比记得下的多一个；看过之后什么也不留。*/
static void try_many_boards(void)
{
	static pid_t pids[MOST_BOARDS + 1];
	int before, met = 0;
	struct neighbour found;

	for (int i = 0; i <= MOST_BOARDS; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	before = open_files();
	CHECK(!board_find(&found, count_it, &met), "none is meant");
	CHECK(n_known == MOST_BOARDS, "%zu boards", n_known);
	CHECK(open_files() == before, "none is left open");
	for (int i = 0; i <= MOST_BOARDS; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	looked = 0;
}

/* ---- objects.c ------------------------------------------------------------ */

/* 一个 QP 从生到死，每个队列都长过三次。*/
static void live(int posts_each)
{
	struct record post = { .object = &no_qps };
	struct object *qp = object_add(OBJECT_QP, &no_qps, NULL), *owner;

	for (int i = 0; qp && i < posts_each; i++) {
		post.kind = RECORD_POST_SEND;
		objects_book(&post, 1, &owner);
		post.kind = RECORD_POST_RECV;
		objects_book(&post, 1, &owner);
	}
	CHECK(!qp || queue_length(&qp->sq) == (uint64_t)posts_each, "%d posts",
	      posts_each);
	object_free(object_detach(OBJECT_QP, &no_qps));
}

static void try_queues(void)
{
	struct record post = { .object = &no_qps, .kind = RECORD_POST_SEND };
	struct object *qp, *owner;
	long before;

	live(300);
	before = mapped_pages();
	for (int i = 0; i < 100; i++)
		live(300);
	for (int i = 0; i < 1000; i++)
		live(0);
	/* 每个队列至少两页，四个对象至少一页。*/
	CHECK(before > 0 && mapped_pages() < before + 100, "%ld pages more",
	      mapped_pages() - before);
	qp = object_add(OBJECT_QP, &no_qps, NULL);
	no_memory = 1;
	objects_book(&post, 1, &owner);
	CHECK(!queue_length(&qp->sq), "no memory, nothing is queued");
	object_free(object_detach(OBJECT_QP, &no_qps));
}

/* 一个接一个，直到最后一个桶：别的种类不算，一个也不漏，也不多看。*/
static void try_one_after_another(void)
{
	static char owners[3000]; /* 比桶多 */
	const size_t n = sizeof(owners);
	const struct object *o = NULL;
	size_t seen = 0;

	for (size_t i = 0; i < n; i++)
		object_add(i % 2 ? OBJECT_CQ : OBJECT_MR, &owners[i], NULL);
	while ((o = object_after(OBJECT_CQ, o)))
		seen++;
	CHECK(seen == n / 2, "%zu of %zu", seen, n / 2);
	CHECK(!object_after(OBJECT_SRQ, NULL), "there is none");
	for (size_t i = 0; i < n; i++)
		object_free(object_detach(i % 2 ? OBJECT_CQ : OBJECT_MR,
					  &owners[i]));
}

static void try_objects_without_memory(void)
{
	no_memory = 1;
	CHECK(!object_add(OBJECT_PD, &no_qps, NULL), "no memory, no object");
	CHECK(object_add(OBJECT_PD, &no_qps, NULL), "and later there is");
}

/* ---- ring.c --------------------------------------------------------------- */

static size_t count_rings(void)
{
	struct ring *ring = atomic_load(&all_rings);
	size_t n = 0;

	for (; ring; ring = ring->next)
		n++;
	return n;
}

static void *takes_a_ring(void *arg)
{
	struct ring *ring = ring_mine();

	CHECK(ring->tid == (pid_t)syscall(SYS_gettid), "it is its own");
	if (arg)
		pauses(arg);
	return ring;
}

/* fork 的是有环的那个线程。*/
static void keep_one_ring(void)
{
	struct ring *ring = atomic_load(&all_rings);

	ring_after_fork();
	CHECK(ring_of_thread->tid == (pid_t)syscall(SYS_gettid), "its own tid");
	for (; ring; ring = ring->next)
		CHECK(atomic_load(&ring->orphan) == (ring != ring_of_thread),
		      "all others are orphans");
}

static void try_rings(void)
{
	pthread_barrier_t barrier;
	pthread_t threads[2];
	void *rings[2];

	no_memory = 1;
	CHECK(!ring_mine() && ring_mine(), "no ring without memory, then one");
	for (int i = 0; i < 20; i++) {
		pthread_create(&threads[0], NULL, takes_a_ring, NULL);
		pthread_join(threads[0], NULL);
	}
	CHECK(count_rings() == 2, "%zu rings for one after another",
	      count_rings());
	pthread_barrier_init(&barrier, NULL, 3);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, takes_a_ring, &barrier);
	pthread_barrier_wait(&barrier);
	in_a_child(keep_one_ring);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], &rings[i]);
	CHECK(rings[0] != rings[1] && count_rings() == 3,
	      "%zu rings, two at once", count_rings());
}

/* ---- format.c ------------------------------------------------------------- */

/* 最长的“怎么办”，和许多行证据：整行整行地放，放不下的就不放。*/
static void try_advice(void)
{
	struct explanation why = { 0 };

	memset(why.next, 'n', sizeof(why.next) - 1);
	for (size_t i = 0; i < 900; i++)
		why.seen[i] = i % 100 == 99 ? '\n' : 's';
	for (size_t size = 0; size < 2000; size++) {
		char *out = malloc(size + !size);
		size_t n = next_as_text(out, size, "qptrace:", &why);

		CHECK(!n || (n < size && out[n - 1] == '\n'),
		      "%zu in %zu bytes", n, size);
		free(out);
	}
}

/* ---- ids.c ---------------------------------------------------------------- */

static void try_ids(void)
{
	static char handles[MOST_IDS + 1];
	const struct sockaddr_in peer = { .sin_family = AF_INET };

	for (uint32_t i = 0; i < MOST_IDS; i++)
		CHECK(know_id(&handles[i])->number == i + 1, "id %u", i);
	CHECK(!know_id(&handles[MOST_IDS]), "one more");
	id_connects_to(&handles[7], (struct sockaddr *)&peer);
	look_at_ids();
	CHECK(warnings == 1, "%d warnings of one that asks", warnings);
	forget_id(know_id(&handles[7]));
	look_at_ids();
	CHECK(warnings == 1, "%d warnings, but it is destroyed", warnings);
	CHECK(know_id(&handles[MOST_IDS]) == &ids_of_cm[7],
	      "in the place of another");
	CHECK(!know_id(&handles[7]) && !know_id(NULL), "full again");
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	close(STDIN_FILENO); /* 0 也是打开的 fd */
	try_file_names();
	try_read_text(argv[1]);
	try_threads();
	try_file(argv[1]);
	try_objects_without_memory();
	try_full_board();
	try_objects_on_the_board();
	in_a_child(leave_the_parents);
	try_odd_boards();
	try_two_boards();
	try_many_boards();
	try_queues();
	try_one_after_another();
	try_rings();
	try_advice();
	try_ids();
	return unit_result("unit_recorder");
}
