// SPDX-License-Identifier: MIT
/*
 * memory.c —— 注册内存时的错误：权限、映射、长度、RLIMIT_MEMLOCK
 */
#include "faults.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void try_reg(struct rig *rig, void *addr, size_t length, int access)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr(rig->a.pd, addr, length, access);
	saw_error(rig, "ibv_reg_mr", mr ? 0 : errno);
	if (!mr)
		rig->why = explain_reg_mr_call(rig->a.pd, addr, length, access,
					       errno);
}

FAULT(remote_without_local,
      try_reg(rig, rig->a.buf, PAGE, IBV_ACCESS_REMOTE_WRITE))
FAULT(length_zero, try_reg(rig, rig->a.buf, 0, IBV_ACCESS_LOCAL_WRITE))

/* int 里的 -1 变成 size_t：一个大得绕回来的长度。*/
static void length_negative(struct rig *rig)
{
	int length = -1;

	try_reg(rig, rig->a.buf, (size_t)length, IBV_ACCESS_LOCAL_WRITE);
}

static void not_mapped(struct rig *rig)
{
	void *gone = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(gone, PAGE);
	try_reg(rig, gone, PAGE, IBV_ACCESS_LOCAL_WRITE);
}

FAULT(null_pointer, try_reg(rig, NULL, PAGE, IBV_ACCESS_LOCAL_WRITE))

static void read_only(struct rig *rig)
{
	void *page =
		mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	try_reg(rig, page, PAGE, IBV_ACCESS_LOCAL_WRITE);
}

/* 字符串常量在只读段里。*/
static void string_literal(struct rig *rig)
{
	static const char text[] = "Hello from the read-only segment";

	try_reg(rig, (void *)(uintptr_t)text, sizeof(text),
		IBV_ACCESS_LOCAL_WRITE);
}

/*
 * 文件映射成只读，只要 REMOTE_READ：看上去没有谁要写。可 Linux 6.1 钉页时总是按要写的
 * 来，MAP_SHARED 的页又不能复制，于是被拒；MAP_PRIVATE 就可以。
 */
static void shared_read_only(struct rig *rig)
{
	FILE *file = tmpfile();
	void *page = MAP_FAILED;

	if (file && !ftruncate(fileno(file), PAGE))
		page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fileno(file), 0);
	try_reg(rig, page, PAGE, IBV_ACCESS_REMOTE_READ);
	if (file)
		fclose(file);
}

FAULT(on_demand, try_reg(rig, rig->a.buf, PAGE,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND))

/* root 有 CAP_IPC_LOCK，不受 RLIMIT_MEMLOCK 限制：先把这一项权限放下。*/
static void drop_ipc_lock(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &head, caps))
		return;
	caps[0].effective &= ~(1u << CAP_IPC_LOCK);
	caps[0].permitted &= ~(1u << CAP_IPC_LOCK);
	syscall(SYS_capset, &head, caps);
}

/* 两端各 64 KiB 已经钉住，再要 1 MiB 就超过 256 KiB 了。*/
static void over_memlock(struct rig *rig)
{
	const struct rlimit limit = { 4 * BUFFER_BYTES, 4 * BUFFER_BYTES };
	const size_t size = 16 * BUFFER_BYTES;
	void *memory;

	drop_ipc_lock();
	setrlimit(RLIMIT_MEMLOCK, &limit);
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	try_reg(rig, memory, size, IBV_ACCESS_LOCAL_WRITE);
}

const struct fault memory_faults[] = {
	ROW("mr-remote-write-alone",
	    "IBV_ACCESS_REMOTE_WRITE without IBV_ACCESS_LOCAL_WRITE",
	    "ibv_reg_mr: EINVAL", "mr-needs-local-write", OPEN,
	    remote_without_local),
	ROW("mr-length-zero", "the length is 0", "ibv_reg_mr: EINVAL",
	    "mr-length-zero", OPEN, length_zero),
	ROW("mr-length-negative", "a length of -1 became a size_t",
	    "ibv_reg_mr: EINVAL", "mr-length-wraps", OPEN, length_negative),
	ROW("mr-not-mapped", "the memory was unmapped (or freed) before",
	    "ibv_reg_mr: EFAULT", "mr-not-mapped", OPEN, not_mapped),
	ROW("mr-null", "nobody looked at what malloc returned",
	    "ibv_reg_mr: EFAULT", "mr-not-mapped", OPEN, null_pointer),
	ROW("mr-read-only", "a mapping without PROT_WRITE, with LOCAL_WRITE",
	    "ibv_reg_mr: EFAULT", "mr-read-only", OPEN, read_only),
	ROW("mr-string-literal", "a string literal, with LOCAL_WRITE",
	    "ibv_reg_mr: EFAULT", "mr-read-only", OPEN, string_literal),
	ROW("mr-shared-read-only",
	    "a file mapped MAP_SHARED without PROT_WRITE, for REMOTE_READ",
	    "ibv_reg_mr: EFAULT", "mr-shared-read-only", OPEN,
	    shared_read_only),
	ROW("mr-on-demand", "IBV_ACCESS_ON_DEMAND on a device that pins",
	    "ibv_reg_mr: (EINVAL|EOPNOTSUPP)", "odp-unsupported", OPEN,
	    on_demand),
	ROW("mr-memlock", "more than `ulimit -l` allows", "ibv_reg_mr: ENOMEM",
	    "memlock", OPEN, over_memlock),
	{ 0 },
};
