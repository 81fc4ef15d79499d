/* SPDX-License-Identifier: MIT */
/*
 * options.h - the command line of rdma_server and rdma_client.
 *
 *	rdma_server [options] [device_name] [port] [gid_index]
 *	rdma_client [options] <server_ip> [device_name] [port] [gid_index]
 */
#ifndef PAIR_OPTIONS_H
#define PAIR_OPTIONS_H

#include "measure.h"
#include "rdma_common.h"

enum role {
	ROLE_SERVER,
	ROLE_CLIENT
};

struct rdma_options {
	enum role role;
	const char *server;	   /* client: host name or address */
	uint16_t tcp_port;	   /* host byte order */
	const char *message;	   /* text to send */
	int timeout_ms;		   /* 0: the default of each wait */
	bool json;		   /* result as one JSON object */
	struct rdma_config config; /* device, GID, sizes, events */
	struct measure_plan plan;  /* once, ping-pong or bandwidth */
	bool cm;		   /* connect by librdmacm, not over TCP */
	/* server, for many clients, whose plans are their own */
	uint32_t many;	/* of them at once; 0: one, and then it ends */
	uint32_t slots; /* receives that they share; 0: a few for each */
	int credits;	/* messages of one in a turn; 0: any, -1: its share */
};

/*
 * Parse the command line. Returns -1 to go on, or the exit code to end with: 0
 * after --help, 2 after reporting wrong usage.
 */
int options_parse(struct rdma_options *opt, enum role role, int argc,
		  char *argv[]);

#define DEVICE_OPERANDS "[device_name] [port] [gid_index]"
#define DEVICE_HELP                                                      \
	"  device_name        RDMA device (default: the first usable)\n" \
	"  port               TCP port (default: 18515)\n"               \
	"  gid_index          GID table slot (default: chosen by type)\n\n"

/* A row of option_row, @place: rdma_config's events. */
#define EVENTS(place)                    \
	.letter = 'e', .name = "events", \
	.help = "sleep until completions come instead of polling", FLAG(place)

/*
 * Take [device_name] [port] [gid_index], of which @argc are there, into @opt. -1, or
 * 2 after reporting what is wrong, with @next.
 */
int options_device(struct rdma_options *opt, const char *next, int argc,
		   char *argv[]);

/* The same with <server_ip> before them. */
int options_server(struct rdma_options *opt, const char *next, int argc,
		   char *argv[]);

/* @opt's limit for a wait whose default is @default_ms, milliseconds. */
int timeout_or(const struct rdma_options *opt, int default_ms);

#endif
