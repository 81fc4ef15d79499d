// SPDX-License-Identifier: MIT
/*
 * processes.c —— 另外两个角色：存储节点与 engine，都是真正的程序
 *
 * 为什么不在一个进程里演完？地址在谁的进程里有意义、谁的 CPU 在做事、谁被杀了会怎样，
 * 都要有第二个进程才看得见。它们随本程序结束：PR_SET_PDEATHSIG，连被 kill -9 也不例外。
 */
#include "base/call_failed.h"
#include "base/deadline.h"
#include "base/pattern.h"
#include "base/report.h"
#include "needle/store.h"
#include "walk.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS	  10
#define PATH_SIZE 512

int bad(const char *what)
{
	return fail(-EBADMSG, NULL, "%s", what);
}

/* ---- store：三个 needle ---------------------------------------------------- */

static int put(struct needle_writer *writer, uint64_t id, const void *data,
	       size_t size)
{
	int rc;

	needle_begin(writer, id, COOKIE);
	rc = needle_append(writer, data, size);
	return rc ? rc : needle_end(writer);
}

static int fill_store(const char *dir)
{
	struct needle_writer writer = { 0 };
	char *bytes = malloc(LONG_BYTES);
	int rc;

	if (!bytes)
		return call_failed(ENOMEM, "malloc(%u bytes)", LONG_BYTES);
	rc = needle_writer_open(&writer, dir, VOLUME, deadline_in_ms(WAIT_MS));
	if (!rc)
		rc = put(&writer, TEXT_NEEDLE, TEXT, strlen(TEXT));
	pattern_fill(bytes, LONG_BYTES, LONG_NEEDLE);
	if (!rc)
		rc = put(&writer, LONG_NEEDLE, bytes, LONG_BYTES);
	pattern_fill(bytes, PAGE_BYTES, PAGE_NEEDLE);
	if (!rc)
		rc = put(&writer, PAGE_NEEDLE, bytes, PAGE_BYTES);
	if (!rc)
		rc = needle_commit(&writer);
	needle_writer_close(&writer);
	free(bytes);
	return rc;
}

/*
 * /tmp 而不是当前目录：Unix socket 的路径不能超过 108 个字节，而且不是每种文件系统都
 * 放得下一个 socket。
 */
int walk_open(struct walk *w)
{
	snprintf(w->dir, sizeof(w->dir), "/tmp/rdma-engine-XXXXXX");
	if (!mkdtemp(w->dir)) {
		w->dir[0] = '\0';
		return call_failed(errno, "mkdtemp(/tmp/rdma-engine-XXXXXX)");
	}
	snprintf(w->store, sizeof(w->store), "%s/store", w->dir);
	snprintf(w->socket, sizeof(w->socket), "%s/socket", w->dir);
	if (mkdir(w->store, 0700))
		return call_failed(errno, "mkdir(%s)", w->store);
	return fill_store(w->store);
}

static void remove_file(const struct walk *w, const char *name)
{
	char path[PATH_SIZE];

	snprintf(path, sizeof(path), "%s/%s", w->dir, name);
	remove(path);
}

int walk_close(struct walk *w)
{
	int rc, engine;

	engine_disconnect(&w->c);
	engine = end_process(&w->engine, SIGTERM);
	rc = end_process(&w->node, SIGTERM);
	if (!w->dir[0])
		return 0;
	remove_file(w, "store/volume-1.needles");
	remove_file(w, "store");
	remove_file(w, "node.said");
	remove_file(w, "engine.said");
	rmdir(w->dir);
	return engine ? engine : rc;
}

/* ---- 进程 ------------------------------------------------------------------ */

