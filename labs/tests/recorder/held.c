// SPDX-License-Identifier: MIT
/*
 * held.c —— LD_PRELOAD：解开自己没锁的 mutex 的，当场 abort
 *
 * 少锁一次，多半什么也看不出来：另一个线程恰好也在里面，才写坏东西。glibc 在普通的 mutex
 * 里也记着 owner，所以解锁的时候一看便知。（fork 之后例外：owner 是父进程
 * 里的线程，替它解锁是 atfork 的事。）
 */
#include "../real.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	REAL(pthread_mutex_unlock);
	Dl_info by = { 0 };
	char *at = __builtin_return_address(0);
	int owner = mutex->__data.__owner;

	if (owner != gettid() && (!owner || !tgkill(getpid(), owner, 0))) {
		dladdr(at, &by);
		dprintf(STDERR_FILENO,
			"held: unlocked without being locked, 0x%lx of %s\n",
			(unsigned long)(at - (char *)by.dli_fbase),
			by.dli_fname);
		abort();
	}
	return real(mutex);
}
