// SPDX-License-Identifier: MIT
/*
 * cm_stranger.c —— 练习 11 的另一个 server：只用 librdmacm，不认识这个项目
 *
 *	cm_stranger PORT echo|long|slow N   接受，把 private data 原样还回去；收到的 N 条
 *	                                    消息也还回去，然后断开。long：后面再跟 156 个
 *	                                    字节；slow：600 ms 之后才接受
 *	cm_stranger PORT foreign|die|silent 接受，什么也不说；接受了就被杀；不答
 *	cm_stranger PORT reject TEXT        拒绝，TEXT（十六进制）是它的 private data
 *
 * 它把 REQ 里的东西打印出来，每样一行，给 exercise.sh 看。
 */
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	RECEIVES = 8,
	SIZE = 8192,
	REQ_DATA = 56,
	REP_DATA = 196,
	OURS = 40
};

static struct rdma_event_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char buffer[RECEIVES][SIZE];

static void must(int bad, const char *what)
{
	if (!bad)
		return;
	perror(what);
	exit(1);
}

/* 只认这一种；别的都算失败。*/
static struct rdma_cm_event *await(enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;

	must(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	if (event->event != wanted) {
		fprintf(stderr, "%s\n", rdma_event_str(event->event));
		exit(1);
	}
	return event;
}

static void acknowledged(enum rdma_cm_event_type wanted)
{
	rdma_ack_cm_event(await(wanted));
}

static void say_request(const struct rdma_conn_param *param)
{
	const unsigned char *data = param->private_data;

	printf("retries %u %u\nreads %u %u\nprivate ", param->retry_count,
	       param->rnr_retry_count, param->responder_resources,
	       param->initiator_depth);
	for (int i = 0; i < REQ_DATA; i++)
		printf("%02x", data[i]);
	printf("\n");
	fflush(stdout);
}

static void post(struct rdma_cm_id *id, uint64_t slot)
{
	struct ibv_sge sge = { (uintptr_t)buffer[slot], SIZE, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot,
				  .sg_list = &sge,
				  .num_sge = 1 },
			   *bad;

	must(ibv_post_recv(id->qp, &wr, &bad), "ibv_post_recv");
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { RECEIVES, RECEIVES, 1, 1 } };

	cq = ibv_create_cq(id->verbs, 2 * RECEIVES, NULL, NULL, 0);
	must(!pd || !cq, "ibv_alloc_pd, ibv_create_cq");
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	must(!mr, "ibv_reg_mr");
	init.send_cq = init.recv_cq = cq;
	must(rdma_create_qp(id, pd, &init), "rdma_create_qp");
	for (int i = 0; i < RECEIVES; i++)
		post(id, i);
}

static struct ibv_wc completion(void)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		;
	must(wc.status, ibv_wc_status_str(wc.status));
	return wc;
}

static void echo(struct rdma_cm_id *id)
{
	struct ibv_wc wc = completion();
	struct ibv_sge sge = { (uintptr_t)buffer[wc.wr_id], wc.byte_len,
			       mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	must(ibv_post_send(id->qp, &wr, &bad), "ibv_post_send");
	completion();
	post(id, wc.wr_id);
}

/* 对端先断，或者（messages 不是 0）由它先断。*/
static void serve(struct rdma_cm_id *id, const char *how, int messages,
		  struct rdma_conn_param param)
{
	if (!strcmp(how, "slow"))
		usleep(600000);
	must(rdma_accept(id, &param), "rdma_accept");
	acknowledged(RDMA_CM_EVENT_ESTABLISHED);
	printf("qpn %u\n", id->qp->qp_num);
	fflush(stdout);
	if (!strcmp(how, "die"))
		raise(SIGKILL);
	for (int i = 0; i < messages; i++)
		echo(id);
	if (messages)
		must(rdma_disconnect(id), "rdma_disconnect");
	acknowledged(RDMA_CM_EVENT_DISCONNECTED);
	if (!messages)
		must(rdma_disconnect(id), "rdma_disconnect");
}

static void reject(struct rdma_cm_id *id, const char *hex)
{
	unsigned char data[64];
	unsigned int n = 0;

	for (; n < sizeof(data) && sscanf(hex + n * 2, "%2hhx", data + n) == 1;)
		n++;
	must(rdma_reject(id, data, n), "rdma_reject");
}

int main(int argc, char *argv[])
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	char data[REP_DATA];
	struct rdma_conn_param param = { .private_data = data,
					 .responder_resources = 1,
					 .initiator_depth = 1,
					 .rnr_retry_count = 7 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (argc < 3)
		return 2;
	alarm(20);
	any.sin6_port = htons(atoi(argv[1]));
	channel = rdma_create_event_channel();
	must(!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
		     rdma_bind_addr(id, (struct sockaddr *)&any) ||
		     rdma_listen(id, 4),
	     "rdma_listen");
	event = await(RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	say_request(&event->param.conn);
	memset(data, 0xa5, sizeof(data));
	memcpy(data, event->param.conn.private_data, OURS);
	rdma_ack_cm_event(event);
	if (!strcmp(argv[2], "silent"))
		return pause();
	if (!strcmp(argv[2], "reject")) {
		reject(id, argc > 3 ? argv[3] : "");
		return 0;
	}
	param.private_data_len = strcmp(argv[2], "long") ? OURS : REP_DATA;
	if (!strcmp(argv[2], "foreign"))
		param.private_data_len = 0;
	make_qp(id);
	serve(id, argv[2], argc > 3 ? atoi(argv[3]) : 0, param);
	return 0;
}
