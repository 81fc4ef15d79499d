// SPDX-License-Identifier: MIT
/*
 * remote_reads.c —— 两端在一个进程里：A 用 remote_read.c 从 B 的内存读
 *
 *	remote_reads CASE     打印看到的，一行一件；对错由评分器判断
 *
 * B 的 CPU 从头到尾什么也不做，正如存储节点。
 */
#include "engine/remote_read.h"

#include "base/deadline.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM	(256u << 10)
#define CHUNK	4096u
#define WAIT_MS 4000

/* 一个 read，以及它回来时的情形。remote 是第一个成员：回调凭它找回整个。*/
struct watched {
	struct remote_read remote;
	int number, status, dones;
	uint64_t arrived; /* bytes, in order */
	bool disorder;
};

static struct rdma_resources a, b;
static struct remote_reader reader;
static char *local;
static struct ibv_mr *mr;
static char order[512];

static void on_arrived(struct remote_read *remote, uint64_t from, uint64_t upto)
{
	struct watched *w = (struct watched *)remote;
	size_t n = strlen(order);

	w->disorder |= from != w->arrived || upto <= from;
	w->arrived = upto;
	snprintf(order + n, sizeof(order) - n, " %d", w->number);
}

static void on_done(struct remote_read *remote, int status)
{
	struct watched *w = (struct watched *)remote;

	w->status = status;
	w->dones++;
}

static struct watched new_read(int number, uint64_t at, uint64_t size)
{
	return (struct watched){
		.remote = { .remote_addr = (uintptr_t)b.buf + at,
			    .rkey = b.mr->rkey,
			    .local = local + at,
			    .lkey = mr->lkey,
			    .size = size,
			    .arrived = on_arrived,
			    .done = on_done },
		.number = number,
		.status = 1,
	};
}

static int connect_both(void)
{
	a.remote = cm_con_data_of(&b);
	b.remote = cm_con_data_of(&a);
	return modify_qp_to_rtr(&a) || modify_qp_to_rtr(&b) ||
	       modify_qp_to_rts(&a) || modify_qp_to_rts(&b);
}

static int open_both(uint32_t depth)
{
	struct rdma_config ours =
		remote_reader_config("rxe0", GID_INDEX_AUTO, depth);
	const struct rdma_config node = { .device_name = "rxe1",
					  .gid_index = GID_INDEX_AUTO,
					  .msg_size = ROOM,
					  .send_slots = 1,
					  .recv_slots = 1 };

	if (init_rdma_resources(&a, &ours) || init_rdma_resources(&b, &node) ||
	    modify_qp_to_init(&a) || modify_qp_to_init(&b) || connect_both())
		return 1;
	local = calloc(1, ROOM);
	mr = ibv_reg_mr(a.pd, local, ROOM, IBV_ACCESS_LOCAL_WRITE);
	for (uint32_t i = 0; i < ROOM; i++)
		b.buf[i] = (char)(i * 31 + i / 256);
	return !mr || remote_reader_open(&reader, &a, CHUNK);
}

static void close_both(void)
{
	remote_reader_close(&reader);
	destroy_rdma_resources(&b);
	modify_qp_to_reset(&a);
	ibv_dereg_mr(mr);
	destroy_rdma_resources(&a);
	free(local);
}

/* 到 @w 完成、reader 坏了或时间到了为止；返回 remote_reader_poll() 的话。*/
static int await_read(const struct watched *w, uint32_t *most)
{
	const int64_t deadline = deadline_in_ms(WAIT_MS);
	struct pollfd fd = { .fd = a.channel->fd, .events = POLLIN };
	int rc = 0;

	while (!rc && !w->dones && !deadline_passed(deadline)) {
		if (most && reader.in_flight > *most)
			*most = reader.in_flight;
		if (poll(&fd, 1, 100) == 1)
			rc = remote_reader_poll(&reader);
	}
	return rc;
}

static void tell(const char *name, const struct watched *w)
{
	uint64_t at = w->remote.local ? (uint64_t)(w->remote.local - local) : 0;

	printf("%s status %d dones %d arrived %ju disorder %d right %d\n", name,
	       w->status, w->dones, w->arrived, w->disorder,
	       !memcmp(local + at, b.buf + at, w->remote.size));
}

static void one(void)
{
	struct watched w = new_read(1, 0, CHUNK + 904);

	remote_reader_submit(&reader, &w.remote);
	await_read(&w, NULL);
	tell("one", &w);
}

