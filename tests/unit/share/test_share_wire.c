/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The parser of the sharing socket. */
#include <errno.h>
#include <string.h>

#include "fs/share/wire.h"
#include "tests/unit/unit.h"

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
	for (uint16_t type = 0; type < 64; type++) {
		/* Packets of these lengths are a release and an extension. */
		if (type == GPUMEM_MSG_EXTEND)
			continue;
		extend.header.type = type;
		ck_assert_int_eq(share_request_parse(&extend, sizeof(extend), &request), -EBADMSG);
	}
}
END_TEST

START_TEST(messages_about_notices)
{
	struct gpumem_msg_listen listen = {header(GPUMEM_MSG_LISTEN, sizeof(listen)), 3, 0};
	struct gpumem_msg_noticed noticed = {header(GPUMEM_MSG_NOTICED, sizeof(noticed)), 28, 9};
	struct share_request request;

	ck_assert_int_eq(share_request_parse(&listen, sizeof(listen), &request), 0);
	ck_assert_int_eq(request.type, GPUMEM_MSG_LISTEN);
	ck_assert_uint_eq(request.flags, 3);
	for (uint32_t flags = 0; flags < 32; flags++) {
		listen.flags = flags;
		ck_assert_int_eq(share_request_parse(&listen, sizeof(listen), &request),
				 flags >= 1 && flags <= 15 ? 0 : -EBADMSG);
	}
	listen.flags = 1;
	listen.reserved = 1;
	ck_assert_int_eq(share_request_parse(&listen, sizeof(listen), &request), -EBADMSG);
	ck_assert_int_eq(share_request_parse(&noticed, sizeof(noticed), &request), 0);
	ck_assert_int_eq(request.type, GPUMEM_MSG_NOTICED);
	ck_assert_uint_eq(request.number, 42);
	ck_assert_int_eq(request.error, 28);
	ck_assert_uint_eq(request.files, 9);
	noticed.error = -1;
	ck_assert_int_eq(share_request_parse(&noticed, sizeof(noticed), &request), -EBADMSG);
	noticed.error = 4096;
	ck_assert_int_eq(share_request_parse(&noticed, sizeof(noticed), &request), -EBADMSG);
}
END_TEST

START_TEST(packets_with_pieces)
{
	union {
		struct gpumem_msg_pieces head;
		char bytes[SHARE_PIECES_MAX + 8];
	} packet = {.head = {.header = {.magic = GPUMEM_MAGIC,
					.version = GPUMEM_PROTOCOL_VERSION,
					.type = GPUMEM_MSG_PIECES}}};
	struct gpumem_msg_pieces parsed;

	for (uint32_t n = 0; n <= GPUMEM_FDS_MAX + 1; n++) {
		uint32_t bytes = (uint32_t)(sizeof(packet.head) + n * sizeof(uint64_t));

		packet.head.n_pieces = n;
		packet.head.header.bytes = bytes;
		ck_assert_int_eq(share_pieces_parse(&packet, bytes, &parsed),
				 n <= GPUMEM_FDS_MAX ? 0 : -EBADMSG);
		ck_assert_int_eq(share_pieces_parse(&packet, bytes - 1, &parsed), -EBADMSG);
		packet.head.n_pieces = n + 1;
		ck_assert_int_eq(share_pieces_parse(&packet, bytes, &parsed), -EBADMSG);
	}
	packet.head.header.version++;
	ck_assert(!share_is_pieces(&packet, sizeof(packet.head)));
	packet.head.header.version--;
	ck_assert(share_is_pieces(&packet, sizeof(packet.head)));
	packet.head.header.type = GPUMEM_MSG_EXTEND;
	ck_assert(!share_is_pieces(&packet, sizeof(packet.head)));
}
END_TEST

int main(void)
{
	TCase *tests;
	Suite *suite = unit_suite("messages", &tests, 60);

	tcase_add_test(tests, only_exact_packets_pass);
	tcase_add_test(tests, messages_about_notices);
	tcase_add_test(tests, packets_with_pieces);
	return unit_main(suite);
}
