// SPDX-License-Identifier: MIT
/*
 * unit_say.c —— 记录器说的话，译的时候在小栈上攒：攒满的那一处，多一个字节就越界
 *
 * 没有译文的行原样出来；所以不管多长、从哪里断开，出来的就是进去的（一行超过 1023 字节
 * 的，分成几段，也还是那些字节）。write 是这里的，它收着；越界由 ASan 来抓。
 */
#include "../../recorder/recorder.h"
#include "../unit.h"

#include <string.h>
#include <unistd.h>

static char came[1 << 14];
static size_t length;

ssize_t write(int fd, const void *data, size_t size)
{
	if (fd != STDERR_FILENO || size > sizeof(came) - length)
		return -1;
	memcpy(came + length, data, size);
	length += size;
	return (ssize_t)size;
}

/* @size 个字节，每行 @width 个字，后面是 @n 个空行：短行才攒得到几乎满。*/
static void nearly_full(size_t size, size_t width, size_t n)
{
	char text[8192];

	memset(text, 'x', size);
	for (size_t at = width; at < size; at += width + 1)
		text[at] = '\n';
	text[size - 1] = '\n';
	memset(text + size, '\n', n);
	memcpy(text + size + n, "yy\n", 3);
	size += n + 3;
	length = 0;
	recorder_say(text, size);
	CHECK(length == size && !memcmp(came, text, size),
	      "%zu bytes, lines of %zu, %zu without any: %zu came", size, width,
	      n, length);
}

int main(void)
{
	/* 一段的长度，少一个，多一个，两段半。*/
	static const size_t widths[] = { 1022, 1023, 1024, 2500 };

	recorder.chinese = true;
	for (size_t size = 3068; size < 3074; size++)
		for (size_t n = 0; n < 5; n++)
			for (size_t width = 1; width < 5; width *= 2)
				nearly_full(size, width, n);
	for (size_t i = 0; i < 4; i++)
		nearly_full(3072, widths[i], 1);
	return unit_result("unit_say");
}
