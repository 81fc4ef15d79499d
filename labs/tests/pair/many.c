// SPDX-License-Identifier: MIT
/*
 * many.c —— 许多程序，启动一次
 *
 * 在模拟出来的虚拟机里，valgrind 与 ASan 光是启动就比程序本身贵得多。所以把各程序原样的
 * .o 连成一个（每个的 main 改了名：long_memory.sh 的 link_many），启动一次，然后每个程序
 * 在自己的子进程里跑。fork 出来的只是“已经热身过”：全局变量还是初值，退出时照样查泄漏，
 * 有发现时照样以 sanitizer 的退出码结束。
 *
 *	many DIR LIST
 *
 * LIST 的每一行是“NAME PROGRAM ARG…”：输出在 DIR/NAME.out 与 .err，退出码在 .rc。
 * NAME 前有 & 的在后台跑，单独一个 wait 等它们都结束。NAME 前有 = 的不 fork，就在父进程里
 * 跑：valgrind 翻译过的代码、libibverbs 装进来的驱动，此后的子进程都继承下来；它的泄漏，
 * 父进程与每个子进程退出时都会报。空格分词，没有引号。
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_WORDS 32
#define MOST_JOBS  64
#define MOST_TEXT  65536

/* link_many 生成：各程序的名字与它们的 main，以 NULL 结尾。*/
struct program {
	const char *name;
	int (*main)(int argc, char **argv);
};
extern const struct program programs[];

struct job {
	pid_t pid;
	const char *name;
};

static const char *folder;
static struct job background[MOST_JOBS];
static int jobs;

/* 从子进程里也不走 exit()：它不是一个程序的结束，没有什么要查的。*/
static void die(const char *what)
{
	fprintf(stderr, "many: %s: %s\n", what, strerror(errno));
	_exit(2);
}

static const struct program *find(const char *name)
{
	const struct program *p = programs;

	while (p->name && strcmp(p->name, name))
		p++;
	errno = ENOENT;
	if (!p->name)
		die(name);
	return p;
}

/* DIR/NAME + ending，作为 fd：程序（与 sanitizer）写的都落在自己的文件里。*/
static void redirect(int fd, const char *name, const char *ending)
{
	char path[1024];
	int file;

	snprintf(path, sizeof(path), "%s/%s%s", folder, name, ending);
	file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	if (file < 0 || dup2(file, fd) < 0)
		die(path);
	close(file);
}

static pid_t start(const char *name, int argc, char **argv)
{
	const struct program *program = find(argv[0]);
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	redirect(STDOUT_FILENO, name, ".out");
	redirect(STDERR_FILENO, name, ".err");
	program_invocation_name = argv[0];
	program_invocation_short_name = argv[0];
	exit(program->main(argc, argv));
}

static void write_rc(const char *name, int rc)
{
	char path[1024];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s.rc", folder, name);
	out = fopen(path, "w");
	if (!out)
		die(path);
	fprintf(out, "%d\n", rc);
	fclose(out);
}

/* 与 shell 一样：被信号结束的是 128 + 信号。*/
static void reap(pid_t pid, const char *name)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		die("waitpid");
	write_rc(name, WIFEXITED(status) ? WEXITSTATUS(status)
					 : 128 + WTERMSIG(status));
}

/* optind = 0：让下一个用 getopt_long 的从头来。*/
static void run_here(const char *name, int argc, char **argv)
{
	const struct program *program = find(argv[0]);
	int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);

	redirect(STDOUT_FILENO, name, ".out");
	redirect(STDERR_FILENO, name, ".err");
	write_rc(name, program->main(argc, argv));
	fflush(NULL);
	optind = 0;
	if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
		die("dup2");
	close(out);
	close(err);
}

static void reap_background(void)
{
	while (jobs) {
		jobs--;
		reap(background[jobs].pid, background[jobs].name);
	}
}

static void run_line(char *line)
{
	char *words[MOST_WORDS + 1] = { NULL }, *rest = NULL;
	int n = 0;

	for (char *word = strtok_r(line, " ", &rest); word;
	     word = strtok_r(NULL, " ", &rest)) {
		errno = E2BIG;
		if (n == MOST_WORDS)
			die(words[0]);
		words[n++] = word;
	}
	if (n == 1 && !strcmp(words[0], "wait")) {
		reap_background();
	} else if (n >= 2 && words[0][0] == '&' && jobs < MOST_JOBS) {
		background[jobs].name = words[0] + 1;
		background[jobs++].pid = start(words[0] + 1, n - 1, words + 1);
	} else if (n >= 2 && words[0][0] == '=') {
		run_here(words[0] + 1, n - 1, words + 1);
	} else if (n >= 2 && words[0][0] != '&') {
		reap(start(words[0], n - 1, words + 1), words[0]);
	} else if (n) {
		errno = EINVAL;
		die(words[0]);
	}
}

/*
 * 先把 LIST 全读进来并关上，再 fork：子进程与父进程共用打开的文件的偏移，子进程的 exit()
 * 会把它拨回去，父进程就把同样的行再读一遍。
 */
static void read_list(const char *path, char *text, size_t room)
{
	FILE *file = fopen(path, "r");
	size_t n;

	if (!file)
		die(path);
	n = fread(text, 1, room - 1, file);
	errno = E2BIG;
	if (ferror(file) || !feof(file))
		die(path);
	text[n] = '\0';
	fclose(file);
}

int main(int argc, char **argv)
{
	static char text[MOST_TEXT];
	char *rest = NULL;

	if (argc != 3) {
		fprintf(stderr, "usage: many DIR LIST\n");
		return 2;
	}
	folder = argv[1];
	read_list(argv[2], text, sizeof(text));
	for (char *line = strtok_r(text, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest))
		run_line(line);
	reap_background();
	return 0;
}