/* 在本程序旁边：build/ 在哪里，它们就在哪里。*/
static int program_path(char *path, size_t size, const char *name)
{
	char self[PATH_SIZE - 64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		return call_failed(errno, "readlink(/proc/self/exe)");
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	snprintf(path, size, "%s/%s", self, name);
	if (!access(path, X_OK))
		return 0;
	return fail(-ENOENT, "run make", "%s is not there", path);
}

/* 子进程里：说的话都记进一个文件，父进程死了就跟着结束。*/
static void become(const struct walk *w, const char *who, const char *path,
		   char *const argv[])
{
	char said[PATH_SIZE];
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	snprintf(said, sizeof(said), "%s/%s.said", w->dir, who);
	fd = open(said, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd >= 0) {
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
	}
	execv(path, argv);
	_exit(127);
}

static int start(const struct walk *w, const char *who, pid_t *pid,
		 char *const argv[])
{
	char path[PATH_SIZE];
	int rc = program_path(path, sizeof(path), argv[0]);

	if (rc)
		return rc;
	*pid = fork();
	if (*pid == 0)
		become(w, who, path, argv);
	if (*pid > 0)
		return 0;
	*pid = 0;
	return call_failed(errno, "fork()");
}

/* 看 @who 说过的每一行；show：印出来，步骤与细节除外。返回有几行含 @text。*/
static int search_said(const struct walk *w, const char *who, const char *text,
		       bool show)
{
	char path[PATH_SIZE], line[1024];
	int found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.said", w->dir, who);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		found += !!strstr(line, text);
		if (show && strncmp(line, "[Step", 5) && line[0] != ' ')
			report_line("%s: %.*s", who, (int)strcspn(line, "\n"),
				    line);
	}
	if (f)
		fclose(f);
	return found;
}

void show_said(const struct walk *w, const char *who)
{
	search_said(w, who, "", true);
}

int await_said(const struct walk *w, const char *who, const char *text,
	       int times)
{
	const pid_t pid = strcmp(who, "node") ? w->engine : w->node;
	int64_t deadline = deadline_in_ms(WAIT_MS);
	siginfo_t ended = { 0 };
	int rc = 0;

	while (!rc && search_said(w, who, text, false) < times) {
		/* WNOWAIT：只看看它结束了没有，收尸留给 end_process()。*/
		waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT);
		if (ended.si_pid == pid || deadline_passed(deadline)) {
			show_said(w, who);
			return fail(-ETIMEDOUT, NULL,
				    "the %s %s without saying \"%s\"", who,
				    ended.si_pid == pid ? "ended" : "runs",
				    text);
		}
		rc = deadline_sleep_ms(POLL_MS, deadline);
	}
	return rc;
}

int start_node(struct walk *w)
{
	char port[8];
	char *const argv[] = { "needle_server", "--store", w->store,
			       w->device,	port,	   NULL };
	int rc;

	snprintf(port, sizeof(port), "%d", NODE_PORT);
	remove_file(w, "node.said");
	rc = start(w, "node", &w->node, argv);
	return rc ? rc : await_said(w, "node", "listening on", 1);
}

int start_engine(struct walk *w)
{
	char peer[64];
	char *const argv[] = {
		"rdma_engine", "--socket",	 w->socket, "--peer",
		peer,	       "--device",	 w->device, "--max-sessions",
		"2",	       "--read-timeout", "2",	    NULL
	};
	int rc;

	snprintf(peer, sizeof(peer), "%s:%d", NODE_HOST, NODE_PORT);
	remove_file(w, "engine.said");
	rc = start(w, "engine", &w->engine, argv);
	if (!rc)
		rc = await_said(w, "engine", "serve clients", 1);
	if (!rc)
		rc = await_said(w, "engine", "connected to", 1);
	return rc ? rc
		  : engine_connect(&w->c, w->socket, deadline_in_ms(WAIT_MS));
}

int end_process(pid_t *pid, int signal)
{
	int64_t deadline = deadline_in_ms(WAIT_MS);
	int status = 0;
	pid_t gone = 0;

	if (!*pid)
		return 0;
	kill(*pid, signal);
	kill(*pid, SIGCONT); /* 停着的进程收不到 SIGTERM */
	while (!gone && !deadline_passed(deadline)) {
		gone = waitpid(*pid, &status, WNOHANG);
		if (!gone)
			deadline_sleep_ms(POLL_MS, deadline);
	}
	if (!gone) {
		kill(*pid, SIGKILL);
		waitpid(*pid, &status, 0);
	}
	*pid = 0;
	return gone && !status ? 0 : -EIO;
}
