/* SPDX-License-Identifier: MIT */
/*
 * former.h - for a stage that was written when the functions of rdma_common.h had
 * other names: it is compiled behind this, and its object gets the names of now
 * (build.sh). A row each: the name of now, and the one of then.
 */
#define open_device	rdma_open_device
#define close_device	rdma_close_device
#define choose_gid	rdma_choose_gid
#define create_objects	rdma_create_objects
#define destroy_objects rdma_destroy_objects
#define create_pd	rdma_create_pd
#define create_cq	rdma_create_cq
#define create_qp	rdma_create_qp

#include "rdma_common.h"

#undef open_device
#undef close_device
#undef choose_gid
#undef create_objects
#undef destroy_objects
#undef create_pd
#undef create_cq
#undef create_qp
