/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Tokens: redeemed once, by the user that asked for the token, before the token expires. And the
 * parser of the sharing socket. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fs/core/limits.h"
#include "fs/share/token.h"
#include "fs/share/wire.h"
#include "fs/tree/user_limits.h"
#include "tests/unit/fs_fixture.h"
#include "tests/unit/unit.h"

static struct token_table tokens;
static _Atomic int64_t seconds_ahead;

/* In place of libc's function, so that tokens expire without waiting. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
	int rc = (int)syscall(SYS_clock_gettime, clock, time);

	if (rc == 0 && clock == CLOCK_MONOTONIC)
		time->tv_sec += seconds_ahead;
	return rc;
}

static void up(void)
{
	fixture_up();
	token_table_init(&tokens);
	ck_assert_int_eq(make_file(gpu(0), "f"), 0);
}

static void down(void)
{
	token_table_destroy(&fixture, &tokens);
	fixture_down();
}

static int issue(uid_t uid, uint8_t bytes[GPUMEM_TOKEN_BYTES])
{
	return token_issue(&fixture, &tokens, at(gpu(0), "f"), uid, GPUMEM_ACCESS_WRITE, bytes);
}

/* The test gives the reference back at once. */
static int redeem(uid_t uid, const uint8_t bytes[GPUMEM_TOKEN_BYTES])
{
	struct token_redeemed redeemed;
	int error = token_redeem(&fixture, &tokens, bytes, uid, &redeemed);

	if (error)
		return error;
	ck_assert_ptr_eq(redeemed.inode, at(gpu(0), "f"));
	ck_assert_int_eq(redeemed.access, GPUMEM_ACCESS_WRITE);
	inode_put(&fixture, redeemed.inode, 1);
	return 0;
}

START_TEST(works_once_for_its_user)
{
	uint8_t token[GPUMEM_TOKEN_BYTES], other[GPUMEM_TOKEN_BYTES] = {0};

	ck_assert_int_eq(redeem(1000, other), -EACCES);
	ck_assert_int_eq(issue(1000, token), 0);
	ck_assert_int_eq(redeem(1001, token), -EACCES);
	ck_assert_int_eq(redeem(0, token), -EACCES);
	memcpy(other, token, sizeof(other));
	other[31] ^= 1;
	ck_assert_int_eq(redeem(1000, other), -EACCES);
	ck_assert_int_eq(redeem(1000, token), 0);
	ck_assert_int_eq(redeem(1000, token), -EACCES);
}
END_TEST

START_TEST(works_for_some_seconds)
{
	uint8_t first[GPUMEM_TOKEN_BYTES], second[GPUMEM_TOKEN_BYTES];

	ck_assert_int_eq(issue(1000, first), 0);
	ck_assert_int_eq(issue(1000, second), 0);
	seconds_ahead = GPUMEM_TOKEN_SECONDS - 2;
	ck_assert_int_eq(redeem(1000, first), 0);
	ck_assert_uint_eq(user_limits_count(&fixture, 1000, USER_TOKENS), 1);
	seconds_ahead = GPUMEM_TOKEN_SECONDS + 1;
	ck_assert_int_eq(redeem(1000, second), -EACCES);
	ck_assert_uint_eq(user_limits_count(&fixture, 1000, USER_TOKENS), 0);
}
END_TEST

START_TEST(no_two_alike_and_any_order)
{
	static uint8_t many[200][GPUMEM_TOKEN_BYTES];

	for (unsigned i = 0; i < 200; i++) {
		ck_assert_int_eq(issue(i % 3, many[i]), 0);
		for (unsigned j = 0; j < i; j++)
			ck_assert_mem_ne(many[i], many[j], GPUMEM_TOKEN_BYTES);
	}
	for (unsigned i = 0; i < 200; i += 2)
		ck_assert_int_eq(redeem(i % 3, many[i]), 0);
	for (unsigned i = 200; i-- > 0;)
		ck_assert_int_eq(redeem(i % 3, many[i]), i % 2 ? 0 : -EACCES);
	ck_assert_uint_eq(tokens.count, 0);
	ck_assert_uint_eq(at(gpu(0), "f")->refs, 1);
}
END_TEST

