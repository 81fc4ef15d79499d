/* SPDX-License-Identifier: MIT */
/*
 * open_files.h - how many descriptors this process has, and how much memory: more than
 * before is what was left.
 */
#ifndef TESTS_OPEN_FILES_H
#define TESTS_OPEN_FILES_H

#include <dirent.h>
#include <stdio.h>

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

/* Of its address space; 0 if that cannot be read. */
static inline long mapped_pages(void)
{
	FILE *statm = fopen("/proc/self/statm", "r");
	long n = 0;

	if (statm && fscanf(statm, "%ld", &n) != 1)
		n = 0;
	if (statm)
		fclose(statm);
	return n;
}

#endif
