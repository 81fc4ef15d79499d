// SPDX-License-Identifier: MIT
/*
 * ucx_peer.c —— UCX 上的坏对端：说谎、说一半、不说、说着说着死掉
 *
 *	ucx_peer client IP PORT WHAT      连过去，做一件坏事
 *	ucx_peer server PORT WHAT         等一个 client，对它做一件坏事
 *
 * 用的是 common/ 里的零件，只是次序和内容故意不对。做完坏事之后一直等到对方断开
 * （最多 20 秒）：对方应当自己断开，而不是跟着一起挂住。退出码：0 对方断开了；1 没有，
 * 或没能走到那一步；SIGKILL：坏事就是死。
 */
#include "base/deadline.h"
#include "base/report.h"
#include "ucx/endpoint.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_MS 20000
#define NOT_MINE 3

static const struct ucx_limits limits = {
	.info_ms = LIMIT_MS,
	.idle_ms = LIMIT_MS,
	.timeout_ms = LIMIT_MS,
	.max_object = 1u << 30,
};

static char junk[1u << 20];

static bool is(const char *what, const char *name)
{
	return !strcmp(what, name);
}

/* 等对方断开。*/
static int outlive(struct ucx_endpoint *ep)
{
	int64_t deadline = deadline_in_ms(LIMIT_MS);

	while (ep->lost == UCS_OK && !ucx_pause(ep, deadline))
		;
	if (ep->lost != UCS_OK)
		return 0;
	fprintf(stderr, "ucx_peer: the other side is still there\n");
	return 1;
}

static int say(struct ucx_endpoint *ep, const void *data, size_t size)
{
	int rc = ucx_post_send(ep, data, size, "bad");

	return rc ? rc : ucx_sent(ep, deadline_in_ms(LIMIT_MS), "badness");
}

static int say_length(struct ucx_endpoint *ep, uint64_t length, size_t size)
{
	uint64_t message[2] = { length, length };

	return say(ep, message, size);
}

static int order(struct ucx_endpoint *ep, uint64_t opcode, uint64_t count)
{
	ep->ctrl_out = (struct ucx_ctrl_msg){ opcode, count };
	return ucx_post_ctrl_send(ep);
}

/* ---- peer info ---------------------------------------------------------- */

/* NOT_MINE：这件坏事不在 peer info 里。*/
static int bad_info(struct ucx_endpoint *ep, const char *what)
{
	int64_t deadline = deadline_in_ms(LIMIT_MS);
	size_t size = sizeof(ep->info_out), got;
	int rc;

	if (!is(what, "wrong-checksum") && !is(what, "short-info") &&
	    !is(what, "die-before-info"))
		return NOT_MINE;
	rc = ucx_generate_tags(ep->ep, &ep->info_out);
	if (!rc && !ep->listener)
		rc = ucx_stream_recv(ep, &ep->info_in, size, &got, deadline,
				     "info");
	if (is(what, "die-before-info"))
		raise(SIGKILL);
	if (is(what, "wrong-checksum"))
		ep->info_out.checksum ^= 1;
	if (is(what, "short-info"))
		size--;
	if (!rc)
		rc = ucx_stream_send(ep, &ep->info_out, size, deadline, "info");
	return rc ? rc : outlive(ep);
}

/* ---- client ------------------------------------------------------------- */

/*
 * tag 没有人要的消息：小的直接到（eager）；大的先来一个通知（rendezvous），对方丢掉它才算发完。
 * 正丢着就断开的话，UCX 1.18 有时不还那个 request，所以等它。然后说要来 16 字节，来的却长。
 */
static int flood(struct ucx_endpoint *ep)
{
	const ucp_tag_t wanted = ep->msg_tag_send;
	int rc = 0;

	ep->msg_tag_send ^= 1;
	for (int i = 0; i < 203 && !rc; i++)
		rc = say(ep, junk, i < 200 ? 100 : sizeof(junk));
	ep->msg_tag_send = wanted;
	if (!rc)
		rc = say_length(ep, 16, sizeof(uint64_t));
	for (int i = 0; i < 100 && !rc; i++)
		rc = say(ep, junk, 100);
	return rc;
}

/* 一个对象来回，然后说：你收满 @count 条就关。收满的是两条。*/
static int close_after(struct ucx_endpoint *ep, uint64_t count)
{
	uint64_t size;
	void *echo;
	int rc = send_obj(ep, junk, 12);

	if (!rc)
		rc = recv_obj(ep, &echo, &size);
	if (!rc && !count)
		rc = raise(SIGKILL);
	return rc ? rc : order(ep, UCX_CTRL_CLOSE, count);
}

