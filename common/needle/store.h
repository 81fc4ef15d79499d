/* SPDX-License-Identifier: MIT */
/*
 * store.h - needles (small immutable blobs) in volumes on disk: what the
 * storage node serves and build/needle fills.
 *
 * One file per volume, DIR/volume-ID.needles. Why not one file for all: damage,
 * the lock, the mapping and the memory region of one volume are then no matter
 * of the others.
 *
 * The file, all integers little-endian:
 *
 *	volume header, 32 bytes
 *	   0  magic       8 bytes "NEEDLES\n"
 *	   8  version     u32     1
 *	  12  volume_id   u32     as in the file's name
 *	  16  committed   u64     bytes of the file that count, a multiple of 8
 *	  24  reserved    u32     0
 *	  28  header_crc  u32     CRC-32C of bytes 0 ... 27
 *	then records, one after another, each at a multiple of 8
 *	   0  magic       u32     0x4c44454e "NEDL"
 *	   4  cookie      u32
 *	   8  needle_id   u64
 *	  16  size        u64     bytes of data
 *	  24  data_crc    u32     CRC-32C of the data
 *	  28  header_crc  u32     CRC-32C of volume_id (u32), the record's offset
 *	                          (u64), and the record's bytes 0 ... 27
 *	  32  data, then zeros up to a multiple of 8
 *
 * Records are appended and never changed; a later record of the same needle
 * supersedes the earlier one. Only `committed` moves, and only forward:
 *
 * - What lies below it must be whole. If it is not, or if the file is shorter,
 *   that is damage: an error that names file, offset and both checksums.
 * - What lies beyond it is the torn tail of an append that never ended. It is
 *   reported, not read, and cut off by the next writer.
 *
 * A new volume gets its name when its header is on disk; an empty file is damage.
 *
 * So a torn tail is never taken for damage, nor damage for a torn tail. fsync
 * policy: needle_commit() has the records on disk (fdatasync) before it moves
 * `committed`, and that on disk before it returns; a new file's name, too. A
 * needle that was committed survives a power cut.
 *
 * One writer at a time for each volume (flock, exclusive). Readers need no lock:
 * what they see never changes. Threads may share a volume that is open.
 *
 * Every function that returns int returns 0 or a negative errno and has reported
 * the failure (base/report.h). -ENOENT: no such volume or needle. -EBADMSG: damage.
 * -ENOTSUP: a version of the format that this program does not know.
 */
#ifndef NEEDLE_STORE_H
#define NEEDLE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEEDLE_VOLUME_HEADER 32 /* bytes */
#define NEEDLE_RECORD_HEADER 32 /* bytes */
#define NEEDLE_VERSION	     1
#define NEEDLE_LOCK_MS	     5000 /* default wait for another writer */

/* One record. Its data are `size` bytes at offset + NEEDLE_RECORD_HEADER. */
struct needle {
	uint64_t needle_id;
	uint64_t offset; /* of the record in the file, bytes */
	uint64_t size;	 /* of the data, bytes; may be 0 */
	uint32_t cookie; /* who reads a needle must know it */
	uint32_t crc32c; /* of the data, as the record says it */
};

/*
 * One volume, mapped to be read: private and read-only, so that it can be
 * registered for REMOTE_READ (see server/needle_memory.c).
 */
struct needle_volume {
	uint32_t volume_id;
	const uint8_t *map;	    /* the whole file, up to length */
	uint64_t length;	    /* `committed`, bytes */
	uint64_t tail;		    /* bytes beyond it, not read */
	struct needle *records;	    /* all, in the file's order */
	size_t n_records;	    /* superseded ones as well */
	const struct needle **live; /* the valid ones, by needle_id */
	size_t n_live;
};

/* ---- reading: store.c --------------------------------------------- */

/* Bytes from one record to the next, for data of @size bytes. */
uint64_t needle_record_bytes(uint64_t size);

/*
 * The ids of the volumes in folder @dir, ascending; *@ids is the caller's to
 * free. Names that are not exactly those of volumes are passed over.
 */
int needle_store_volumes(const char *dir, uint32_t **ids, size_t *n);

/*
 * Map @dir's volume and read all record headers, but no data: that is checked
 * when it is used. Reports a torn tail as a warning. Undone by
 * needle_volume_close(), which a zeroed @volume may be given as well.
 */
int needle_volume_open(struct needle_volume *volume, const char *dir,
		       uint32_t volume_id);
void needle_volume_close(struct needle_volume *volume);

/*
 * The same for the @size bytes of a volume's file at @bytes, which stay the
 * caller's; @path is for the messages. Undone by needle_volume_forget().
 */
int needle_volume_parse(struct needle_volume *volume, const void *bytes,
			uint64_t size, uint32_t volume_id, const char *path);
void needle_volume_forget(struct needle_volume *volume);

/* The needle, or NULL (not reported). By binary search. */
const struct needle *needle_find(const struct needle_volume *volume,
				 uint64_t needle_id);

/* Its data in the mapping. */
const uint8_t *needle_data(const struct needle_volume *volume,
			   const struct needle *needle);

/* Do its data have the CRC-32C that the record tells? -EBADMSG, reported. */
int needle_check(const struct needle_volume *volume,
		 const struct needle *needle, const char *dir);

/* ---- writing: writer.c -------------------------------------------- */

/* A volume open to be appended to. Zero it before use. */
struct needle_writer {
	char *path; /* NULL: not open */
	int fd;
	bool ready; /* locked, and the volume is good */
	uint32_t volume_id;
	uint64_t committed;   /* as the header on disk has it */
	uint64_t end;	      /* of the records that are whole */
	struct needle needle; /* in the making, at end */
};

/*
 * Lock the volume, waiting for another writer until @deadline (-EBUSY), make
 * its file if there is none, refuse it if it is damaged or a symbolic link (-ELOOP),
 * and cut a torn tail off (reported). Undone by needle_writer_close().
 */
int needle_writer_open(struct needle_writer *writer, const char *dir,
		       uint32_t volume_id, int64_t deadline);

/*
 * Append one needle: begin, its bytes in any number of pieces, end. Nobody sees
 * it before needle_commit(). After a failure only needle_writer_close() is
 * possible.
 */
void needle_begin(struct needle_writer *writer, uint64_t needle_id,
		  uint32_t cookie);
int needle_append(struct needle_writer *writer, const void *data, size_t size);
int needle_end(struct needle_writer *writer);

/* Make all needles that were ended durable, then visible. */
int needle_commit(struct needle_writer *writer);

/* Cut off what was not committed, unlock, close. Not open: nothing to do. */
void needle_writer_close(struct needle_writer *writer);

#endif
