/* SPDX-License-Identifier: MIT */
/*
 * recorder.h - what every file of the recorder may ask. These are the files from the
 * ground up, each standing only on those before it:
 *
 *	recorder, recording, line	what it was told; the file's form; one event
 *	dl, pass		the real functions
 *	file, ring, objects	the mapped file; records; which handle is which
 *	writer			events into the file
 *	start, event		the recording begins and ends; one recorded call
 *	mr, made, fast, extended, qp, control, cm	the calls that are wrapped
 *
 * It only records. Who says what is wrong is qptrace-report, which labs/qptrace starts
 * beside the program, and which reads the same file later.
 */
#ifndef RECORDER_RECORDER_H
#define RECORDER_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What labs/qptrace was told; read once from the environment. */
struct recorder_config {
	char file[4096];   /* QPTRACE_FILE; "": do not record */
	bool control_only; /* QPTRACE_CONTROL_ONLY */
	int watcher;   /* QPTRACE_WATCHER, who reads it meanwhile; 0: nobody */
	uint64_t last; /* QPTRACE_LAST: bytes of posts and completions */
};
extern struct recorder_config recorder;

/*
 * How deep the thread is in the recorder's or libibverbs' own calls: none of them
 * is recorded.
 */
extern __thread int recorder_inside __attribute__((tls_model("initial-exec")));

/* Memory of zeros, for munmap(2); no malloc. NULL: there is none. */
void *recorder_pages(size_t size);

#endif
