// SPDX-License-Identifier: MIT
/*
 * late_end.c —— LD_PRELOAD：程序结束得慢，而且在记录器写完 "exit" 以后（装得晚的后结束）
 */
#include <unistd.h>

__attribute__((destructor)) static void end_late(void)
{
	sleep(2);
}
