/* SPDX-License-Identifier: MIT */
/*
 * auth.h - the token that a client must show, if the engine was started
 * with one.
 */
#ifndef ENGINE_AUTH_H
#define ENGINE_AUTH_H

#include "ipc/proto.h"

#define ENGINE_TOKEN_MOST 4096 /* bytes */

/* Zero it for "no token is needed". Only a digest is kept. */
struct engine_auth {
	bool needed;
	unsigned char digest[32]; /* SHA-256 */
};

/*
 * Read the token in file @path: all of it but one newline at the end. Returns its
 * length; -EINVAL: empty, or over ENGINE_TOKEN_MOST; or -errno (reported). Warns
 * if others than the owner may read the file.
 */
#define ENGINE_TOKEN_SIZE (ENGINE_TOKEN_MOST + 2)
int engine_token_read(char token[ENGINE_TOKEN_SIZE], const char *path);

/* Take the token from file @path. As engine_token_read(), but 0. */
int engine_auth_load(struct engine_auth *auth, const char *path);

/*
 * Is @token the one? Takes equally long however much of it is right. True if none
 * is needed.
 */
bool engine_auth_check(const struct engine_auth *auth,
		       struct engine_text token);

#endif
