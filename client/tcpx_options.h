/* SPDX-License-Identifier: MIT */
/*
 * tcpx_options.h - the command line of test_connection:
 *
 *	test_connection [options] server
 *	test_connection [options] client <server_ip>
 */
#ifndef CLIENT_TCPX_OPTIONS_H
#define CLIENT_TCPX_OPTIONS_H

#include "tcpx/session.h"

struct tcpx_options {
	struct tcpx_test test;
	bool json; /* result as one JSON object */
};

/*
 * Parse the command line. Returns -1 to go on, or the exit code to end with: 0
 * after --help, 2 after reporting wrong usage.
 */
int tcpx_options_parse(struct tcpx_options *opt, int argc, char *argv[]);

#endif
