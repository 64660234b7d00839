/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The text of a record: a written record is read as the same record, and a record with an
 * impossible value is refused. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/hash.h"
#include "common/log.h"
#include "fs/spool/record/record.h"
#include "fs/tree/xattr.h"
#include "tests/unit/page.h"
#include "tests/unit/unit.h"

/* A record of an empty file. Each test changes members of the record, with ' for ". */
static const char base[] = "{'version':1,'sequence':2,'id':3,'mode':33188,'uid':4,'gid':5,'rdev':0,"
			   "'atime':1,'mtime':-9223372036854775808,'ctime':9223372036854775807,"
			   "'btime':4,'max_bytes':-1,'max_files':-1,'size':0,'names':[[1,'a']],"
			   "'target':'','device':'','attributes':{},'xattrs':[],'runs':[],"
			   "'blocks':[],'fresh':[]}";

#define MODE(mode) "'mode':" mode
#define DIR_	   MODE("16877")
#define LINK	   MODE("41471")
#define FIFO	   MODE("4480")
#define CHARACTER  MODE("8612")
#define BLOCK	   MODE("24996")
#define CONTENT(size, runs, blocks, fresh)                                                         \
	"'size':" size ",'runs':" runs ",'blocks':" blocks ",'fresh':" fresh

/* Adds head and sum to a body. */
static int read_body(const char *body, struct spool_record *record)
{
	AUTO_FREE char *text = NULL;
	const char *why;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	fprintf(out, SPOOL_HEAD "%d\n%s\n", SPOOL_FORMAT, body);
	fflush(out);
	fprintf(out, SPOOL_SUM "%016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, length));
	fclose(out);
	return spool_record_read(text, length, record, &why);
}

static json_t *quoted(const char *format, const char *text)
{
	AUTO_FREE char *json = NULL;

	ck_assert_int_gt(asprintf(&json, format, text), 0);
	for (char *at = json; *at; at++)
		*at = *at == '\'' ? '"' : *at;
	json_t *object = json_loads(json, 0, NULL);

	ck_assert_msg(object, "%s", json);
	return object;
}

/* Reads the base with changed members; a member that becomes null is left out. */
static int read_changed(const char *members, struct spool_record *record)
{
	json_t *object = quoted("%s", base), *changes = quoted("{%s}", members), *value;
	const char *key;

	json_object_update(object, changes);
	json_object_foreach (changes, key, value)
		if (json_is_null(value))
			json_object_del(object, key);
	AUTO_FREE char *body = json_dumps(object, 0);

	json_decref(object);
	json_decref(changes);
	return read_body(body, record);
}

static const char *const good[] = {
    "",
    DIR_,
    DIR_ ",'max_bytes':1,'max_files':-2,'device':'GPU-1'",
    LINK ",'names':[[0,'a']],'target':' ..%2f'",
    FIFO,
    CHARACTER ",'rdev':259",
    BLOCK ",'rdev':4294967295",
    "'names':[[1,'a'],[1,'b '],[2,'%ff%25']],'attributes':{'persist':'disk'},"
    "'xattrs':[['user.x',''],['trusted.y%80','%00%ff']]",
    CONTENT("1048577", "[[0,1],[4,4],[1048576,1]]", "[0,-1]", "[1]"),
    CONTENT("9223372036852678656", "[[9223372036852678655,1]]", "[5]", "[8796093022205]"),
};

START_TEST(good_is_read_and_written_again)
{
	struct spool_record record, again;
	AUTO_FREE char *text = NULL;
	const char *why;

	ck_assert_int_eq(read_changed(good[_i], &record), 0);
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
		ck_assert(record.blocks[i].is_fresh == again.blocks[i].is_fresh);
	spool_record_free(&record);
	spool_record_free(&again);
}
END_TEST

/* The record of an earlier release, a text with each kind of member. */
#define STORED "tests/layouts/spool.%d"
static FILE *stored_page;

START_TEST(a_stored_record_is_written_again)
{
	char stored[8192];
	AUTO_FREE char *text = NULL;
	struct spool_record record;
	const char *why = "";

	if (!stored_page) {
		ck_assert_msg(!page_open("tests/layouts/compare"),
			      "SPOOL_FORMAT is %d: store a text of this format", SPOOL_FORMAT);
		return;
	}
	size_t bytes = fread(stored, 1, sizeof(stored), stored_page);

	ck_assert_msg(spool_record_read(stored, bytes, &record, &why) == 0, "%s", why);
	ck_assert_int_eq(spool_record_write(&record, &text), (ssize_t)bytes);
	ck_assert_mem_eq(text, stored, bytes);
	spool_record_free(&record);
}
END_TEST

static const char *const bad[] = {
    "'names':[]",
    "'id':null",		  /* missing */
    "'id':0",			  /* no valid record id */
    "'id':'3'",			  /* wrong type */
    "'id':3.0",			  /* no integer */
    "'nothing':1",		  /* unknown */
    "'size':-1",		  /* too small */
    "'size':9223372036854775807", /* too large */
    "'version':9223372036854775807",
    "'uid':4294967295",
    "'names':[[1,'..']]", /* names that lead elsewhere */
    "'names':[[1,'.']]",
    "'names':[[1,'a/b']]",
    "'names':[[1,'%2f']]",
    "'names':[[1,'']]",
    "'names':[[1,'a%00b']]", /* a name that ends early */
    "'names':[[1,'%0']]",    /* half an escape */
    "'names':[[1,'%0A']]",   /* capitals */
    "'names':[['x','a']]",
    "'names':[[-1,'a']]",
    "'names':[[1,'a',2]]",
    "'names':{}",
    DIR_ ",'names':[[1,'a'],[2,'b']]", /* a directory with two names */
    DIR_ ",'size':1",		       /* only for files */
    DIR_ ",'target':'x'",	       /* only for links */
    "'max_bytes':1",		       /* only for directories */
    "'device':'GPU-1'",
    LINK,				/* a link to nowhere */
    FIFO ",'rdev':259",			/* no device */
    CHARACTER ",'rdev':17592186044416", /* more numbers than the kernel has */
    CHARACTER ",'rdev':-1",
    CHARACTER ",'rdev':[1,3]",
    MODE("420"),     /* no type */
    MODE("295332"),  /* more than a mode */
    MODE("'33188'"), /* a string */
    "'attributes':{'persist':'never'}",
    "'attributes':{'quota.max_bytes':'5'}", /* not inherited */
    "'attributes':{'nothing':'5'}",
    "'attributes':{'persist':1}",
    "'xattrs':[['security.capability','x']]", /* names that no user could have set */
    "'xattrs':[['user.gpumem.persist','disk']]",
    "'xattrs':[['gpumem.spool','5']]",
    "'xattrs':[['user.x']]",
    CONTENT("0", "[[0,1]]", "[1]", "[]"),	/* behind the end */
    CONTENT("8", "[[0,0]]", "[]", "[]"),	/* empty */
    CONTENT("8", "[[0,8]]", "[]", "[]"),	/* no hash */
    CONTENT("8", "[]", "[1]", "[]"),		/* a hash of a hole */
    CONTENT("8", "[[4,4],[0,2]]", "[1]", "[]"), /* not in order */
    CONTENT("8", "[[0,4],[2,4]]", "[1]", "[]"), /* overlapping */
    CONTENT("8", "[[0,4],[4,4]]", "[1]", "[]"), /* touching */
    CONTENT("8", "[[0,8]]", "[1,1]", "[]"),
    CONTENT("8", "[[0,8]]", "['1']", "[]"),
    CONTENT("8", "[[0,8]]", "[1]", "[1]"),   /* fresh, but no block */
    CONTENT("8", "[[0,8]]", "[1]", "[0,0]"), /* twice */
    CONTENT("8", "[[1,9223372036854775807]]", "[1]", "[]"),
    CONTENT("8", "[[9223372036852678656,9223372036852678656]]", "[1]", "[]"),
    CONTENT("9223372036852678656", "[[0,9223372036852678656]]", "[1]", "[]"),
};

START_TEST(bad_is_refused)
{
	struct spool_record record;

	ck_assert_int_eq(read_changed(bad[_i], &record), -EUCLEAN);
	ck_assert_ptr_null(record.names);
	ck_assert_ptr_null(record.blocks);
}
END_TEST

/* Bodies that are no object. */
static const char *const no_objects[] = {"",	  "[]",	     "3", "{", "{\"id\":1,\"id\":1}",
					 "{} {}", "\"\xff\""};

START_TEST(no_object_is_refused)
{
	struct spool_record record;

	ck_assert_int_eq(read_body(no_objects[_i], &record), -EUCLEAN);
}
END_TEST

/* A file of a terabyte, with every second block a hole. */
START_TEST(many_blocks_are_read)
{
	struct spool_record record = {.id = 1, .mode = S_IFREG, .size = 1ULL << 40}, again;
	AUTO_FREE char *text = NULL;
	const char *why;

	record.max_bytes = record.max_files = UINT64_MAX;
	ck_assert_int_eq(spool_record_add_name(&record, 0, "a"), 0);
	for (uint64_t at = 0; at < record.size; at += 2 * SPOOL_BLOCK)
		ck_assert_int_eq(spool_record_add_run(&record, at, SPOOL_BLOCK), 0);
	ck_assert_int_eq(spool_record_find_blocks(&record), 0);
	ck_assert_uint_eq(record.n_blocks, 1 << 19);
	ssize_t length = spool_record_write(&record, &text);

	ck_assert_int_eq(spool_record_read(text, (size_t)length, &again, &why), 0);
	ck_assert_uint_eq(spool_record_hash(&record, SPOOL_TIMES),
			  spool_record_hash(&again, SPOOL_TIMES));
	spool_record_free(&record);
	spool_record_free(&again);
}
END_TEST

/* The reader checks the head and the sum. */
START_TEST(frames_are_looked_at)
{
	struct spool_record record;
	AUTO_FREE char *text = NULL;
	const char *why;

	ck_assert_int_eq(read_changed(good[0], &record), 0);
	ssize_t length = spool_record_write(&record, &text);

	spool_record_free(&record);
	for (size_t less = 0; less < (size_t)length; less++)
		ck_assert_int_ne(spool_record_read(text, less, &record, &why), 0);
	for (size_t i = 0; i < (size_t)length; i++) {
		text[i] ^= 1;
		ck_assert_int_ne(spool_record_read(text, (size_t)length, &record, &why), 0);
		text[i] ^= 1;
	}
	text[strlen(SPOOL_HEAD)] = '1';
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
	tcase_add_loop_test(tcase, no_object_is_refused, 0, COUNT(no_objects));
	tcase_add_test(tcase, a_stored_record_is_written_again);
	tcase_add_test(tcase, many_blocks_are_read);
	tcase_add_test(tcase, frames_are_looked_at);
	return all;
}

int main(void)
{
	char name[64];

	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	snprintf(name, sizeof(name), STORED, SPOOL_FORMAT);
	stored_page = page_open(name);
	return page_closed(stored_page, name, unit_main(suite()));
}
