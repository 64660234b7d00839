/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The text of a record: what is written is read as the same, and what says anything that cannot be
 * is refused. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "common/log.h"
#include "fs/spool/format.h"
#include "fs/spool/record.h"
#include "fs/tree/xattr.h"
#include "tests/unit/unit.h"

#define TIMES "atime 1\nmtime -9223372036854775808\nctime 9223372036854775807\nbtime 4\n"
#define HEAD  "version 1\nsequence 2\n" TIMES "id 3\nuid 4\ngid 5\n"
#define FILE_ HEAD "mode 100644\nname 1 a\n"
#define DIR_  HEAD "mode 40755\nname 1 a\n"
#define HASH  " 0123456789abcdef\n"

/* Lines as they stand between the head and the sum, which are made right. */
static int read_lines(const char *lines, struct spool_record *record)
{
	AUTO_FREE char *text = NULL;
	const char *why;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	fprintf(out, SPOOL_HEAD "%d\n%s", SPOOL_FORMAT, lines);
	fflush(out);
	fprintf(out, SPOOL_SUM "%016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, length));
	fclose(out);
	return spool_record_read(text, length, record, &why);
}

static const char *const good[] = {
    FILE_ "size 0\n",
    DIR_,
    DIR_ "max_bytes 1\nmax_files 18446744073709551615\ndevice GPU-1\n",
    HEAD "mode 120777\nname 0 a\ntarget %20..%2f\n",
    HEAD "mode 10600\nname 0 a\n",
    HEAD "mode 20644\nname 1 a\nnode 1 3\n",
    HEAD "mode 60644\nname 1 a\nnode 4095 1048575\n",
    FILE_ "name 1 b\nname 2 a\nxattr user.x \nxattr trusted.y %00%ff\nattribute persist disk\n",
    FILE_ "size 1048577\nrun 0 1\nrun 4 4\nrun 1048576 1\nblock 0" HASH "fresh 1" HASH,
    FILE_ "size 9223372036852678656\nrun 9223372036852678655 1\nblock 8796093022205" HASH,
};

START_TEST(good_is_read_and_written_again)
{
	struct spool_record record, again;
	AUTO_FREE char *text = NULL;
	const char *why;

	ck_assert_int_eq(read_lines(good[_i], &record), 0);
	ssize_t length = spool_record_write(&record, &text);

	ck_assert_int_gt(length, 0);
	ck_assert_int_eq(spool_record_read(text, (size_t)length, &again, &why), 0);
	ck_assert_uint_eq(spool_record_hash(&record, SPOOL_TIMES),
			  spool_record_hash(&again, SPOOL_TIMES));
	ck_assert_uint_eq(again.version, record.version);
	ck_assert_uint_eq(again.sequence, record.sequence);
	ck_assert_int_eq(again.mtime, INT64_MIN);
	ck_assert_int_eq(again.ctime, INT64_MAX);
	for (size_t i = 0; i < record.n_blocks; i++)
		ck_assert(record.blocks[i].fresh == again.blocks[i].fresh);
	spool_record_free(&record);
	spool_record_free(&again);
}
END_TEST

static const char *const bad[] = {
    "",
    "\n",
    "id 3\n",
    HEAD "mode 100644\n",		/* no name */
    FILE_ "id 3\n",			/* twice */
    FILE_ "nothing 1\n",		/* no such line */
    FILE_ "size 0",			/* no end */
    FILE_ "size 0 \n",			/* a trailing blank */
    FILE_ "size -1\n",			/* no number */
    FILE_ "size 9223372036854775808\n", /* too large */
    FILE_ "size 0\nname 1 ..\n",	/* names that lead elsewhere */
    FILE_ "name 1 .\n",
    FILE_ "name 1 a/b\n",
    FILE_ "name 1 %2f\n",
    FILE_ "name 1 \n",
    FILE_ "name 1 a%00b\n", /* a name that ends early */
    FILE_ "name 1 %0\n",    /* half an escape */
    FILE_ "name 1 %0A\n",   /* capitals */
    FILE_ "name x a\n",
    DIR_ "name 2 b\n",	   /* a directory with two names */
    DIR_ "size 1\n",	   /* of a file */
    DIR_ "target x\n",	   /* of a link */
    FILE_ "max_bytes 1\n", /* of a directory */
    FILE_ "device GPU-1\n",
    HEAD "mode 120777\nname 1 a\n", /* a link to nowhere */
    HEAD "mode 20644\nname 1 a\n",  /* a device, but which */
    HEAD "mode 10644\nname 1 a\nnode 1 3\n",
    HEAD "mode 20644\nname 1 a\nnode 1\n",
    HEAD "mode 20644\nname 1 a\nnode 4096 3\n",
    HEAD "mode 20644\nname 1 a\nnode 1 1048576\n",
    HEAD "mode 20644\nname 1 a\nnode 1 3\nnode 1 3\n",
    HEAD "mode 644\nname 1 a\n",     /* no type */
    HEAD "mode 1100644\nname 1 a\n", /* more than a mode */
    HEAD "mode 100648\nname 1 a\n",  /* not octal */
    FILE_ "attribute persist never\n",
    FILE_ "attribute quota.max_bytes 5\n", /* not inherited */
    FILE_ "attribute nothing 5\n",
    FILE_ "xattr security.capability x\n", /* what no user could have set */
    FILE_ "xattr user.gpumem.persist disk\n",
    FILE_ "xattr gpumem.spool 5\n",
    FILE_ "run 0 1\nblock 0" HASH,		    /* behind the end */
    FILE_ "size 8\nrun 0 0\n",			    /* nothing */
    FILE_ "size 8\nrun 0 8\n",			    /* no hash */
    FILE_ "size 8\nblock 0" HASH,		    /* a hash of a hole */
    FILE_ "size 8\nrun 4 4\nrun 0 2\nblock 0" HASH, /* not in order */
    FILE_ "size 8\nrun 0 4\nrun 2 4\nblock 0" HASH, /* overlapping */
    FILE_ "size 8\nrun 0 4\nrun 4 4\nblock 0" HASH, /* touching */
    FILE_ "size 8\nrun 0 8\nblock 0" HASH "block 0" HASH,
    FILE_ "size 8\nrun 0 8\nblock 0" HASH "block 1" HASH,
    FILE_ "size 8\nrun 0 8\nblock 0 0123\n", /* half a hash */
    FILE_ "size 8\nrun 1 18446744073709551615\nblock 0" HASH,
    FILE_ "size 8\nrun 9223372036852678656 9223372036852678656\nblock 0" HASH,
    FILE_ "size 9223372036852678656\nrun 0 9223372036852678656\nblock 0" HASH,
};

START_TEST(bad_is_refused)
{
	struct spool_record record;

	ck_assert_int_eq(read_lines(bad[_i], &record), -EUCLEAN);
	ck_assert_ptr_null(record.names);
	ck_assert_ptr_null(record.blocks);
}
END_TEST

/* What is around the lines. */
START_TEST(frames_are_looked_at)
{
	struct spool_record record;
	AUTO_FREE char *text = NULL;
	const char *why;

	ck_assert_int_eq(read_lines(good[0], &record), 0);
	ssize_t length = spool_record_write(&record, &text);

	spool_record_free(&record);
	for (size_t less = 0; less < (size_t)length; less++)
		ck_assert_int_ne(spool_record_read(text, less, &record, &why), 0);
	for (size_t i = 0; i < (size_t)length; i++) {
		text[i] ^= 1;
		ck_assert_int_ne(spool_record_read(text, (size_t)length, &record, &why), 0);
		text[i] ^= 1;
	}
	text[strlen(SPOOL_HEAD)] = '2';
	ck_assert_int_eq(spool_record_read(text, (size_t)length, &record, &why), -EPROTO);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static Suite *suite(void)
{
	TCase *tcase;
	Suite *all = unit_suite("spool_record", &tcase, 60);

	tcase_add_loop_test(tcase, good_is_read_and_written_again, 0, COUNT(good));
	tcase_add_loop_test(tcase, bad_is_refused, 0, COUNT(bad));
	tcase_add_test(tcase, frames_are_looked_at);
	return all;
}

int main(void)
{
	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	return unit_main(suite());
}
