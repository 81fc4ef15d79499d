// SPDX-License-Identifier: MIT
/*
 * recording.c —— 读记录器留下的文件（recorder/recording.h），一条一条交出来
 *
 * 文件可以断在任何地方：程序还在跑，磁盘满了，拷贝时被截断，虚拟机里映射的页还没有写回。所以
 * 每一个数都先与手里有的字节比过，才去用它；读不通的一块从那里起不要了，数着。
 */
#include "recording.h"

#include "base/array.h"
#include "base/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BLOCKS (UINT32_C(1) << 24)

/* ---- 字节 ------------------------------------------------------------------ */

/* 读进来，不映射：程序还在写的文件，看过一遍的不该再变。*/
static char *read_all(int fd, size_t room, size_t *size)
{
	char *bytes = malloc(room), *more;
	size_t used = 0;
	ssize_t n;

	while (bytes && (n = read(fd, bytes + used, room - used)) != 0) {
		if (n < 0) {
			free(bytes);
			return NULL;
		}
		used += (size_t)n;
		if (used < room)
			continue;
		more = realloc(bytes, room *= 2);
		if (!more)
			free(bytes);
		bytes = more;
	}
	*size = used;
	return bytes;
}

/* @n 字节，从 @at 起：在文件里，或者（正在写的）在映射里。*/
static bool take(void *to, size_t n, int fd, const char *mapped, size_t at)
{
	if (!mapped)
		return pread(fd, to, n, (off_t)at) == (ssize_t)n;
	memcpy(to, mapped + at, n);
	return true;
}

/* 每块里写了多少，多出来的是零：不去读它们。@bytes 里已经有头。*/
static void take_used(char *bytes, size_t size, int fd, const char *mapped)
{
	const struct recording_header *h = (const void *)bytes;

	for (size_t at = HEADER_SIZE; at + sizeof(struct block) <= size;
	     at += BLOCK_SIZE) {
		struct block *block = (struct block *)(void *)(bytes + at);
		size_t room = size - at < BLOCK_SIZE ? size - at : BLOCK_SIZE;
		uint64_t used;

		if (!take(block, sizeof(*block), fd, mapped, at))
			return;
		used = block->used;
		if (block->kind == BLOCK_RING && used < BLOCK_SIZE)
			used *= h->record_size;
		if (block->kind == BLOCK_FREE || block->kind == BLOCK_THREADS)
			used = 0;
		room -= sizeof(*block);
		take(block + 1, used < room ? used : room, fd, mapped,
		     at + sizeof(*block));
	}
}

/* 我们自己的、现在的样子的文件。否则 NULL，从头读到尾再说。*/
static char *take_ours(size_t size, int fd, const char *mapped)
{
	char *bytes = size > HEADER_SIZE ? calloc(1, size) : NULL;
	const struct recording_header *h = (const void *)bytes;

	if (bytes && take(bytes, HEADER_SIZE, fd, mapped, 0) &&
	    h->version == RECORDING_VERSION && h->endian == RECORDING_ENDIAN &&
	    h->header_size == HEADER_SIZE && h->block_size == BLOCK_SIZE &&
	    h->block_head == sizeof(struct block)) {
		take_used(bytes, size, fd, mapped);
		return bytes;
	}
	free(bytes);
	return NULL;
}

static int load_mapped(struct recording *rec, const char *mapped)
{
	const struct recording_header *h = (const void *)mapped;

	rec->size = HEADER_SIZE + (size_t)h->blocks * BLOCK_SIZE;
	rec->bytes = take_ours(rec->size, -1, mapped);
	return rec->bytes ? 0 : -1;
}

static int load_bytes(struct recording *rec, const char *path,
		      const char *mapped)
{
	int fd = mapped ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	size_t room = 1 << 20;
	struct stat st;

	if (mapped)
		return load_mapped(rec, mapped);
	if (fd < 0)
		return fail(-1, NULL, "cannot open %s: %s", path,
			    strerror(errno));
	if (!fstat(fd, &st) && st.st_size > 0) {
		room = (size_t)st.st_size + 1;
		rec->size = (size_t)st.st_size;
		rec->bytes = take_ours(rec->size, fd, NULL);
	}
	if (!rec->bytes)
		rec->bytes = read_all(fd, room, &rec->size);
	close(fd);
	return rec->bytes ? 0
			  : fail(-1,
				 "give it the files that qptrace has written "
				 "(of a folder: DIR/*.qpt)",
				 "reading %s: %s", path, strerror(errno));
}

/* ---- 头 -------------------------------------------------------------------- */

static int refuse(const char *path, const char *why)
{
	return fail(-1, "give files that labs/qptrace has written",
		    "%s is no recording that can be read: %s", path, why);
}

