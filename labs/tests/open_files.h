/* SPDX-License-Identifier: MIT */
/*
 * open_files.h - how many descriptors this process has: more than before is one that
 * was left.
 */
#ifndef TESTS_OPEN_FILES_H
#define TESTS_OPEN_FILES_H

#include <dirent.h>

/* Entries of /proc/self/fd, with those of the looking itself. */
static inline int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

#endif
