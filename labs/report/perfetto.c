// SPDX-License-Identifier: MIT
/*
 * perfetto.c —— 写成 Perfetto 读的样子（ui.perfetto.dev）：每个进程一组，每个 QP 两条轨，一条是
 * send，一条是 receive
 *
 * 一个 WR 是一段，从 post 到 completion。同一条轨上的两段不能交错，而在途的 WR 正是交错的：交错的
 * 放到下一条同名的轨上，Perfetto 把同名的画在一起。对端收到的那一刻是一个点，send 的那一段有箭头
 * 指过去。没有 SIGNALED 的 WR 自己没有 completion，算到了结它的那一个为止。
 *
 * 一次写一个 packet：Trace 只是 packet 的序列，接起来仍是 Trace，所以不必都放在内存里。
 */
#include "parts.h"

#include "base/array.h"
#include "base/report.h"
#include "perfetto.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* 一条轨：到什么时候为止有一段在上面。*/
struct lane {
	int64_t busy;
	uint64_t uuid;
};

struct lanes {
	struct lane *items;
	size_t count;
};

struct drawing {
	const struct report *r;
	FILE *out;
	struct lanes *lanes; /* [QP 的下标 * 2 + 是不是 receive] */
	int64_t *settled; /* QP 的下标：后面的 send 在什么时候完成 */
	uint64_t last;	  /* uuid */
};

static void put(FILE *out, Perfetto__TracePacket *packet)
{
	Perfetto__Trace trace = PERFETTO__TRACE__INIT;
	uint8_t bytes[8192];

	packet->has_trusted_packet_sequence_id = 1;
	packet->trusted_packet_sequence_id = 1;
	trace.n_packet = 1;
	trace.packet = &packet;
	if (perfetto__trace__get_packed_size(&trace) <= sizeof(bytes))
		fwrite(bytes, 1, perfetto__trace__pack(&trace, bytes), out);
}

static uint64_t put_track(struct drawing *d, uint64_t parent, const char *name,
			  Perfetto__ProcessDescriptor *process)
{
	Perfetto__TracePacket packet = PERFETTO__TRACE_PACKET__INIT;
	Perfetto__TrackDescriptor track = PERFETTO__TRACK_DESCRIPTOR__INIT;

	track.has_uuid = 1;
	track.uuid = ++d->last;
	track.name = (char *)name;
	track.process = process;
	track.has_parent_uuid = parent != 0;
	track.parent_uuid = parent;
	packet.track_descriptor = &track;
	put(d->out, &packet);
	return track.uuid;
}

/* @event：NULL 是没有话要说；@flow：0 是没有箭头。*/
static void put_event(struct drawing *d, Perfetto__TrackEvent__Type type,
		      int64_t t, uint64_t track, const char *name,
		      const struct event *event, uint64_t flow)
{
	Perfetto__TracePacket packet = PERFETTO__TRACE_PACKET__INIT;
	Perfetto__TrackEvent out = PERFETTO__TRACK_EVENT__INIT;
	Perfetto__DebugAnnotation note = PERFETTO__DEBUG_ANNOTATION__INIT;
	Perfetto__DebugAnnotation *notes = &note;
	char text[DESCRIBED_SIZE];

	packet.has_timestamp = 1;
	packet.timestamp = (uint64_t)t;
	packet.track_event = &out;
	out.has_type = out.has_track_uuid = 1;
	out.type = type;
	out.track_uuid = track;
	out.name = (char *)name;
	out.n_flow_ids = flow != 0;
	out.flow_ids = &flow;
	if (event) {
		json_decref(event_describe(d->r, event, text));
		note.name = "what";
		note.string_value = text;
		out.n_debug_annotations = 1;
		out.debug_annotations = &notes;
	}
	put(d->out, &packet);
}

/* 空着的一条轨，没有就再开一条。*/
static struct lane *lane_for(struct drawing *d, size_t qp, bool receive,
			     const uint64_t *parents, int64_t t)
{
	struct lanes *lanes = &d->lanes[qp * 2 + receive];
	struct lane *more;

	for (size_t i = 0; i < lanes->count; i++)
		if (lanes->items[i].busy <= t)
			return &lanes->items[i];
	more = array_room(lanes->items, lanes->count, sizeof(*more));
	if (!more)
		return NULL;
	lanes->items = more;
	more += lanes->count++;
	more->uuid =
		put_track(d, parents[qp], receive ? "receives" : "sends", NULL);
	return more;
}

static size_t qp_index(const struct report *r, const struct event *event)
{
	const struct qp *qp = qp_of(r, event->side, event->qp);

	return qp ? (size_t)(qp - r->qps) : r->qp_count;
}

