/* SPDX-License-Identifier: MIT */
/*
 * format.h - the bytes of a volume's file, written and read back in one
 * place (store.h has the layout). For store.c and writer.c;
 * not for others.
 */
#ifndef NEEDLE_FORMAT_H
#define NEEDLE_FORMAT_H

#include "store.h"

/* DIR/volume-ID.needles, the caller's to free; -ENOMEM (reported). */
int needle_volume_path(const char *dir, uint32_t volume_id, char **path);

/* Fill @out with the header of a volume, or of the record of @needle. */
void needle_write_volume_header(uint8_t out[NEEDLE_VOLUME_HEADER],
				uint32_t volume_id, uint64_t committed);
void needle_write_record_header(uint8_t out[NEEDLE_RECORD_HEADER],
				uint32_t volume_id,
				const struct needle *needle);

/*
 * Read the first bytes of file @path, open as @fd, into @header (zeros where the
 * file is shorter), then its length. -EINVAL: no regular file.
 */
int needle_read_start(int fd, const char *path,
		      uint8_t header[NEEDLE_VOLUME_HEADER], uint64_t *size);

/* Does the volume header @in have the right CRC? Nothing is reported. */
bool needle_volume_header_is_whole(const uint8_t in[NEEDLE_VOLUME_HEADER]);

/*
 * Check the header @in of file @path, of @file_size bytes, and set *@committed
 * (at most @file_size). -EBADMSG, -ENOTSUP.
 */
int needle_read_volume_header(const uint8_t in[NEEDLE_VOLUME_HEADER],
			      const char *path, uint32_t volume_id,
			      uint64_t file_size, uint64_t *committed);

/*
 * Check the record header @in at @offset, with @room bytes from there to the
 * end of what counts (a multiple of 8), and fill @needle. -EBADMSG.
 */
int needle_read_record_header(const uint8_t *in, const char *path,
			      uint32_t volume_id, uint64_t offset,
			      uint64_t room, struct needle *needle);

/*
 * Fill @volume from file @path, open as @fd, whose header is @header and whose
 * length is @file_size; looks at no lock.
 */
int needle_volume_load(struct needle_volume *volume, int fd, const char *path,
		       uint32_t volume_id,
		       const uint8_t header[NEEDLE_VOLUME_HEADER],
		       uint64_t file_size);

#endif
