/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The lies told instead of the truth. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mount/lying/lying.h"

#define HOSTILE "\033]0;title\007\302\2332J\177\nforged: line\n\377"

uint64_t lie_pick(const struct lie *lie, unsigned place, uint64_t limit)
{
	/* splitmix64 */
	uint64_t z = lie->seed * 0x9e3779b97f4a7c15 + place * 0xd1342543de82ef95 + 1;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (z ^ z >> 31) % limit;
}

uint64_t lie_number(const struct lie *lie, unsigned place)
{
	static const uint64_t numbers[] = {0,
					   1,
					   4095,
					   UINT32_MAX,
					   1ULL << 32,
					   1ULL << 40,
					   1ULL << 42,
					   1ULL << 46,
					   1ULL << 62,
					   INT64_MAX - 4096,
					   INT64_MAX,
					   1ULL << 63,
					   UINT64_MAX - 4095,
					   UINT64_MAX};

	return numbers[lie_pick(lie, place, sizeof(numbers) / sizeof(numbers[0]))];
}

void lie_attr(const struct lie *lie, struct stat *st)
{
	/* No FIFO: a client may rightly wait for the FIFO's writer. */
	static const mode_t types[] = {S_IFREG, S_IFDIR, S_IFBLK, S_IFSOCK, S_IFLNK, S_IFCHR, 0};

	if (lie->seed >> 40) { /* a seed from 2^40 on is the size */
		st->st_size = (off_t)lie->seed;
		return;
	}
	switch (lie_pick(lie, 0, 6)) {
	case 0:
	case 1:
		st->st_size = (off_t)lie_number(lie, 1);
		break;
	case 2:
		st->st_blocks = (blkcnt_t)lie_number(lie, 1);
		break;
	case 3:
		st->st_size = (off_t)lie_number(lie, 1);
		st->st_blocks = (blkcnt_t)lie_number(lie, 2);
		break;
	case 4:
		st->st_mode = (st->st_mode & ~(mode_t)S_IFMT) | types[lie_pick(lie, 1, 7)];
		break;
	default:
		st->st_mtim.tv_sec = (time_t)lie_number(lie, 1);
		st->st_nlink = (nlink_t)lie_number(lie, 2);
		st->st_uid = (uid_t)lie_number(lie, 3);
		st->st_blksize = (blksize_t)lie_number(lie, 4);
	}
}

/* --- texts */

static size_t put(char *text, const char *instead)
{
	return strlen(strcpy(text, instead));
}

static size_t fill(char *text, size_t bytes, const char *with)
{
	size_t length = strlen(with);

	for (size_t i = 0; i < bytes; i++)
		text[i] = with[i % length];
	return bytes;
}

static size_t whole_text(const struct lie *lie, char *text, size_t bytes)
{
	switch (lie_pick(lie, 0, 9)) {
	case 0:
		return 0;
	case 1:
		return lie_pick(lie, 1, bytes + 1);
	case 2:
		for (size_t i = 0; i < bytes; i++)
			text[i] = (char)lie_pick(lie, (unsigned)i, 256);
		return bytes;
	case 3:
		return fill(text, LYING_TEXT_MAX, "[");
	case 4:
		return fill(text, LYING_TEXT_MAX, "1\tlease\trw\tuid 1 pid 1\t/\n");
	case 5:
		return fill(text, LYING_TEXT_MAX, "x");
	case 6:
		return put(text, HOSTILE);
	case 7:
		memset(text, 0, bytes);
		return bytes;
	default:
		for (unsigned i = 0; i < 5 && bytes; i++)
			text[lie_pick(lie, 2 * i, bytes)] = (char)lie_pick(lie, 2 * i + 1, 256);
		return bytes;
	}
}

/* Replaces a number of the text, or all numbers. */
static size_t numbers(const struct lie *lie, char *text, size_t bytes)
{
	static const char *const others[] = {"-1",
					     "18446744073709551616",
					     "99999999999999999999999",
					     "0",
					     "9223372036854775807",
					     "1e999",
					     "nan",
					     "",
					     HOSTILE};
	char *made = NULL;
	size_t length, n = 0, which = lie_pick(lie, 0, 60);
	FILE *out = open_memstream(&made, &length);

	for (size_t i = 0; i < bytes; i++) {
		bool begins = isdigit((unsigned char)text[i]) &&
			      (i == 0 || !isalnum((unsigned char)text[i - 1]));
		if (!begins || (which && ++n % 60 != which)) {
			fputc(text[i], out);
			continue;
		}
		fputs(others[lie_pick(lie, 1, sizeof(others) / sizeof(others[0]))], out);
		while (i + 1 < bytes && isdigit((unsigned char)text[i + 1]))
			i++;
	}
	fclose(out);
	length = length < LYING_TEXT_MAX ? length : LYING_TEXT_MAX;
	memcpy(text, made, length);
	free(made);
	return length;
}

/* --- JSON */

static json_t *other_value(const struct lie *lie)
{
	switch (lie_pick(lie, 1, 10)) {
	case 0:
		return json_null();
	case 1:
		return json_integer((json_int_t)lie_number(lie, 2));
	case 2:
		return json_integer(-(json_int_t)lie_pick(lie, 2, INT64_MAX));
	case 3:
		return json_real(1e300);
	case 4:
		return json_string("\033[2J\302\233\n");
	case 5:
		return json_string("");
	case 6:
		return json_object();
	case 7:
		return json_array();
	case 8:
		return json_pack("[n, {}, [i], s]", 7, "x");
	default:
		return json_true();
	}
}