static void many(void)
{
	struct watched w = new_read(1, 0, 40 * CHUNK);
	uint32_t most = 0;

	remote_reader_submit(&reader, &w.remote);
	await_read(&w, &most);
	tell("many", &w);
	printf("most %u left %u\n", most, reader.in_flight);
}

static void turns(void)
{
	struct watched w[3] = { new_read(1, 0, 8 * CHUNK),
				new_read(2, 8 * CHUNK, CHUNK),
				new_read(3, 9 * CHUNK, 100) };

	for (int i = 0; i < 3; i++)
		remote_reader_submit(&reader, &w[i].remote);
	for (int i = 0; i < 3; i++)
		await_read(&w[i], NULL);
	for (int i = 0; i < 3; i++)
		tell("turn", &w[i]);
	printf("order%s\n", order);
}

/* 一个不是它 post 的 READ 先回来。*/
static void stranger(void)
{
	struct ibv_sge into = { (uintptr_t)local + ROOM / 2, 64, mr->lkey };
	struct watched w = new_read(1, 0, CHUNK);
	int rc = post_read(&a, 4000 * reader.depth, &into, (uintptr_t)b.buf,
			   b.mr->rkey);

	remote_reader_submit(&reader, &w.remote);
	rc = rc ? rc : await_read(&w, NULL);
	printf("poll %d done-before %d\n", rc, w.dones);
	remote_reader_abort(&reader);
	tell("stranger", &w);
}

static void tell_state(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init);
	printf("state %d\n", attr.qp_state);
}

static void bad_key(void)
{
	struct watched w[2] = { new_read(1, 0, CHUNK),
				new_read(2, CHUNK, 3 * CHUNK) };
	int rc;

	w[0].remote.rkey ^= 0xff00;
	remote_reader_submit(&reader, &w[0].remote);
	remote_reader_submit(&reader, &w[1].remote);
	rc = await_read(&w[1], NULL);
	printf("poll %d broken %d\n", rc, remote_reader_is_broken(&reader));
	remote_reader_abort(&reader);
	tell_state();
	printf("first %d second %d dones %d %d broken %d\n", w[0].status,
	       w[1].status, w[0].dones, w[1].dones,
	       remote_reader_is_broken(&reader));
	/* 从 RESET 再连一次，一切照旧。*/
	modify_qp_to_error(&b);
	modify_qp_to_reset(&b);
	if (modify_qp_to_init(&a) || modify_qp_to_init(&b) || connect_both() ||
	    arm_cq(&a))
		return;
	w[0] = new_read(3, 0, 2 * CHUNK);
	remote_reader_submit(&reader, &w[0].remote);
	await_read(&w[0], NULL);
	tell("again", &w[0]);
}

static void cancel(void)
{
	struct watched w[2] = { new_read(1, 0, 12 * CHUNK),
				new_read(2, 12 * CHUNK, CHUNK) };
	bool at_once;

	remote_reader_submit(&reader, &w[0].remote);
	remote_reader_submit(&reader, &w[1].remote);
	remote_reader_cancel(&reader, &w[1].remote); /* nothing of it posted */
	at_once = w[1].dones == 1;
	remote_reader_cancel(&reader, &w[0].remote);
	printf("before: queued %d under-way %d\n", at_once, w[0].dones);
	await_read(&w[0], NULL);
	printf("after: %d %d dones %d %d arrived %ju in-flight %u\n",
	       w[0].status, w[1].status, w[0].dones, w[1].dones, w[0].arrived,
	       reader.in_flight);
}

int main(int argc, char *argv[])
{
	static const struct {
		const char *name;
		void (*play)(void);
		uint32_t depth;
	} cases[] = { { "one", one, 0 },	 { "many", many, 4 },
		      { "turns", turns, 2 },	 { "stranger", stranger, 4 },
		      { "bad-key", bad_key, 4 }, { "cancel", cancel, 2 },
		      { "no-depth", many, 1 },	 { NULL, NULL, 0 } };

	for (size_t i = 0; argc > 1 && cases[i].name; i++) {
		if (strcmp(cases[i].name, argv[1]))
			continue;
		if (open_both(cases[i].depth))
			return 3;
		setlinebuf(stdout);
		cases[i].play();
		close_both();
		return 0;
	}
	return 2;
}
