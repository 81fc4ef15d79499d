// SPDX-License-Identifier: MIT
/* Right, in another hand: poll(2), read(2) and write(2), bytes put by hand. */
#include "base/deadline.h"
#include "rdma_common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int all_of(int sock, char *data, size_t size, short event,
		  int64_t deadline, const char *what)
{
	struct pollfd fd = { .fd = sock, .events = event };
	size_t done = 0;
	ssize_t n;

	while (done < size) {
		if (stop_requested())
			return wait_failed(-EINTR, "%s", what);
		if (deadline_passed(deadline))
			return wait_failed(-ETIMEDOUT, "%s", what);
		if (poll(&fd, 1, 50) <= 0)
			continue;
		n = event == POLLIN ? read(sock, data + done, size - done)
				    : send(sock, data + done, size - done,
					   MSG_NOSIGNAL);
		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return wait_failed(-ECONNRESET, "%s", what);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return wait_failed(-errno, "%s", what);
		if (n > 0)
			done += (size_t)n;
	}
	return 0;
}

int sock_sync_data(int sock, size_t size, const void *local, void *remote,
		   int64_t deadline, const char *what)
{
	int rc = all_of(sock, (char *)(uintptr_t)local, size, POLLOUT, deadline,
			what);

	if (rc == 0)
		rc = all_of(sock, remote, size, POLLIN, deadline, what);
	return rc;
}

int sock_sync_step(int sock, enum sync_step step, int status, int64_t deadline)
{
	uint32_t words[3] = { htonl(SYNC_MAGIC), htonl((uint32_t)step),
			      htonl((uint32_t)(status ? -status : 0)) };
	struct sync_msg theirs;
	int rc;

	if (status) {
		if (send(sock, words, sizeof(words),
			 MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			return status;
		return status;
	}
	rc = sock_sync_data(sock, sizeof(theirs), words, &theirs, deadline,
			    "sync");
	if (rc)
		return rc;
	return check_sync(&theirs, step);
}

struct cm_con_data_t cm_con_data_of(const struct rdma_resources *res)
{
	struct cm_con_data_t d;

	memset(&d, 0, sizeof(d));
	d.qp_num = res->qp->qp_num;
	d.lid = res->port_attr.lid;
	memcpy(d.gid, &res->gid, 16);
	d.psn = res->psn;
	d.active_mtu = (uint8_t)res->port_attr.active_mtu;
	d.addr = (uint64_t)(uintptr_t)res->buf;
	d.size = res->msg_size;
	if (res->mr)
		d.rkey = res->mr->rkey;
	return d;
}

static uint64_t turn64(uint64_t x)
{
	const union {
		uint16_t whole;
		uint8_t first;
	} order = { 1 };

	return order.first ? __builtin_bswap64(x) : x;
}

struct cm_con_data_t cm_con_data_to_wire(struct cm_con_data_t d)
{
	d.qp_num = htonl(d.qp_num);
	d.psn = htonl(d.psn);
	d.rkey = htonl(d.rkey);
	d.size = htonl(d.size);
	d.lid = htons(d.lid);
	d.addr = turn64(d.addr);
	return d;
}

int exchange_cm_con_data(struct rdma_resources *res, int sock, int64_t deadline)
{
	struct {
		struct hello hello;
		struct cm_con_data_t data;
	} __attribute__((packed)) out;
	struct hello hello;
	struct cm_con_data_t data;
	int rc;

	out.hello.magic = htonl(HELLO_MAGIC);
	out.hello.version = htons(HELLO_VERSION);
	out.hello.length = htons(sizeof(data));
	out.data = cm_con_data_to_wire(cm_con_data_of(res));
	/* Both at once: what the peer reads is the same. */
	rc = all_of(sock, (char *)&out, sizeof(out), POLLOUT, deadline,
		    "hello");
	if (rc == 0)
		rc = all_of(sock, (char *)&hello, sizeof(hello), POLLIN,
			    deadline, "hello");
	if (rc == 0)
		rc = check_hello(&hello);
	if (rc == 0)
		rc = all_of(sock, (char *)&data, sizeof(data), POLLIN, deadline,
			    "data");
	if (rc)
		return rc;
	data = cm_con_data_to_wire(data);
	rc = check_cm_con_data(&data);
	if (rc == 0)
		res->remote = data;
	return rc;
}

int connect_qp(struct rdma_resources *res, int sock, int64_t deadline)
{
	int rc = exchange_cm_con_data(res, sock, deadline);

	if (rc)
		return rc;
	if ((rc = modify_qp_to_rtr(res)) == 0)
		rc = modify_qp_to_rts(res);
	return sock_sync_step(sock, SYNC_READY, rc, deadline);
}
