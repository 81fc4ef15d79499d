// SPDX-License-Identifier: MIT
/*
 * hollow.c —— 没有设备也能用的 verbs，与用它的程序：记录文件的坏情形，一秒钟几百万个消息
 *
 * 编译两次。带 -DDEVICE 是一个 preload，排在记录器后面：它的设备什么也不送，每个 post 立刻有
 * completion。不带的是程序：
 *
 *	hollow N [THREADS]     每个线程 N 个消息（0：一直发到被杀），各用一个 QP
 *	hollow N close         发完关掉所有 fd，占住它们的号码，再发
 *	hollow N fork          一个线程一直发，另一个 fork 20 次；孩子各发 N 个
 *	hollow N exec          发完 exec 自己，再来一次
 */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef DEVICE

#define NEW(type) ((type *)calloc(1, sizeof(type)))

struct cq {
	struct ibv_cq cq;
	_Atomic unsigned int ready;
	unsigned int qpn;
};

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	(void)wr;
	(void)bad;
	((struct cq *)qp->send_cq)->ready++;
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc)
{
	struct cq *mine = (struct cq *)cq;

	if (!mine->ready || num < 1)
		return 0;
	mine->ready--;
	*wc = (struct ibv_wc){ .qp_num = mine->qpn,
			       .wr_id = 1,
			       .opcode = IBV_WC_SEND };
	return 1;
}

static struct ibv_device device = { .name = "hollow0" };

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	if (count)
		*count = 1;
	list[0] = &device;
	return list;
}

struct ibv_context *ibv_open_device(struct ibv_device *which)
{
	struct ibv_context *context = NEW(struct ibv_context);

	context->device = which;
	context->ops.post_send = post_send;
	context->ops.poll_cq = poll_cq;
	return context;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	memset(attr, 0, sizeof(*attr));
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = NEW(struct ibv_pd);

	pd->context = context;
	return pd;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *user,
			     struct ibv_comp_channel *channel, int vector)
{
	struct cq *cq = NEW(struct cq);

	(void)user;
	(void)vector;
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cqe = cqe;
	return &cq->cq;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	static _Atomic unsigned int last = 16;
	struct ibv_qp *qp = NEW(struct ibv_qp);

	qp->context = pd->context;
	qp->pd = pd;
	qp->send_cq = init->send_cq;
	qp->recv_cq = init->recv_cq;
	qp->qp_type = init->qp_type;
	qp->qp_num = ((struct cq *)init->send_cq)->qpn = ++last;
	return qp;
}

#else

static struct ibv_pd *pd;
static unsigned long messages;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void *talk(void *unused)
{
	struct ibv_cq *cq = ibv_create_cq(pd->context, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .send_cq = cq,
					 .recv_cq = cq };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_send_wr *bad, wr = { .wr_id = 1,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc wc;

	for (unsigned long i = 0; !messages || i < messages; i++) {
		must(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
		must(ibv_poll_cq(cq, 1, &wc) == 1, "ibv_poll_cq");
	}
	return unused;
}

static void talk_in(int threads)
{
	pthread_t thread[64];

	for (int i = 0; i < threads; i++)
		must(!pthread_create(&thread[i], NULL, talk, NULL), "a thread");
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
}

static void close_all(void)
{
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	open("/proc/self/exe", O_RDONLY);
	for (int fd = 4; fd < 1024; fd++)
		must(dup2(3, fd) == fd, "dup2");
}

static void fork_many(void)
{
	const unsigned long each = messages;
	pthread_t thread;
	int status;

	messages = 0;
	must(!pthread_create(&thread, NULL, talk, NULL), "a thread");
	for (int i = 0; i < 20; i++) {
		usleep(3000);
		if (!fork()) {
			messages = each;
			talk(NULL);
			exit(0);
		}
		must(wait(&status) > 0 && !status, "child");
	}
	exit(0);
}

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? argv[2] : "1";

	messages = strtoul(argv[1], NULL, 10);
	pd = ibv_alloc_pd(ibv_open_device(*ibv_get_device_list(NULL)));
	if (!strcmp(how, "fork"))
		fork_many();
	talk_in(atoi(how) ? atoi(how) : 1);
	if (!strcmp(how, "close")) {
		close_all();
		talk(NULL);
	}
	if (!strcmp(how, "exec"))
		execl("/proc/self/exe", argv[0], argv[1], NULL);
	return 0;
}

#endif
