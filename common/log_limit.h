/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* How many warnings a user's requests may log: a burst, then one every few seconds, so that a loop
 * of refused requests fills no disk and hides no other line. The caller locks. */
#ifndef COMMON_LOG_LIMIT_H
#define COMMON_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LOG_LIMIT_BURST	  20
#define LOG_LIMIT_SECONDS 3

/* More users than this at a time take the place of the user who was silent longest. */
#define LOG_LIMIT_USERS 64

struct log_limit_user {
	bool used;
	uid_t uid;
	int64_t paid_until; /* ns: each line costs LOG_LIMIT_SECONDS */
	int64_t asked;	    /* ns */
	uint64_t left_out;  /* since the last line that was logged */
};

struct log_limit {
	struct log_limit_user users[LOG_LIMIT_USERS];
};

/* Whether one more line may be logged at this time (CLOCK_MONOTONIC, ns); *left_out: how many of
 * this user's lines were not, before this one. */
bool log_limit_take(struct log_limit *limit, uid_t uid, int64_t now, uint64_t *left_out);

#endif