static int check_header(struct recording *rec, const char *path)
{
	struct recording_header *h = &rec->header;
	char why[128];

	if (rec->size < sizeof(*h))
		return refuse(path, "it is shorter than its header");
	memcpy(h, rec->bytes, sizeof(*h));
	if (!h->magic[0])
		return fail(-1, "report the other host's recording alone",
			    "%s has only zeros where it begins: its host went "
			    "down before it wrote the file to the disk",
			    path);
	if (memcmp(h->magic, RECORDING_MAGIC, sizeof(h->magic)) != 0)
		return refuse(path, "it does not begin with \"QPTRACE\"");
	if (h->endian != RECORDING_ENDIAN) {
		snprintf(why, sizeof(why),
			 "it is of a machine of another endianness, 0x%08x "
			 "instead of 0x%08x",
			 h->endian, RECORDING_ENDIAN);
		return refuse(path, why);
	}
	if (h->version != RECORDING_VERSION) {
		snprintf(why, sizeof(why),
			 "it is of version %u, and this is qptrace of version "
			 "%u",
			 h->version, RECORDING_VERSION);
		return refuse(path, why);
	}
	if (h->header_size < sizeof(*h) ||
	    h->block_head < sizeof(struct block) ||
	    h->block_size <= h->block_head || h->block_size > 1 << 30 ||
	    (h->header_size | h->block_size | h->block_head | h->event_head |
	     h->record_size) %
		    8 ||
	    h->event_head < sizeof(struct event_head) ||
	    h->record_size < sizeof(struct record))
		return refuse(path, "the sizes in its header cannot be");
	return 0;
}

/* ---- 块 -------------------------------------------------------------------- */

static int add_place(struct recording *rec, const char *at, struct place place)
{
	size_t offset = (size_t)(at - rec->bytes) / 8;
	struct place *more = array_room(rec->places, rec->count, sizeof(*more));

	if (!more || offset >> 31)
		return fail(-1, "record less: --control-only, --last",
			    "no memory for %zu events", rec->count + 1);
	rec->places = more;
	place.at = offset & INT32_MAX;
	rec->places[rec->count++] = place;
	return 0;
}

/* 没有哪个时钟会走到这里：这个 event 的字节坏了，不拿它来对时间。*/
#define MOST_NS	  (UINT64_C(1) << 58)
#define MOST_WALL (INT64_C(1) << 61)

static int add_anchor(struct recording *rec, const struct event_head *head)
{
	struct anchor *more;

	if (head->ns > MOST_NS || head->wall > MOST_WALL ||
	    head->wall < -MOST_WALL) {
		rec->lost++;
		return 0;
	}
	more = array_room(rec->anchors, rec->anchor_count, sizeof(*more));
	if (!more)
		return fail(-1, NULL, "no memory");
	rec->anchors = more;
	rec->anchors[rec->anchor_count++] =
		(struct anchor){ head->at, head->ns, head->wall };
	return 0;
}

struct recorded recording_at(const struct recording *rec, struct place place)
{
	struct recorded item = { .at = rec->bytes + (size_t)place.at * 8 };
	struct event_head head;

	if (!place.is_event) {
		memcpy(&item.stamp, item.at, sizeof(item.stamp));
		return item;
	}
	memcpy(&head, item.at, sizeof(head));
	item.members = item.at + rec->header.event_head;
	item.size = head.size - rec->header.event_head;
	item.stamp = head.stamp;
	return item;
}

/* 拆掉的对象，从调用开始就不算了：它的内存马上可能是别人的；别的都在做完之后才算。*/
static uint64_t effect_of(const struct recording *rec, const char *at)
{
	const struct place place = {
		.at = (size_t)(at - rec->bytes) / 8 & INT32_MAX, .is_event = 1
	};
	const struct recorded item = recording_at(rec, place);
	struct event_head head;

	memcpy(&head, at, sizeof(head));
	if (!strncmp(recorded_text(&item, "ev"), "de", 2))
		return head.stamp;
	return head.end ? head.end : head.stamp;
}

static int walk_events(struct recording *rec, const char *at, size_t size)
{
	const size_t smallest = rec->header.event_head;
	struct event_head head;

	while (size >= smallest) {
		struct place place = { .is_event = 1 };

		memcpy(&head, at, sizeof(head));
		if (head.size < smallest || head.size > size || head.size % 8) {
			rec->lost++;
			return 0;
		}
		place.tid = head.tid;
		place.effect = effect_of(rec, at);
		if (add_place(rec, at, place) || add_anchor(rec, &head))
			return -1;
		at += head.size;
		size -= head.size;
	}
	if (size)
		rec->lost++;
	return 0;
}

static int walk_records(struct recording *rec, const char *at, size_t size,
			uint64_t used, int tid)
{
	const size_t each = rec->header.record_size;

	if (used > size / each) {
		rec->lost += used - size / each;
		used = size / each;
	}
	for (uint64_t i = 0; i < used; i++) {
		struct place place = { .tid = tid };

		memcpy(&place.effect, at + i * each, sizeof(place.effect));
		/* 还没有写回的页全是零。*/
		if (!place.effect)
			rec->lost++;
		else if (add_place(rec, at + i * each, place))
			return -1;
	}
	return 0;
}

