// SPDX-License-Identifier: MIT
/*
 * ud_discover.c —— 谁在？用 UD 多播来问，再建一条 RC 连接，全程没有 TCP
 *
 *	client                                      server
 *	WHO      ──> 多播组，或一个 ADDRESS/QPN
 *	         <── 单播：名字、GID、QPN           HERE
 *	CONNECT  ──> RC QP 的 cm_con_data_t         建 RC QP，到 RTS，receive 已经 post
 *	         <── 它的 cm_con_data_t             ACCEPT
 *	RC SEND  ──>
 *	         <──                                RC SEND
 *
 * datagram 会丢，所以问的人每 REPEAT_MS 再问一次；答的人对同一个 CONNECT 总给同一个
 * 答复，问几次都只有一条连接。
 */
#include "ud_notes.h"

#include "base/arguments.h"
#include "base/deadline.h"
#include "base/report.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PEERS	  64
#define EVERYBODY GROUP "/16777215" /* MULTICAST_QPN */

struct discover {
	struct notes notes;
	const char *device, *text;
	uint32_t gid_index, wait_ms;
	struct cm_con_data_t peers[PEERS];
	uint32_t found;
};

/* ---- server ------------------------------------------------------------------ */

// region accept
/* 一张 note：答复它。做不到的（没人应的 GID 之类）已经报告，是它的过错：接着服务。*/
static void answer(struct notes *n, const struct ibv_wc *wc, int64_t *until)
{
	const struct cm_con_data_t *peer = &n->last.data, *mine = &n->rc.remote;
	bool same = !memcmp(mine, peer, sizeof(*mine));
	int rc = 0;

	if (n->last.kind == WHO)
		notes_answer(n, wc, HERE, &n->ud);
	/*
	 * 正忙着别人的：不答，他会再问。同一个又来问，是上一个 ACCEPT 丢了；已经和他谈
	 * 完，便是迟到的。
	 */
	if (n->last.kind != CONNECT || same != !!n->rc.qp)
		return;
	if (!same) {
		*until = deadline_in_ms(PATIENCE_MS);
		rc = rc_open(n);
		if (!rc)
			rc = rc_connect(n, peer);
	}
	if (rc || notes_answer(n, wc, ACCEPT, &n->rc))
		rc_close(n);
}
// endregion accept

/* RC QP 的 completion：听一句，回一句；回完了，或者出错，就拆。*/
static int talk(struct notes *n, const struct ibv_wc *wc, const char *text)
{
	char heard[256];

	if (wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RECV) {
		report_fact("RC, QP %u: \"%s\"", wc->qp_num,
			    rc_heard(n, wc, heard, sizeof(heard)));
		return rc_say(n, text);
	}
	rc_close(n);
	return 0;
}

static int serve(struct discover *d)
{
	struct notes *n = &d->notes;
	struct ibv_wc wc;
	int64_t until = 0;
	int rc = notes_join(n);

	report_step("wait for WHO at %s and QP %u", GROUP, n->ud.qp->qp_num);
	expect_stop();
	while (rc >= 0) {
		rc = notes_next(n, &wc, n->rc.qp ? until : INT64_MAX);
		if (rc == -ETIMEDOUT) {
			rc_close(n); /* 它死了，或者不说话 */
			rc = 0;
		} else if (rc == 1) {
			answer(n, &wc, &until);
			rc = post_receive(&n->ud, WR_ID_SLOT(wc.wr_id));
		} else if (rc == 2) {
			rc = talk(n, &wc, d->text);
		}
	}
	return rc == -EINTR ? 0 : rc;
}

/* ---- client ------------------------------------------------------------------ */

/* 重复问，就重复答：同一个只记一次。*/
static void add_peer(struct discover *d, const struct ibv_wc *wc)
{
	const struct note *note = &d->notes.last;
	char gid[GID_TEXT_SIZE], name[256];

	for (uint32_t i = 0; i < d->found; i++)
		if (!memcmp(&d->peers[i], &note->data, sizeof(note->data)))
			return;
	if (d->found == PEERS)
		return;
	d->peers[d->found++] = note->data;
	report_result("%s: GID %s, UD QP %u",
		      printable_text(name, sizeof(name), note->name,
				     sizeof(note->name)),
		      gid_text(gid, note->data.gid), wc->src_qp);
}

/* 一张 note：HERE，记下；@peer 的 ACCEPT，连上，说一句。*/
static int take(struct discover *d, const struct ibv_wc *wc,
		const struct cm_con_data_t *peer)
{
	struct notes *n = &d->notes;
	const struct cm_con_data_t *data = &n->last.data;
	int rc = 0;

	if (n->last.kind == HERE && !peer)
		add_peer(d, wc);
	if (n->last.kind == ACCEPT && peer && !n->rc.remote.qp_num &&
	    !memcmp(data->gid, peer->gid, sizeof(data->gid))) {
		rc = rc_connect(n, data);
		if (!rc)
			rc = rc_say(n, d->text);
	}
	return rc ? rc : post_receive(&n->ud, WR_ID_SLOT(wc->wr_id));
}

