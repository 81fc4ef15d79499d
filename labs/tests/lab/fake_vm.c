// SPDX-License-Identifier: MIT
/*
 * fake_vm.c —— 一个说谎的 VM
 *
 *	fake_vm SOCKET [FRAME…] -- CMD…
 *
 * 执行 CMD；它连上 SOCKET、说了第一句之后，把 FRAME 一个个说给它听：头一个字母是 type，其余
 * 是 payload，其中 % 是 CMD 的 nonce，| 是一个字符串的结尾。"-" 则是收 stdin：收满一个窗口
 * 之后，看 300 ms 里还有没有，再打印收到了多少。没有 FRAME：来一个挂断一个。
 */
#include "../../vm/wire.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>

struct client {
	int fd;
	struct wire_in in;
	char nonce[64];
	size_t heard; /* stdin */
};

/* 这么久之内有没有再听到什么。*/
static bool hear(struct client *c, int ms)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };
	unsigned char bytes[4096];
	ssize_t n =
		poll(&p, 1, ms) == 1 ? read(c->fd, bytes, sizeof(bytes)) : 0;

	for (ssize_t i = 0; i < n;) {
		i += (ssize_t)wire_take(&c->in, bytes + i, (size_t)(n - i));
		if (!c->in.whole)
			continue;
		if (!*c->nonce)
			snprintf(c->nonce, sizeof(c->nonce), "%s",
				 wire_payload(&c->in));
		if (wire_type(&c->in) == W_STDIN)
			c->heard += wire_payload_len(&c->in);
	}
	return n > 0;
}

static void say(struct client *c, const char *frame)
{
	struct wire_buf text = { 0 }, out = { 0 };

	for (const char *p = frame + 1; *p; p++) {
		if (*p == '%')
			wire_add(&text, c->nonce, strlen(c->nonce));
		else
			wire_add(&text, *p == '|' ? "" : p, 1);
	}
	wire_put(&out, *frame, text.data, wire_len(&text));
	wire_flush(c->fd, &out);
	free(text.data);
	free(out.data);
}

static void serve(int sock, char **frames)
{
	struct client c = { .fd = accept(sock, NULL, NULL) };

	while (!*frames) {
		close(c.fd);
		c.fd = accept(sock, NULL, NULL);
	}
	while (!*c.nonce && hear(&c, 10000))
		;
	for (; *frames; frames++) {
		if (strcmp(*frames, "-")) {
			say(&c, *frames);
			continue;
		}
		while (c.heard <= WIRE_WINDOW &&
		       hear(&c, c.heard < WIRE_WINDOW ? 10000 : 300))
			;
		dprintf(1, "%zu\n", c.heard);
	}
	pause();
}

int main(int argc, char **argv)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), end = 2;

	while (end < argc && strcmp(argv[end], "--"))
		end++;
	if (end + 1 >= argc)
		return 2;
	argv[end] = NULL;
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", argv[1]);
	unlink(argv[1]);
	if (bind(sock, (struct sockaddr *)&at, sizeof(at)) || listen(sock, 9))
		return 2;
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(sock, argv + 2);
	}
	execvp(argv[end + 1], argv + end + 1);
	return 2;
}
