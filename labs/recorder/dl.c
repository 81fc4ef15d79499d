// SPDX-License-Identifier: MIT
/*
 * dl.c —— 真的函数在哪里；以及用 dlopen + dlsym 取 verbs 的程序
 *
 * 链接了 libibverbs 的程序，LD_PRELOAD 换得了它的符号。NCCL、Python 的 ctypes 却是
 * 自己 dlopen("libibverbs.so.1")，再 dlsym 一个个函数：在指定的库里找，不经过我们。所以
 * 连 dlsym 与 dlvsym 也换掉，让它们给出“假如链接了 libibverbs 就会拿到的”那一个。
 *
 * 换 dlsym 有三件事不能错：
 *   - RTLD_NEXT、RTLD_DEFAULT 的意思取决于谁在问，glibc 看的是返回地址。所以不归我们管的
 *     用 tail call 转交：真的 dlsym 看到的仍是原来的调用者（Makefile 保证 -O2）；
 *   - 版本要对得上：只有在那个库里找到的正是我们会去调用的那一个时，才换；
 *   - 别的 preload、sanitizer、自带 malloc 的程序很早就会调用它：不用 malloc，不依赖
 *     constructor 已经运行。
 */
#include "event.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>

typedef void *(*dlsym_fn)(void *handle, const char *name);
typedef void *(*dlvsym_fn)(void *handle, const char *name, const char *version);

/* ---- 真的 dlsym：两个名字都被我们占了，只能自己读 ELF 的符号表 --------------- */

struct symbols {
	const ElfW(Sym) * table;
	const char *names;
	const uint32_t *hash;
};

static struct symbols symbols_of(const struct link_map *map)
{
	struct symbols s = { 0 };

	for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
		/* ld.so 把多数库的这些地址加上了基址，vdso 的没有。*/
		uintptr_t at = d->d_un.d_ptr < map->l_addr
				       ? d->d_un.d_ptr + map->l_addr
				       : d->d_un.d_ptr;

		if (d->d_tag == DT_SYMTAB)
			s.table = (const void *)at;
		else if (d->d_tag == DT_STRTAB)
			s.names = (const void *)at;
		else if (d->d_tag == DT_GNU_HASH)
			s.hash = (const void *)at;
	}
	return s;
}

/* DT_GNU_HASH：4 个数的头，bloom filter，桶，链；链上最后一个的最低位是 1。*/
static void *find_in(const struct link_map *map, const char *name)
{
	struct symbols s = symbols_of(map);
	const uint32_t *buckets, *chain;
	uint32_t hash = 5381, i;

	if (!s.table || !s.names || !s.hash || !s.hash[0])
		return NULL;
	for (const char *c = name; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	buckets = s.hash + 4 + s.hash[2] * (sizeof(ElfW(Addr)) / 4);
	chain = buckets + s.hash[0] - s.hash[1];
	for (i = buckets[hash % s.hash[0]]; i >= s.hash[1]; i++) {
		if ((chain[i] | 1) == (hash | 1) && s.table[i].st_shndx &&
		    !strcmp(s.names + s.table[i].st_name, name))
			return (void *)(map->l_addr + s.table[i].st_value);
		if (chain[i] & 1)
			break;
	}
	return NULL;
}

/* 排在我们后面的：前面的另一个 preload 正是调用我们的那一个。@real：找到过就记着。*/
static void *next_function(const char *name, void *_Atomic *real)
{
	void *found = atomic_load_explicit(real, memory_order_relaxed);
	const struct link_map *map = _r_debug.r_map;

	while (!found && map && map->l_ld != _DYNAMIC)
		map = map->l_next;
	while (!found && map && (map = map->l_next))
		found = find_in(map, name);
	atomic_store_explicit(real, found, memory_order_relaxed);
	return found;
}

static dlsym_fn real_dlsym(void)
{
	static void *_Atomic real;

	return (dlsym_fn)next_function("dlsym", &real);
}

static dlvsym_fn real_dlvsym(void)
{
	static void *_Atomic real;

	return (dlvsym_fn)next_function("dlvsym", &real);
}

/* ---- 我们包着的那一个 ------------------------------------------------------ */

static bool same_library(void *a, void *b)
{
	Dl_info x, y;

	return dladdr(a, &x) && dladdr(b, &y) && x.dli_fbase == y.dli_fbase;
}

/*
 * 版本要对：libibverbs 里同一个名字有 1.0 与 1.1 两个版本，结构体布局都不同，拿错就
 * 崩溃。但排在我们后面的另一个 preload 多半没有版本，dlvsym 会跳过它：那是别人的
 * 东西，不能绕开，所以先看下一个是谁。
 * dlopen(RTLD_LOCAL) 载入的 libibverbs（UCX 的插件、NCCL）不在全局的查找范围里，
 * RTLD_NEXT 找不到它；但它已经在进程里，RTLD_NOLOAD 取得到句柄。句柄不关：记住的地址
 * 在 dlclose 之后也要有效。
 */
void *real_symbol(const char *name, const char *version)
{
	void *next = real_dlsym()(RTLD_NEXT, name);
	void *exact = real_dlvsym()(RTLD_NEXT, name, version);
	void *library;

	if (next && !(exact && same_library(next, exact)))
		return next;
	if (!exact) {
		library = dlopen(strncmp(name, "rdma_", 5) ? "libibverbs.so.1"
							   : "librdmacm.so.1",
				 RTLD_LAZY | RTLD_NOLOAD);
		if (library)
			exact = real_dlvsym()(library, name, version);
	}
	if (!exact)
		errno = ENOSYS;
	return exact;
}

/* ---- 程序的 dlsym ---------------------------------------------------------- */

/* @found 是程序在它打开的库里找到的。*/
static void *instead_of(void *found, const char *name)
{
	static const char *const versions[] = {
		"IBVERBS_1.0", "IBVERBS_1.1",  "IBVERBS_1.6",  "IBVERBS_1.7",
		"IBVERBS_1.8", "IBVERBS_1.12", "IBVERBS_1.15", "IBVERBS_1.17",
	};
	int saved_errno = errno;
	void *result = found;

	if (!found)
		return NULL;
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		void *ours = real_dlvsym()(RTLD_DEFAULT, name, versions[i]);

		if (ours && same_library(ours, &recorder) &&
		    real_symbol(name, versions[i]) == found) {
			result = ours;
			break;
		}
	}
	/* 落空的查找留下了话；程序的 dlsym 却是成功的。*/
	dlerror();
	errno = saved_errno;
	return result;
}

static bool is_for_us(const void *handle, const char *name)
{
	return recorder.file[0] && handle != RTLD_NEXT &&
	       handle != RTLD_DEFAULT && name && !strncmp(name, "ibv_", 4);
}

EXPORTED void *dlsym(void *restrict handle, const char *restrict name)
{
	if (!is_for_us(handle, name))
		return real_dlsym()(handle, name);
	return instead_of(real_dlsym()(handle, name), name);
}

EXPORTED void *dlvsym(void *restrict handle, const char *restrict name,
		      const char *restrict version)
{
	if (!is_for_us(handle, name))
		return real_dlvsym()(handle, name, version);
	return instead_of(real_dlvsym()(handle, name, version), name);
}
