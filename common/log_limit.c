/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/log_limit.h"

#define COST ((int64_t)LOG_LIMIT_SECONDS * 1000000000)

static struct log_limit_user *user_of(struct log_limit *limit, uid_t uid, int64_t now)
{
	struct log_limit_user *oldest = &limit->users[0];

	for (unsigned i = 0; i < LOG_LIMIT_USERS; i++) {
		struct log_limit_user *user = &limit->users[i];

		if (user->used && user->uid == uid)
			return user;
		if (oldest->used && (!user->used || user->asked < oldest->asked))
			oldest = user;
	}
	*oldest = (struct log_limit_user){.used = true, .uid = uid, .paid_until = now};
	return oldest;
}

bool log_limit_take(struct log_limit *limit, uid_t uid, int64_t now, uint64_t *left_out)
{
	struct log_limit_user *user = user_of(limit, uid, now);

	user->asked = now;
	if (user->paid_until < now)
		user->paid_until = now;
	if (user->paid_until + COST > now + LOG_LIMIT_BURST * COST) {
		user->left_out++;
		return false;
	}
	user->paid_until += COST;
	*left_out = user->left_out;
	user->left_out = 0;
	return true;
}
