/* SPDX-License-Identifier: MIT */
/*
 * file.h - the file of the recording. One caller at a time.
 */
#ifndef RECORDER_FILE_H
#define RECORDER_FILE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Open recorder.file if it is empty or new, else (another process has it, or
 * @child) recorder.file.PID. Returns 0 or a negative errno, which it has said.
 */
int file_claim(bool child);

/*
 * Append. If that fails, this says so and the recording ends. A descriptor that
 * the program has closed is opened again.
 */
void file_write(const char *text, size_t len);

/*
 * The same descriptor under a number that the program will not meet; it is closed under
 * @fd.
 */
int file_move_up(int fd);

/* In the child of fork(): it has a file of its own. */
void file_close(void);

#endif