static bool is_post(const struct event *event)
{
	return (event->class == CLASS_POST_SEND ||
		event->class == CLASS_POST_RECV) &&
	       !event->refused;
}

/* 各个 WR 到什么时候为止，从后往前：没有 SIGNALED 的由后面的了结。*/
static int64_t *ends_of(struct drawing *d)
{
	const struct report *r = d->r;
	int64_t *ends = calloc(r->count + 1, sizeof(*ends));

	for (size_t i = r->count; ends && i-- > 0;) {
		const struct event *e = &r->events[i];
		size_t qp = qp_index(r, e);

		ends[i] = r->side[e->side].last;
		if (!is_post(e))
			continue;
		if (e->complete != NOWHERE)
			ends[i] = r->events[e->complete].t;
		else if (e->class == CLASS_POST_SEND && qp < r->qp_count &&
			 d->settled[qp])
			ends[i] = d->settled[qp];
		if (e->class == CLASS_POST_SEND && qp < r->qp_count)
			d->settled[qp] = ends[i];
	}
	return ends;
}

static void put_post(struct drawing *d, size_t i, const uint64_t *parents,
		     int64_t end)
{
	const struct event *e = &d->r->events[i];
	bool receive = e->class == CLASS_POST_RECV;
	size_t qp = qp_index(d->r, e);
	struct lane *lane = lane_for(d, qp, receive, parents, e->t);

	if (!lane)
		return;
	put_event(d, PERFETTO__TRACK_EVENT__TYPE__SLICE_BEGIN, e->t, lane->uuid,
		  receive ? "RECV" : e->op, e,
		  e->arrival != NOWHERE ? e->arrival + 1 : 0);
	put_event(d, PERFETTO__TRACK_EVENT__TYPE__SLICE_END, end, lane->uuid,
		  NULL, NULL, 0);
	lane->busy = end;
}

static void put_tracks(struct drawing *d, uint64_t *processes,
		       uint64_t *parents)
{
	const struct report *r = d->r;
	char name[128];

	for (int s = 0; s < r->sides; s++) {
		Perfetto__ProcessDescriptor process =
			PERFETTO__PROCESS_DESCRIPTOR__INIT;

		process.has_pid = 1;
		process.pid = r->side[s].rec.header.pid;
		process.process_name =
			(char *)text_in(r->side[s].start, "program");
		processes[s] = put_track(d, 0, NULL, &process);
	}
	for (size_t i = 0; i < r->qp_count; i++) {
		snprintf(name, sizeof(name), "QP %ju (%s)",
			 (uintmax_t)r->qps[i].qpn, r->qps[i].dev);
		parents[i] =
			put_track(d, processes[r->qps[i].side], name, NULL);
	}
	/* SRQ 的，以及不知道是哪个 QP 的 */
	parents[r->qp_count] = put_track(d, processes[0], "shared", NULL);
}

static void put_events(struct drawing *d, const uint64_t *processes,
		       const uint64_t *parents, const int64_t *ends)
{
	const struct report *r = d->r;

	/* 箭头指到的点，画在它的 QP 的轨上。*/
	for (size_t i = 0; i < r->count; i++) {
		const struct event *e = &r->events[i];
		const struct event *got;

		if (is_post(e))
			put_post(d, i, parents, ends[i]);
		else if (e->class == CLASS_CONTROL || e->class == CLASS_FAILURE)
			put_event(d, PERFETTO__TRACK_EVENT__TYPE__INSTANT, e->t,
				  processes[e->side], e->ev, e, 0);
		if (!is_post(e) || e->arrival == NOWHERE)
			continue;
		got = &r->events[e->arrival];
		put_event(d, PERFETTO__TRACK_EVENT__TYPE__INSTANT, got->t,
			  parents[qp_index(r, got)], "arrived", got,
			  e->arrival + 1);
	}
}

int report_as_perfetto(const struct report *r, const char *path)
{
	struct drawing d = { .r = r, .out = fopen(path, "w") };
	uint64_t *processes = calloc((size_t)r->sides, sizeof(*processes));
	uint64_t *parents = calloc(r->qp_count + 1, sizeof(*parents));
	int64_t *ends = NULL;

	if (!d.out)
		return fail(-1, "choose another file", "cannot write %s: %s",
			    path, strerror(errno));
	d.lanes = calloc(r->qp_count * 2 + 2, sizeof(*d.lanes));
	d.settled = calloc(r->qp_count + 1, sizeof(*d.settled));
	if (d.lanes && d.settled)
		ends = ends_of(&d);
	if (ends && parents && processes) {
		put_tracks(&d, processes, parents);
		put_events(&d, processes, parents, ends);
	}
	if (fclose(d.out) || !ends || !parents || !processes)
		return fail(-1, "choose another file", "cannot write %s: %s",
			    path, strerror(errno));
	return 0;
}
