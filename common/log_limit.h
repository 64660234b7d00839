/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Limits the warnings caused by a user's requests: a burst, then a line every few seconds, so a
 * loop of refused requests does not fill the disk or hide other lines. The caller locks. */
#ifndef COMMON_LOG_LIMIT_H
#define COMMON_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LOG_LIMIT_BURST	  20
#define LOG_LIMIT_SECONDS 3

/* With more users at a time, a new user takes the entry of the user with the oldest line. */
#define LOG_LIMIT_USERS 64

struct log_limit_user {
	bool used;
	uid_t uid;
	int64_t paid_until; /* ns: each line costs LOG_LIMIT_SECONDS */
	int64_t asked;	    /* ns: the user's latest line */
	uint64_t left_out;  /* since the last line that was logged */
};

struct log_limit {
	struct log_limit_user users[LOG_LIMIT_USERS];
};

/* Whether the user may log another line at this time (CLOCK_MONOTONIC, ns). *left_out: how many of
 * the user's lines were left out before. */
bool log_limit_take(struct log_limit *limit, uid_t uid, int64_t now, uint64_t *left_out);

#endif
