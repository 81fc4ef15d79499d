// SPDX-License-Identifier: MIT
/*
 * idle.c —— 时间按指令计的 VM 里，没有别的可运行时运行它（SCHED_IDLE）
 *
 * 那里的时钟就是指令数。CPU 若真的空闲，时钟就直接跳到下一个期限：谁在等宿主机读一个文件，
 * 醒来时期限已过。一直有指令可执行就不会跳；nop 几乎不费时间，等待因此比真实时间快二十倍左右。
 */
int main(void)
{
	for (;;)
		__asm__ volatile(".rept 100\n\tnop\n\t.endr");
}
