// SPDX-License-Identifier: MIT
/*
 * unit_session.c —— session.c 在 host 上：一个接一个的客户，之后什么也没有多出来
 *
 * VM 里的一个会话也许活得很久：前一个客户被 kill -9，后一个的 W_START 就接在它后面。
 * 每接一个都留下一点的话，看不出来，直到内存与 fd 用完。所以接 3 个与接 30 个要一样。
 */
#define _GNU_SOURCE
#include "../../vm/agent.h"
#include "../../vm/wire.h"
#include "../open_files.h"
#include "../unit.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

/* 这个程序自己要的内存块，还有几块没有还（ld --wrap）。*/
static int blocks;
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void __real_free(void *p);

void *__wrap_malloc(size_t size)
{
	blocks++;
	return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	blocks++;
	return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	blocks += !p;
	return __real_realloc(p, size);
}

void __wrap_free(void *p)
{
	blocks -= p != NULL;
	__real_free(p);
}

static struct wire_buf to;
static struct wire_in in;

static void start(const char *nonce, const char *tty, const char *cwd,
		  const char *command)
{
	const char *const strings[] = { nonce,	   "0",	 tty,	  "24",
					"80",	   cwd,	 "3",	  "1",
					"/bin/sh", "-c", command, "WORD=word" };
	static struct wire_buf list;

	for (size_t i = 0; i < sizeof(strings) / sizeof(*strings); i++)
		wire_str(&list, strings[i]);
	wire_put_list(&to, W_START, &list);
}

/* 读到这样一个 frame 为止；它的内容，或者 NULL。*/
static const char *await(int sock, char type)
{
	static unsigned char bytes[4096];
	static size_t n, at;
	static char text[4096];

	while (!wire_flush(sock, &to)) {
		struct pollfd p = { .fd = sock, .events = POLLIN };
		ssize_t got;

		while (at < n) {
			at += wire_take(&in, bytes + at, n - at);
			if (!in.whole || wire_type(&in) != type)
				continue;
			snprintf(text, sizeof(text), "%.*s",
				 (int)wire_payload_len(&in), wire_payload(&in));
			return text;
		}
		if (poll(&p, 1, 10000) <= 0)
			return NULL;
		got = read(sock, bytes, sizeof(bytes));
		if (got <= 0)
			return NULL;
		n = (size_t)got;
		at = 0;
	}
	return NULL;
}

static bool says(int sock, char type, const char *wanted)
{
	const char *got = await(sock, type);

	CHECK(got && !strcmp(got, wanted), "%c: \"%s\", not \"%s\"", type,
	      got ? got : "nothing", wanted);
	return got;
}

#define DEAF 4 /* 这个客户的命令不理 SIGHUP */

/*
 * 这么多个客户，每个都丢下自己的命令，和 pipe 装不下的 stdin；最后一个好好地用完。
 */
static void talk(int sock, int clients)
{
	static const char much[WIRE_CHUNK], zeros[] = "00000000000000000";
	char nonce[16];

	for (int i = 0; i < clients; i++) {
		wire_put(&to, W_START, "half a start", 12);
		snprintf(nonce, sizeof(nonce), "%d", i);
		start(nonce, i % 2 ? "1" : "0", "/",
		      i == DEAF ? "trap '' HUP; echo deaf\n"
				  "while :; do sleep 9; done"
				: "exec sleep 60");
		says(sock, W_WELCOME, nonce);
		if (i == DEAF)
			says(sock, W_STDOUT, "deaf\n");
		wire_put(&to, W_SIGNAL, zeros, 16);
		wire_put(&to, W_SIGNAL, zeros, 17);
		wire_put(&to, W_WINSIZE,
			 "30\0"
			 "100",
			 7);
		wire_put(&to, W_WINSIZE, "30", 2);
		for (int k = 0; k < 7; k++)
			wire_put(&to, W_STDIN, much, sizeof(much));
		wire_put(&to, W_START,
			 "1\0"
			 "0\0"
			 "0\0"
			 "24\0"
			 "80\0"
			 "/\0"
			 "3\0"
			 "9\0"
			 "x",
			 20);
	}
	start("last", "0", "/", "echo \"$WORD $# $(env | grep -c WORD)\"; cat");
	says(sock, W_WELCOME, "last");
	says(sock, W_STDOUT, "word 0 1\n");
	wire_puts(&to, W_STDIN, "stdin");
	says(sock, W_CREDIT, "5");
	says(sock, W_STDOUT, "stdin");
	wire_put(&to, W_STDIN_EOF, "", 0);
	says(sock, W_EXIT, "0");
}

struct left {
	int blocks, files, children;
};

static struct left after(int clients)
{
	struct left left = { 0 };
	int pair[2], told[2], status = 0;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) ||
	    pipe2(told, O_CLOEXEC))
		abort();
	wire_clear(&to);
	free(in.frame.data);
	memset(&in, 0, sizeof(in));
	pid = fork();
	if (!pid) {
		enum session_end end;

		close(pair[0]);
		fcntl(pair[1], F_SETFL, O_NONBLOCK);
		blocks = 0;
		end = session_serve(pair[1], true);
		left.blocks = blocks;
		left.files = open_files();
		left.children = waitpid(-1, NULL, WNOHANG) >= 0;
		if (write(told[1], &left, sizeof(left)) != sizeof(left))
			abort();
		_exit(end);
	}
	close(pair[1]);
	close(told[1]);
	talk(pair[0], clients);
	CHECK(read(told[0], &left, sizeof(left)) == sizeof(left), "%d clients",
	      clients);
	CHECK(!left.children, "%d clients: a child was left", clients);
	close(pair[0]);
	waitpid(pid, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == SESSION_DONE,
	      "%d clients: status %d", clients, status);
	close(told[0]);
	return left;
}

int main(void)
{
	struct left few = after(3), many = after(30);

	CHECK(few.blocks == many.blocks,
	      "%d blocks of memory after 3 clients, %d after 30", few.blocks,
	      many.blocks);
	CHECK(few.files == many.files, "%d files after 3 clients, %d after 30",
	      few.files, many.files);
	return unit_result("session");
}
