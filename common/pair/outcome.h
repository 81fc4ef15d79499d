/* SPDX-License-Identifier: MIT */
/*
 * outcome.h - what a run of rdma_server or rdma_client brought, and how it is
 * told: as text, or as one JSON object.
 */
#ifndef PAIR_OUTCOME_H
#define PAIR_OUTCOME_H

#include "options.h"

/* What a run brought, as far as its mode fills it. */
struct outcome {
	uint32_t sent_bytes;	 /* MODE_ONCE */
	uint32_t received_bytes; /* MODE_ONCE */
	char text[256];		 /* MODE_ONCE: what arrived, printable */
	bool measured;		 /* measure is filled */
	struct measure_result measure;
};

/* Bytes of each message that this side will send. */
uint32_t message_size(const struct rdma_options *opt,
		      const struct rdma_resources *res);

/* Device, port and GID index, as a fact. */
void show_device(const struct rdma_resources *res);

/* Print the result on stdout: text, or JSON with @opt->json. */
int report_outcome(const struct rdma_options *opt,
		   const struct rdma_resources *res, const struct outcome *out);

#endif