START_TEST(one_user_does_not_take_them_all)
{
	uint8_t token[GPUMEM_TOKEN_BYTES];

	for (unsigned i = 0; i < TOKENS_PER_UID_MAX; i++)
		ck_assert_int_eq(issue(7, token), 0);
	ck_assert_int_eq(issue(7, token), -EMFILE);
	ck_assert_int_eq(issue(8, token), 0);
	ck_assert_int_eq(redeem(8, token), 0);
}
END_TEST

/* Of two threads that race for a token, a single thread redeems the token. */
static uint8_t raced[GPUMEM_TOKEN_BYTES];

static void *race(void *unused)
{
	(void)unused;
	int won = redeem(5, raced) == 0;

	worker_end();
	return (void *)(intptr_t)won;
}

START_TEST(races_have_one_winner)
{
	for (unsigned round = 0; round < 200; round++) {
		pthread_t threads[3];
		intptr_t won = 0;

		ck_assert_int_eq(issue(5, raced), 0);
		for (unsigned i = 0; i < 3; i++)
			pthread_create(&threads[i], NULL, race, NULL);
		for (unsigned i = 0; i < 3; i++) {
			void *result;

			pthread_join(threads[i], &result);
			won += (intptr_t)result;
		}
		ck_assert_int_eq(won, 1);
	}
}
END_TEST

static struct gpumem_msg_header header(uint16_t type, uint32_t bytes)
{
	return (struct gpumem_msg_header){GPUMEM_MAGIC, GPUMEM_PROTOCOL_VERSION, type, bytes, 42};
}

START_TEST(only_exact_packets_pass)
{
	struct gpumem_msg_extend extend = {header(GPUMEM_MSG_EXTEND, sizeof(extend)), 5, 6};
	char packet[128] = {0};
	struct share_request request;

	ck_assert_int_eq(share_request_parse(&extend, sizeof(extend), &request), 0);
	ck_assert_int_eq(request.type, GPUMEM_MSG_EXTEND);
	ck_assert_uint_eq(request.number, 42);
	ck_assert_uint_eq(request.lease, 5);
	ck_assert_uint_eq(request.first_chunk, 6);
	for (size_t bytes = 0; bytes < sizeof(packet); bytes++) {
		memcpy(packet, &extend, sizeof(extend));
		((struct gpumem_msg_header *)packet)->bytes = (uint32_t)bytes;
		ck_assert_int_eq(share_request_parse(packet, bytes, &request),
				 bytes == sizeof(extend) ? 0 : -EBADMSG);
	}
	extend.header.bytes++;
	ck_assert_int_eq(share_request_parse(&extend, sizeof(extend), &request), -EBADMSG);
	extend.header.bytes--;
	extend.header.magic++;
	ck_assert_int_eq(share_request_parse(&extend, sizeof(extend), &request), -EBADMSG);
	extend.header.magic--;
	extend.header.version++;
	ck_assert_int_eq(share_request_parse(&extend, sizeof(extend), &request), -EPROTONOSUPPORT);
	extend.header.version--;
	extend.first_chunk = UINT64_MAX;
	ck_assert_int_eq(share_request_parse(&extend, sizeof(extend), &request), -EBADMSG);
	for (uint16_t type = 4; type < 64; type++) { /* 4 is the type of a header alone */
		extend.header.type = type;
		ck_assert_int_eq(share_request_parse(&extend, sizeof(extend), &request), -EBADMSG);
	}
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("tokens and messages", &tests, 120);

	tcase_add_checked_fixture(tests, up, down);
	tcase_add_test(tests, works_once_for_its_user);
	tcase_add_test(tests, works_for_some_seconds);
	tcase_add_test(tests, no_two_alike_and_any_order);
	tcase_add_test(tests, one_user_does_not_take_them_all);
	tcase_add_test(tests, races_have_one_winner);
	tcase_add_test(tests, only_exact_packets_pass);
	return unit_main(suite);
}