/* REPEAT_MS 之后返回 0，好再问；1：RC 那一句有了回音。*/
static int hear(struct discover *d, const struct cm_con_data_t *peer)
{
	const int64_t deadline = deadline_in_ms(REPEAT_MS);
	struct ibv_wc wc;
	char text[256];
	int rc;

	while ((rc = notes_next(&d->notes, &wc, deadline)) >= 0) {
		if (rc == 1)
			rc = take(d, &wc, peer);
		if (rc < 0)
			return rc;
		if (rc == 2 && wc.status)
			return fail(-EIO, NULL, "the RC QP failed: %s",
				    wc_status_name(wc.status));
		if (rc == 2 && wc.opcode == IBV_WC_RECV) {
			report_result("RC, QP %u: \"%s\"", wc.qp_num,
				      rc_heard(&d->notes, &wc, text,
					       sizeof(text)));
			return 1;
		}
	}
	return rc == -ETIMEDOUT ? 0 : rc;
}

/*
 * ADDRESS/QPN。QPN 由设备分配，事先没有人知道；众所周知的只有 QP 1（CM 用它），那是内
 * 核的。所以不用多播，就得从别处得知 QPN。
 */
static bool parse_target(const char *target, union ibv_gid *gid, uint32_t *qpn)
{
	char name[64];

	*gid = (union ibv_gid){ .raw = { [10] = 0xff, [11] = 0xff } };
	return sscanf(target, "%63[^/]/%u", name, qpn) == 2 &&
	       (inet_pton(AF_INET, name, gid->raw + 12) == 1 ||
		inet_pton(AF_INET6, name, gid->raw) == 1);
}

/* 一个没人应的地址（已报告）不妨碍别的。*/
static void ask(struct discover *d, const char *target)
{
	union ibv_gid gid;
	uint32_t qpn;

	if (parse_target(target, &gid, &qpn))
		notes_send(&d->notes, gid.raw, qpn, WHO, &d->notes.ud);
}

static int meet(struct discover *d, const struct cm_con_data_t *peer)
{
	const int64_t deadline = deadline_in_ms(2 * PATIENCE_MS);
	struct notes *n = &d->notes;
	int rc = rc_open(n);

	while (!rc && !deadline_passed(deadline)) {
		if (!n->rc.remote.qp_num)
			rc = notes_send(n, peer->gid, peer->qp_num, CONNECT,
					&n->rc);
		if (!rc)
			rc = hear(d, peer);
	}
	rc_close(n);
	if (!rc)
		return fail(-ETIMEDOUT, NULL, "QP %u no longer answers",
			    peer->qp_num);
	return rc == 1 ? 0 : rc;
}

static int discover(struct discover *d, char *targets[])
{
	static char *everybody[] = { EVERYBODY, NULL };
	const int64_t deadline = deadline_in_ms(d->wait_ms);
	int rc = 0;

	report_step("who is there?");
	while (!rc && !deadline_passed(deadline)) {
		for (char **t = *targets ? targets : everybody; *t; t++)
			ask(d, *t);
		rc = hear(d, NULL);
	}
	if (!rc && !d->found)
		return fail(-ENOENT, "start a server, or name ADDRESS/QPN",
			    "nobody answered");
	if (!rc)
		report_step("an RC connection to each, without TCP");
	for (uint32_t i = 0; i < d->found && !rc; i++)
		rc = meet(d, &d->peers[i]);
	return rc;
}

/* ---- 从头到尾 ---------------------------------------------------------------- */

#define USAGE "ud_discover server | client [options] [ADDRESS/QPN ...]"

static int parse(struct discover *d, int *argc, char **argv[])
{
	const struct option_row rows[] = {
		{ 'd', "device", "NAME", "RDMA device (default: the first)",
		  TEXT(d->device) },
		{ 'g', "gid", "INDEX", "GID table slot (default: by type)",
		  NUMBER(d->gid_index, 256, 0, 255) },
		{ 'm', "message", "TEXT", "what to say over RC",
		  TEXT(d->text) },
		{ 't', "wait", "SECS", "client: for answers (default: 1)",
		  SECONDS(d->wait_ms, 1, 1, 3600) },
		{ QUIET("print only results and failures") },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = {
		.next = "usage: " USAGE "; see --help",
		.head = "usage: " USAGE "\n\n"
			"Who is there? Ask a multicast group, or these QPs, "
			"by UD; then make an RC\nconnection to each that "
			"answers, without TCP.\n\n",
		.tail = EXIT_CODES,
		.column = 22,
		.rows = rows,
	};
	union ibv_gid gid;
	uint32_t qpn;
	int rc = take_options(&line, argc, argv);

	if (rc >= 0)
		return rc;
	if (!*argc || (strcmp(**argv, "server") && strcmp(**argv, "client")))
		return wrong_usage(line.next, "say server or client",
				   *argc ? **argv : NULL);
	if (***argv == 's' && *argc > 1)
		return wrong_usage(line.next, "too many arguments", (*argv)[1]);
	for (int i = 1; i < *argc; i++)
		if (!parse_target((*argv)[i], &gid, &qpn))
			return wrong_usage(line.next,
					   "not ADDRESS/QPN, as the server "
					   "says it",
					   (*argv)[i]);
	return -1;
}

int main(int argc, char *argv[])
{
	struct discover d = { .text = "Hello without TCP!",
			      .notes.socket = -1 };
	struct rdma_config config = { 0 };
	int rc = parse(&d, &argc, &argv), undo;

	if (rc >= 0)
		return rc;
	config.device_name = d.device;
	config.gid_index =
		d.gid_index > 255 ? GID_INDEX_AUTO : (int)d.gid_index;
	catch_stop_signals();
	rc = notes_open(&d.notes, &config);
	if (!rc)
		rc = *argv[0] == 's' ? serve(&d) : discover(&d, argv + 1);
	undo = notes_close(&d.notes);
	return rc || undo || report_flush() ? 1 : 0;
}