static int walk_block(struct recording *rec, size_t at)
{
	const size_t head = rec->header.block_head;
	size_t size = rec->header.block_size - head;
	const char *data = rec->bytes + at + head;
	struct block block;

	if (at + head > rec->size) {
		rec->lost++;
		return 0;
	}
	if (size > rec->size - at - head)
		size = rec->size - at - head;
	memcpy(&block, rec->bytes + at, sizeof(block));
	if (block.kind == BLOCK_RING)
		return walk_records(rec, data, size, block.used, block.tid);
	if (block.kind != BLOCK_CONTROL)
		return 0;
	if (block.used > size)
		rec->lost++;
	return walk_events(rec, data, block.used < size ? block.used : size);
}

/* ---- 时间 ------------------------------------------------------------------ */

static int by_stamp(const void *a, const void *b)
{
	const struct anchor *x = a, *y = b;

	return x->stamp < y->stamp ? -1 : x->stamp > y->stamp;
}

static int by_effect(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->effect != y->effect)
		return x->effect < y->effect ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

/* 不比 @stamp 晚的最后一个；都比它晚，就是第一个。*/
static size_t anchor_before(const struct recording *rec, uint64_t stamp)
{
	size_t low = 0, high = rec->anchor_count;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (rec->anchors[middle].stamp <= stamp)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* 两个锚之间取直线；两头以外沿最近的那一段延长。*/
int64_t recording_time(const struct recording *rec, uint64_t stamp)
{
	size_t i = anchor_before(rec, stamp);
	const struct anchor *from = &rec->anchors[i], *to = from;
	double rate = 1, away;

	if (!rec->anchor_count)
		return (int64_t)(stamp >> 6);
	if (i + 1 < rec->anchor_count)
		to = from + 1;
	else if (i)
		from--;
	if (to->stamp > from->stamp && to->ns > from->ns)
		rate = (double)(to->ns - from->ns) /
		       (double)(to->stamp - from->stamp);
	away = (double)(int64_t)(stamp - from->stamp) * rate;
	if (away > (double)MOST_NS)
		away = (double)MOST_NS;
	if (away < -(double)MOST_NS)
		away = -(double)MOST_NS;
	return (int64_t)from->ns + (int64_t)away;
}

int64_t recording_wall(const struct recording *rec, uint64_t stamp)
{
	return rec->anchor_count ? rec->anchors[anchor_before(rec, stamp)].wall
				 : 0;
}

int recording_load(struct recording *rec, const char *path, const char *mapped)
{
	uint32_t blocks;

	if (load_bytes(rec, path, mapped) || check_header(rec, path))
		return -1;
	blocks = rec->header.blocks < MOST_BLOCKS ? rec->header.blocks
						  : MOST_BLOCKS;
	for (uint32_t i = 0; i < blocks; i++)
		if (walk_block(rec, rec->header.header_size +
					    (size_t)i * rec->header.block_size))
			return -1;
	if (rec->anchor_count)
		qsort(rec->anchors, rec->anchor_count, sizeof(*rec->anchors),
		      by_stamp);
	if (rec->count)
		qsort(rec->places, rec->count, sizeof(*rec->places), by_effect);
	return 0;
}

/* ---- 成员 ------------------------------------------------------------------ */

bool member_next(struct member *m, const struct recorded *item)
{
	struct member_head head;

	if (item->size - m->end < sizeof(head))
		return false;
	memcpy(&head, item->members + m->end, sizeof(head));
	if (!head.type || item->size - m->end - sizeof(head) <
				  (size_t)head.key_size + head.size)
		return false;
	m->type = head.type;
	m->key = item->members + m->end + sizeof(head);
	m->key_size = head.key_size;
	m->value = m->key + head.key_size;
	m->size = head.size;
	m->end += (uint32_t)sizeof(head) + head.key_size + head.size;
	return true;
}

uint64_t member_number(const struct member *m)
{
	uint64_t value = 0;
	struct member_object object;

	if (m->type == MEMBER_OBJECT && m->size >= sizeof(object)) {
		memcpy(&object, m->value, sizeof(object));
		return object.id;
	}
	if (m->type != MEMBER_TEXT && m->size == sizeof(value))
		memcpy(&value, m->value, sizeof(value));
	return value;
}

bool recorded_member(const struct recorded *item, const char *key,
		     struct member *m)
{
	*m = (struct member){ 0 };
	while (item->members && member_next(m, item))
		if (m->key_size == strlen(key) &&
		    !memcmp(m->key, key, m->key_size))
			return true;
	return false;
}

uint64_t recorded_number(const struct recorded *item, const char *key)
{
	struct member m;

	return recorded_member(item, key, &m) ? member_number(&m) : 0;
}

const char *recorded_text(const struct recorded *item, const char *key)
{
	static char text[64];
	struct member m;

	text[0] = '\0';
	if (recorded_member(item, key, &m) && m.type == MEMBER_TEXT)
		snprintf(text, sizeof(text), "%.*s", (int)m.size, m.value);
	return text;
}