static int bad_client(struct ucx_endpoint *ep, const char *what)
{
	int rc = 0;

	if (is(what, "huge-length"))
		rc = say_length(ep, UINT64_C(1) << 63, sizeof(uint64_t));
	else if (is(what, "short-length"))
		rc = say_length(ep, 4, 4);
	else if (is(what, "long-length"))
		rc = say_length(ep, 16, 16);
	else if (is(what, "short-object"))
		rc = say_length(ep, 100, sizeof(uint64_t)) || say(ep, junk, 99);
	else if (is(what, "long-object"))
		rc = say_length(ep, 100, sizeof(uint64_t)) ||
		     say(ep, junk, 101);
	else if (is(what, "die-after-length"))
		rc = say_length(ep, 12, sizeof(uint64_t)) || raise(SIGKILL);
	else if (is(what, "die-after-info"))
		rc = raise(SIGKILL);
	else if (is(what, "bad-opcode"))
		rc = order(ep, 7, 0);
	else if (is(what, "no-close"))
		rc = close_after(ep, 0);
	else if (is(what, "low-close-count"))
		rc = close_after(ep, 1);
	else if (is(what, "high-close-count"))
		rc = close_after(ep, 3);
	else if (is(what, "flood"))
		rc = flood(ep);
	else if (!is(what, "idle"))
		rc = 2;
	/* 坏事做到一半就被断开，也算断开了。*/
	return rc && ep->lost == UCS_OK ? rc : outlive(ep);
}

static int client(struct ucx_worker *w, const char *ip, const char *port,
		  const char *what)
{
	struct ucx_endpoint *ep;
	int rc = connect_endpoint(w, ip, (uint16_t)atoi(port), &limits,
				  deadline_in_ms(LIMIT_MS), &ep);

	if (rc)
		return rc;
	rc = bad_info(ep, what);
	if (rc == NOT_MINE && !create_endpoint(ep))
		rc = bad_client(ep, what);
	close_endpoint(ep, -EPIPE);
	return rc;
}

/* ---- server ------------------------------------------------------------- */

static int bad_server(struct ucx_endpoint *ep, const char *what)
{
	uint64_t size;
	char *obj;
	int rc = recv_obj(ep, (void **)&obj, &size);

	if (rc)
		return rc;
	if (is(what, "wrong-byte"))
		obj[size - 1] ^= 1;
	if (is(what, "die-before-echo"))
		raise(SIGKILL);
	if (is(what, "close-before-echo"))
		rc = order(ep, UCX_CTRL_CLOSE, ep->send_count);
	else if (is(what, "huge-length"))
		rc = say_length(ep, UINT64_C(1) << 63, sizeof(uint64_t));
	else if (is(what, "wrong-size"))
		rc = send_obj(ep, obj, size - 1);
	else if (is(what, "wrong-byte") || is(what, "echo"))
		rc = send_obj(ep, obj, size);
	else if (!is(what, "silent"))
		rc = 2;
	return rc ? rc : outlive(ep);
}

static void on_request(ucp_conn_request_h request, void *arg)
{
	*(ucp_conn_request_h *)arg = request;
}

static int server(struct ucx_worker *w, const char *port, const char *what)
{
	int64_t deadline = deadline_in_ms(LIMIT_MS);
	ucp_conn_request_h request = NULL;
	struct ucx_endpoint *ep;
	ucp_listener_h listener;
	int rc = create_listener(w, (uint16_t)atoi(port), on_request, &request,
				 &listener);

	if (rc)
		return rc;
	while (!request && !rc)
		rc = ucx_progress(w, deadline);
	if (!rc)
		rc = accept_endpoint(w, request, &limits, NULL, &ep);
	if (!rc) {
		rc = bad_info(ep, what);
		if (rc == NOT_MINE && !create_endpoint(ep))
			rc = bad_server(ep, what);
		close_endpoint(ep, -EPIPE);
	}
	ucp_listener_destroy(listener);
	return rc;
}

int main(int argc, char *argv[])
{
	struct ucx_worker worker = { 0 };
	bool serves = argc == 4 && is(argv[1], "server");
	int rc;

	if (!serves && (argc != 5 || !is(argv[1], "client")))
		return 2;
	catch_stop_signals();
	rc = ucx_open(&worker, false);
	if (rc)
		return 1;
	rc = serves ? server(&worker, argv[2], argv[3])
		    : client(&worker, argv[2], argv[3], argv[4]);
	ucx_close(&worker);
	return rc < 0 ? 1 : rc;
}
