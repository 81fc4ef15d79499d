/* SPDX-License-Identifier: MIT */
/*
 * parts.h - what the files of this room share. Not for others.
 */
#ifndef EXPLAIN_PARTS_H
#define EXPLAIN_PARTS_H

#include "base/verbs_names.h"
#include "explain.h"

#include <errno.h>

#define EXPLAIN_SGES_MOST 1024 /* looked at: more is nonsense */

/* ---- explain.c ---------------------------------------------------------- */

/*
 * At the top of each function of explain.h that asks the system: errno is again
 * what it was when the function returns, so that "verb_failed(errno,
 * explain_...(errno), ...)" is right in any order of evaluation.
 */
void restore_errno(const int *kept);
#define KEEP_ERRNO                                                             \
	const int kept_errno __attribute__((unused, cleanup(restore_errno))) = \
		errno

/* Bytes of at most @n SGEs together; NULL: 0. */
static inline uint64_t bytes_of(const struct ibv_sge *sges, int n)
{
	uint64_t bytes = 0;

	for (int i = 0; sges && i < n && i < EXPLAIN_SGES_MOST; i++)
		bytes += sges[i].length;
	return bytes;
}

bool gid_is_ipv4(const union ibv_gid *gid);
bool gid_is_zero(const union ibv_gid *gid);

/*
 * ibv_query_qp, except that @qp->state, which the library would correct as well,
 * stays what the program knows. False if the QP could not be queried.
 */
bool peek_at_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		struct ibv_qp_init_attr *init);

/* "rxe0" */
const char *device_of(struct ibv_context *context);

/* ---- net.c: what the IP stack thinks of an address ---------------- */

/* A netlink socket that waits for a second at most. -1: there is none. */
int open_netlink(int protocol);

struct net_device {
	char name[16]; /* IF_NAMESIZE */
	int index;     /* 0: the GID has no network device */
	bool up;       /* administratively */
	bool carrier;  /* and somebody is at the other end */
};

/* The network device behind slot @index of the GID table. */
struct net_device net_device_of_gid(struct ibv_context *context, uint8_t port,
				    uint32_t index);

enum net_route_kind {
	NET_ROUTE_UNKNOWN, /* the kernel could not be asked */
	NET_ROUTE_NONE,	   /* no route */
	NET_ROUTE_LINK,	   /* on the link of the device */
	NET_ROUTE_GATEWAY, /* behind a gateway */
	NET_ROUTE_LOCAL,   /* the address is this host's own */
	NET_ROUTE_REFUSED, /* unreachable, prohibit or blackhole */
};

struct net_route {
	enum net_route_kind kind;
	int device; /* index of the outgoing network device */
	union ibv_gid gateway;
};

/*
 * How the kernel would send to @to by the device @device; a device of 0 leaves
 * the choice to the routing table.
 */
struct net_route net_route_to(const union ibv_gid *to, int device);

enum net_neighbour_state {
	NET_NEIGHBOUR_UNKNOWN, /* the kernel could not be asked */
	NET_NEIGHBOUR_NONE,    /* never asked for, or forgotten */
	NET_NEIGHBOUR_FAILED,  /* asked, and no answer */
	NET_NEIGHBOUR_ASKING,  /* asked just now */
	NET_NEIGHBOUR_KNOWN,   /* has a MAC address */
};

/* What is known of the neighbour @to on @device; its MAC to @mac if known. */
enum net_neighbour_state net_neighbour(const union ibv_gid *to, int device,
				       uint8_t mac[6]);

/* ---- peer.c: a peer in this very kernel --------------------------- */

struct local_peer {
	bool found;    /* its QP is in this kernel, */
	bool sees_all; /* or it is not: this process sees all QPs */
	char device[64];
	uint32_t qp_num, dest_qp_num, rq_psn, sq_psn;
	enum ibv_qp_state state;
};

/* The RDMA device of this host that has @gid; "": none. */
void device_with_gid(char *name, size_t size, const union ibv_gid *gid);

/* Look for QP @qp_num behind @gid in this kernel (RDMA_NLDEV_CMD_RES_QP_GET). */
struct local_peer find_local_peer(const union ibv_gid *gid, uint32_t qp_num);

/* The MAC address of the network device of Soft-RoCE device @device. */
bool device_mac(const char *device, uint8_t mac[6]);

/* One counter of /sys/class/infiniband/DEVICE/ports/1/hw_counters; -1: none. */
long long hw_counter(const char *device, const char *name);

/* ---- path.c: the address checks of RTR and ibv_create_ah ---------- */

/* @ah leads nowhere: ENODATA, ENETUNREACH, ETIMEDOUT, ENODEV or EINVAL. */
struct explanation explain_path(struct ibv_context *context,
				const struct ibv_ah_attr *ah, int err);

/* The checks of explain_path() for EINVAL only: no GRH, families differ. */
struct explanation explain_path_values(struct ibv_context *context,
				       const struct ibv_ah_attr *ah);

/* ---- accepted.c --------------------------------------------------- */

/* Is dest_qp_num @qpn a QPN with its bytes the wrong way round? */
struct explanation explain_swapped_qpn(uint32_t qpn);

/* ---- wc.c --------------------------------------------------------- */

/* Is @id that of a status, which proves nothing? */
static inline bool explain_is_status(const char *id)
{
	return *id >= 'A' && *id <= 'Z';
}

/* What keeps the ACKs of @qp's requests from coming; nothing if unknown. */
struct explanation why_no_ack(struct ibv_qp *qp,
			      const struct explain_request *request);

/* Only: can this side's network device carry what @qp sends? */
struct explanation why_no_link(struct ibv_qp *qp,
			       const struct explain_request *request);

/* Only: is the peer's QP, in this kernel, one that can talk to @qp? */
struct explanation why_no_peer(struct ibv_qp *qp,
			       const struct explain_request *request);

#endif
