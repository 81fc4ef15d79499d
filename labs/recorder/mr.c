// SPDX-License-Identifier: MIT
/*
 * mr.c —— 控制路径：注册内存的几种叫法，与改注册
 */
#include "base/verbs_names.h"
#include "event.h"
#include "objects.h"
#include "writer.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* 打听一下而已，不是失败：只写进记录。*/
static void explain_dmabuf(struct event *e, struct ibv_pd *pd, int fd,
			   size_t length)
{
	struct explanation why;

	LINE_NUMBER(&e->line, "dmabuf", fd);
	if (!e->err)
		return;
	why = explain_reg_dmabuf_mr(pd, fd, e->err);
	if (why.id && !strcmp(why.id, EXPLAIN_PROBE))
		e->why = why;
	else
		event_explain(e, why, "ibv_reg_dmabuf_mr(fd %d, %zu bytes)", fd,
			      length);
}

/* @iova、@fd 为 NULL：调用里没有，地址就是 @addr。*/
static void record_mr(struct event *e, struct ibv_mr *mr, struct ibv_pd *pd,
		      const void *addr, size_t length, const uint64_t *iova,
		      const int *fd, unsigned int access)
{
	char flags[ACCESS_TEXT_SIZE];

	access_text(flags, sizeof(flags), access);
	if (iova)
		LINE_HEX(&e->line, "iova", *iova);
	if (fd)
		explain_dmabuf(e, pd, *fd, length);
	else
		EXPLAIN_ERR(e,
			    explain_reg_mr_call(pd, addr, length, (int)access,
						e->err),
			    "ibv_reg_mr(%p, %zu bytes, %s)", addr, length,
			    flags);
	LINE_HEX(&e->line, "addr", (uintptr_t)addr);
	LINE_NUMBER(&e->line, "len", length);
	LINE_TEXT(&e->line, "access", flags);
	if (mr) {
		LINE_HEX(&e->line, "lkey", mr->lkey);
		LINE_HEX(&e->line, "rkey", mr->rkey);
	}
	writer_lock();
	object_add(OBJECT_MR, mr, pd->context);
	line_add_object(&e->line, OBJECT_MR, mr);
	line_add_object(&e->line, OBJECT_PD, pd);
	event_end(e);
}

/* 几种叫法只差参数。*/
#define REG_MR(name, version, PARAMS, iova, ...)                  \
	EXPORTED struct ibv_mr *name PARAMS                       \
	{                                                         \
		REAL(name, version, NULL);                        \
		struct ibv_mr *mr;                                \
		struct event e;                                   \
                                                                  \
		RECORD_MADE(&e, "reg_mr", mr, real(__VA_ARGS__)); \
		record_mr(&e, mr, pd, addr, length, iova, NULL,   \
			  (unsigned int)access);                  \
		return mr;                                        \
	}
REG_MR(ibv_reg_mr, "IBVERBS_1.1",
       (struct ibv_pd * pd, void *addr, size_t length, int access), NULL, pd,
       addr, length, access)
REG_MR(ibv_reg_mr_iova, "IBVERBS_1.7",
       (struct ibv_pd * pd, void *addr, size_t length, uint64_t iova,
	int access),
       &iova, pd, addr, length, iova, access)
/* access 不是编译期常量时，verbs.h 的宏 ibv_reg_mr 变成这一个。*/
REG_MR(ibv_reg_mr_iova2, "IBVERBS_1.8",
       (struct ibv_pd * pd, void *addr, size_t length, uint64_t iova,
	unsigned int access),
       &iova, pd, addr, length, iova, access)

EXPORTED struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
					  size_t length, uint64_t iova, int fd,
					  int access)
{
	MADE(struct ibv_mr *, mr, reg_dmabuf_mr, "1.12", pd, offset, length,
	     iova, fd, access);

	record_mr(&e, mr, pd, NULL, length, &iova, &fd, (unsigned int)access);
	return mr;
}

/*
 * 新的 rdma-core 又添了两个入口：ibv_rc_pingpong 用的是后一个。旧的头文件里没有它们，所以
 * 声明写在这里，结构体只看开头那些永远不会动的成员。
 */
struct ibv_mr_init_attr;
struct ibv_buf;
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf,
			      void *addr, size_t length, int access);

struct asked {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
};
enum {
	HAS_IOVA = 1,
	HAS_ADDR = 2,
	HAS_FD = 4
};

EXPORTED struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd,
				      struct ibv_mr_init_attr *attr)
{
	REAL(ibv_reg_mr_ex, "IBVERBS_1.15", NULL);
	const struct asked *asked = (const void *)attr;
	const uint64_t has = asked->comp_mask;
	struct ibv_mr *mr;
	struct event e;

	RECORD_MADE(&e, "reg_mr", mr, real(pd, attr));
	record_mr(&e, mr, pd, has & HAS_ADDR ? asked->addr : NULL,
		  asked->length, has & HAS_IOVA ? &asked->iova : NULL,
		  has & HAS_FD ? &asked->fd : NULL,
		  (unsigned int)asked->access);
	return mr;
}

REG_MR(ibv_reg_buf_mr, "IBVERBS_1.17",
       (struct ibv_pd * pd, struct ibv_buf *buf, void *addr, size_t length,
	int access),
       NULL, pd, buf, addr, length, access)

EXPORTED int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
			  void *addr, size_t length, int access)
{
	REAL(ibv_rereg_mr, "IBVERBS_1.1", IBV_REREG_MR_ERR_INPUT);
	char text[ACCESS_TEXT_SIZE];
	struct event e;
	int rc;

	if (!event_begin(&e, "rereg_mr"))
		return real(mr, flags, pd, addr, length, access);
	rc = real(mr, flags, pd, addr, length, access);
	event_returned(&e, rc ? errno : 0);
	EXPLAIN_ERR(&e, UNKNOWN, "ibv_rereg_mr(flags 0x%x)",
		    (unsigned int)flags);
	LINE_HEX(&e.line, "flags", (unsigned int)flags);
	LINE_HEX(&e.line, "lkey", mr->lkey);
	LINE_HEX(&e.line, "rkey", mr->rkey);
	writer_lock();
	line_add_object(&e.line, OBJECT_MR, mr);
	/* 之后还用旧的范围去核对 SGE，就会冤枉它。*/
	if (flags & IBV_REREG_MR_CHANGE_PD)
		line_add_object(&e.line, OBJECT_PD, pd);
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		LINE_TEXT(&e.line, "access",
			  access_text(text, sizeof(text),
				      (unsigned int)access));
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		LINE_HEX(&e.line, "addr", (uintptr_t)addr);
		LINE_NUMBER(&e.line, "len", length);
	}
	event_end(&e);
	return rc;
}
