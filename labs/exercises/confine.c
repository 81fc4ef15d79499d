// SPDX-License-Identifier: MIT
/*
 * confine.c —— 以 nobody 的身份运行学生的程序，超时就杀
 *
 *	confine SECONDS CMD…    退出码：它的；124 超时，137 不肯停，128+N 死于信号 N
 *	confine                 杀掉 nobody 剩下的一切；pkill 要读 /proc，慢几十倍
 *
 * timeout、nice、setpriv 合在一起也能做到，但在模拟的 CPU 上，每个 exec 要二十几毫秒，一次评分
 * 有几十个程序。静态链接也是为此。
 */
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOBODY 65534

static void become_nobody(void)
{
	setpgid(0, 0);
	if (nice(15) == -1 || setgroups(0, NULL) ||
	    setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
		perror("confine");
		_exit(99);
	}
	/* kill -9 只杀得到那个父进程：一起走。*/
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* 它结束了就返回 true；别人让我们停，就转告它。*/
static bool ended_within(pid_t pid, long seconds, int *status)
{
	struct timespec now, end, left;
	sigset_t all;
	int sig;

	sigfillset(&all);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += seconds;
	for (;;) {
		if (waitpid(pid, status, WNOHANG) == pid)
			return true;
		clock_gettime(CLOCK_MONOTONIC, &now);
		left.tv_sec = end.tv_sec - now.tv_sec;
		left.tv_nsec = end.tv_nsec - now.tv_nsec;
		if (left.tv_nsec < 0) {
			left.tv_nsec += 1000000000;
			left.tv_sec--;
		}
		if (left.tv_sec < 0)
			return false;
		sig = sigtimedwait(&all, NULL, &left);
		if (sig == SIGINT || sig == SIGTERM)
			kill(pid, sig);
	}
}

int main(int argc, char *argv[])
{
	long seconds = argc > 2 ? atol(argv[1]) : 0;
	sigset_t all;
	int status;
	pid_t pid;

	if (argc == 1) {
		become_nobody();
		return kill(-1, SIGKILL) == -1 && errno != ESRCH;
	}
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	pid = fork();
	if (pid == 0) {
		signal(SIGINT, SIG_DFL); /* bash 让后台的程序忽略它 */
		sigprocmask(SIG_UNBLOCK, &all, NULL);
		become_nobody();
		execv(argv[2], argv + 2);
		perror(argv[2]);
		_exit(127);
	}
	if (ended_within(pid, seconds, &status))
		return WIFSIGNALED(status) ? 128 + WTERMSIG(status)
					   : WEXITSTATUS(status);
	kill(-pid, SIGTERM);
	if (ended_within(pid, 1, &status))
		return 124;
	kill(-pid, SIGKILL);
	waitpid(pid, &status, 0);
	return 137;
}
