/* SPDX-License-Identifier: MIT */
/*
 * file.h - the file of the recording, mapped (recording.h). One caller at a time.
 */
#ifndef RECORDER_FILE_H
#define RECORDER_FILE_H

#include "recording.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * Map recorder.file if it is empty or new, else (another process has it, or
 * @child) recorder.file.PID. Returns 0 or a negative errno, which it has said.
 */
int file_claim(bool child);

struct recording_header *file_header(void); /* NULL: there is no recording */

/* It has a QP, or the peer of one, of this number; there is a recording. */
void file_knows(bool peer, uint32_t qpn);

/* Wake the watcher; there is a recording. */
void file_wake(void);

/*
 * One more block, of zeros, whose room on the disk is sure. NULL: there is none; the
 * first time, this says why.
 */
struct block *file_grow(void);

size_t file_index(const struct block *block);

/* In the child of fork(): it has a file of its own. */
void file_close(void);

#endif