/* Depth first: replaces or removes the value with the given number. */
static bool replace(json_t *in, uint64_t *number, const struct lie *lie)
{
	const char *name;
	json_t *value;
	void *next;
	size_t i;

	json_object_foreach_safe(in, next, name, value)
	{
		if (!(*number)--)
			return (lie_pick(lie, 3, 8)
				    ? json_object_set_new(in, name, other_value(lie))
				    : json_object_del(in, name)) == 0;
		if (replace(value, number, lie))
			return true;
	}
	json_array_foreach (in, i, value) {
		if (!(*number)--)
			return json_array_set_new(in, i, other_value(lie)) == 0;
		if (replace(value, number, lie))
			return true;
	}
	return false;
}

/* Names that the command itself gives to the accounts in users. */
static void claim_names(json_t *users)
{
	json_t *account;
	size_t i;

	json_array_foreach (users, i, account) {
		json_object_set_new(account, "mount", json_string("/elsewhere"));
		json_object_set_new(account, "user", json_string("nobody-else"));
	}
}

static size_t json_value(const struct lie *lie, char *text, size_t bytes)
{
	json_t *all = json_loadb(text, bytes, 0, NULL);
	uint64_t number = lie_pick(lie, 0, 260);

	if (!all)
		return bytes;
	for (unsigned i = 0; i < 260 && !replace(all, &number, lie); i++)
		;
	claim_names(json_object_get(all, "users"));
	size_t length = json_dumpb(all, text, LYING_TEXT_MAX, 0);
	json_decref(all);
	return length < LYING_TEXT_MAX ? length : 0;
}

size_t lie_text(const struct lie *lie, const char *name, char *text, size_t bytes)
{
	switch (lie->kind) {
	case LIE_TEXT:
		return whole_text(lie, text, bytes);
	case LIE_NUMBERS:
		return numbers(lie, text, bytes);
	case LIE_JSON:
		return strcmp(name, "stats.json") == 0 || strcmp(name, "users") == 0
			   ? json_value(lie, text, bytes)
			   : bytes;
	default:
		return bytes;
	}
}

/* --- attributes */

static size_t extents(const struct lie *lie, char *value)
{
	static const char *const lines[] = {"%" PRIu64 " %" PRIu64 " %" PRIu64 " chunk\n",
					    "%" PRIu64 " %" PRIu64 " %" PRIu64 " \033[2J\302\233\n",
					    "%" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
					    "-%" PRIu64 " %" PRIu64 " %" PRIu64 " shared\n"};
	const char *line = lines[lie_pick(lie, 0, 6) % 4];
	size_t length = 0, n = lie_pick(lie, 1, 3) ? lie_pick(lie, 2, 5) : 2000;

	for (unsigned i = 0; i < n && length < 60000; i++)
		length += (size_t)sprintf(value + length, line, lie_number(lie, 3 + 3 * i),
					  lie_number(lie, 4 + 3 * i), lie_number(lie, 5 + 3 * i));
	return length;
}

size_t lie_value(const struct lie *lie, const char *name, char *value, size_t bytes)
{
	if (lie->kind == LIE_EXTENTS)
		return strcmp(name, "user.gpumem.extents") == 0 ? extents(lie, value) : bytes;
	switch (lie_pick(lie, 0, 6)) {
	case 0:
		return 0;
	case 1:
		return (size_t)sprintf(value, "%" PRIu64, lie_number(lie, 1));
	case 2:
		return put(value, "-1");
	case 3:
		return put(value, HOSTILE);
	case 4:
		return fill(value, 65536, "9");
	default:
		return numbers(lie, value, bytes);
	}
}

/* --- names and ioctls */

const char *lie_name(const struct lie *lie, unsigned number)
{
	static const char *const names[] = {HOSTILE,  "..", ".", "gpu0", "\302\233\302\200",
					    "a\\033b"};
	static char long_name[256];

	if (number >= 200 && lie_pick(lie, 0, 3))
		return NULL;
	if (number >= 3000)
		return NULL;
	memset(long_name, 'n', 255);
	return number % 7 == 6 ? long_name : names[number % 7];
}

void lie_ioctl(const struct lie *lie, void *out, size_t bytes, int *rc)
{
	static const int errors[] = {0,	     -EPERM, -ENOTTY, -EAGAIN, -ESTALE,		 -ENOTCONN,
				     -EINTR, -EBUSY, -EIO,    -ENOSPC, -EPROTONOSUPPORT, -EDQUOT};
	unsigned char *at = out;

	switch (lie_pick(lie, 0, 4)) {
	case 0:
		memset(out, 0xff, bytes);
		break;
	case 1:
		memset(out, 0, bytes);
		break;
	case 2:
		for (size_t i = 0; i < bytes; i++)
			at[i] = (unsigned char)lie_pick(lie, (unsigned)i, 256);
		break;
	default:
		*rc = errors[lie_pick(lie, 1, sizeof(errors) / sizeof(errors[0]))];
	}
}
