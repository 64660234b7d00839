/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Every FUSE request on the nodes of .gpumem/, given to libfuse as the kernel's bytes: the daemon
 * answers an operation as documented or refuses the operation, and never searches the tree for the
 * node (ESTALE). */
#include <errno.h>

#include "fs/control/access_log_file.h"
#include "fs/control/nodes.h"
#include "fs/control/texts.h"
#include "tests/unit/kernel_fixture.h"
#include "tests/unit/unit.h"

#define OPCODES 64
/* FUSE_STATX and FUSE_COPY_FILE_RANGE_64 of Linux 6.6 and 6.18, which older headers lack. */
#define OPCODE_STATX   52
#define OPCODE_COPY_64 53

static void session_up(void)
{
	fixture_up();
	ck_assert_int_eq(access_file_new(&fixture), 0);
	kernel_up();
}

static void session_down(void)
{
	kernel_down();
	access_file_free(&fixture);
	worker_end();
	fixture_down();
}

/* All nodes of .gpumem/, with the number of nodes. */
static unsigned nodes_of_control(uint64_t nodes[32])
{
	unsigned n = 0;

	nodes[n++] = node_of(FUSE_ROOT_ID, ".gpumem");
	for (unsigned id = 0; id < CONTROL_FILES; id++)
		if (control_file_find(&fixture, id))
			nodes[n++] = node_of(CONTROL_INO, control_file_find(&fixture, id)->name);
	nodes[n++] = node_of(fixture.volumes[0].root_ino, ".gpumem");
	nodes[n] = node_of(CONTROL_INO, "by-uuid");
	nodes[n + 1] = node_of(nodes[n], fixture.volumes[0].device->uuid);
	return n + 2;
}

/* The requests that libfuse answers without the daemon, or that have no reply. */
static bool is_of_libfuse(uint32_t opcode)
{
	return opcode == FUSE_INIT || opcode == FUSE_DESTROY || opcode == FUSE_NOTIFY_REPLY ||
	       opcode == FUSE_INTERRUPT || opcode == FUSE_RELEASEDIR || opcode == FUSE_FORGET ||
	       opcode == FUSE_BATCH_FORGET;
}

/* The operations of control_operations, and statfs, which shows the whole mount. */
static bool is_supported(uint32_t opcode)
{
	static const uint32_t supported[] = {FUSE_LOOKUP,      FUSE_MKNOD,     FUSE_GETATTR,
					     OPCODE_STATX,     FUSE_SETATTR,   FUSE_READLINK,
					     FUSE_OPEN,	       FUSE_READ,      FUSE_WRITE,
					     FUSE_STATFS,      FUSE_RELEASE,   FUSE_FSYNC,
					     FUSE_GETXATTR,    FUSE_FSYNCDIR,  FUSE_READDIR,
					     FUSE_READDIRPLUS, FUSE_LSEEK,     FUSE_COPY_FILE_RANGE,
					     FUSE_IOCTL,       FUSE_LISTXATTR, OPCODE_COPY_64};

	for (unsigned i = 0; i < sizeof(supported) / sizeof(supported[0]); i++)
		if (supported[i] == opcode)
			return true;
	return false;
}

START_TEST(others_are_refused)
{
	/* The second node of link and rename. */
	const uint64_t body = FUSE_ROOT_ID;
	uint64_t nodes[32];
	unsigned n = nodes_of_control(nodes), refused = 0;

	for (uint32_t opcode = 1; opcode < OPCODES; opcode++) {
		if (is_of_libfuse(opcode) || is_supported(opcode))
			continue;
		for (unsigned i = 0; i < n; i++) {
			int error = request(opcode, nodes[i], &body, sizeof(body));

			ck_assert_msg(error == EPERM || error == ENOSYS,
				      "opcode %u on node %llx: %d", opcode,
				      (unsigned long long)nodes[i], error);
			refused += error == EPERM;
		}
	}
	/* mkdir, symlink, create, tmpfile, link, unlink, rmdir, rename, rename2, setxattr,
	 * removexattr, fallocate. */
	ck_assert_uint_eq(refused, 12 * n);
}
END_TEST

START_TEST(supported_ones_never_reach_the_tree)
{
	uint64_t nodes[32];
	unsigned n = nodes_of_control(nodes);

	for (uint32_t opcode = 1; opcode < OPCODES; opcode++)
		for (unsigned i = 0; is_supported(opcode) && i < n; i++) {
			int error = request(opcode, nodes[i], NULL, 0);

			ck_assert_msg(error != ESTALE && error != ENOSYS && error != UNANSWERED,
				      "opcode %u on node %llx: %d", opcode,
				      (unsigned long long)nodes[i], error);
		}
}
END_TEST

START_TEST(second_nodes_are_refused)
{
	const uint64_t dir = gpu(0)->ino, control = CONTROL_INO;
	struct {
		struct fuse_rename2_in in;
		char names[4];
	} rename = {.in = {.newdir = control}, .names = "f\0g"};
	struct {
		struct fuse_link_in in;
		char name[2];
	} link = {.name = "g"};
	struct fuse_copy_file_range_in copy = {.nodeid_out = node_of(control, "params"), .len = 1};

	ck_assert_int_eq(make_file(gpu(0), "f"), 0);
	link.in.oldnodeid = node_of(dir, "f");
	ck_assert_int_eq(request(FUSE_RENAME2, dir, &rename, sizeof(rename)), EPERM);
	ck_assert_int_eq(request(FUSE_LINK, control, &link, sizeof(link)), EPERM);
	ck_assert_int_eq(request(FUSE_COPY_FILE_RANGE, link.in.oldnodeid, &copy, sizeof(copy)),
			 EPERM);
	link.in.oldnodeid = copy.nodeid_out;
	ck_assert_int_eq(request(FUSE_LINK, dir, &link, sizeof(link)), EPERM);
	ck_assert(is_there(gpu(0), "f"));
	ck_assert(!is_there(gpu(0), "g"));
	inode_forget(&fixture, at(gpu(0), "f"), 1);
}
END_TEST

START_TEST(supported_ones_answer)
{
	uint64_t params = node_of(CONTROL_INO, "params"), version = node_of(CONTROL_INO, "version");
	uint64_t uuids = node_of(CONTROL_INO, "by-uuid");
	uint64_t link = node_of(uuids, fixture.volumes[0].device->uuid);
	struct fuse_open_in writing = {.flags = O_WRONLY};
	struct fuse_setattr_in size = {.valid = FATTR_SIZE}, mode = {.valid = FATTR_MODE};
	struct {
		struct fuse_write_in in;
		char text[8];
	} write = {.in = {.size = 2}, .text = "?\n"};
	struct fuse_read_in read = {.size = 1024};
	struct fuse_getxattr_in xattrs = {.size = 100};
	const struct {
		uint32_t opcode;
		uint64_t node;
		const void *body;
		size_t bytes;
		int error;
	} rows[] = {
	    {FUSE_LOOKUP, CONTROL_INO, "none", 5, ENOENT},
	    {FUSE_LOOKUP, FUSE_ROOT_ID, ".gpumem", 8, 0},
	    {FUSE_MKNOD, CONTROL_INO, NULL, 0, EPERM},
	    {FUSE_GETATTR, version, NULL, 0, 0},
	    {OPCODE_STATX, version, NULL, 0, 0},
	    {FUSE_SETATTR, params, &size, sizeof(size), 0},
	    {FUSE_SETATTR, params, &mode, sizeof(mode), EPERM},
	    {FUSE_SETATTR, version, &size, sizeof(size), EPERM},
	    {FUSE_READLINK, link, NULL, 0, 0},
	    {FUSE_READLINK, version, NULL, 0, EINVAL},
	    {FUSE_OPEN, params, &writing, sizeof(writing), 0},
	    {FUSE_OPEN, version, &writing, sizeof(writing), EACCES},
	    {FUSE_OPEN, link, NULL, 0, EINVAL},
	    {FUSE_READ, link, &read, sizeof(read), EINVAL},
	    {FUSE_WRITE, version, &write, sizeof(write), EPERM},
	    {FUSE_WRITE, params, &write, sizeof(write), EINVAL},
	    {FUSE_STATFS, version, NULL, 0, 0},
	    {FUSE_FSYNC, version, NULL, 0, 0},
	    {FUSE_FSYNCDIR, CONTROL_INO, NULL, 0, 0},
	    {FUSE_GETXATTR, version, &xattrs, sizeof(xattrs), ENODATA},
	    {FUSE_LISTXATTR, version, &xattrs, sizeof(xattrs), 0},
	    {FUSE_READDIR, CONTROL_INO, &read, sizeof(read), 0},
	    {FUSE_READDIRPLUS, uuids, &read, sizeof(read), 0},
	    {FUSE_READDIR, version, &read, sizeof(read), ENOTDIR},
	    {FUSE_LSEEK, version, NULL, 0, ENXIO},
	    {FUSE_COPY_FILE_RANGE, version, NULL, 0, EXDEV},
	    {FUSE_IOCTL, version, NULL, 0, ENOTTY},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int error = request(rows[i].opcode, rows[i].node, rows[i].body, rows[i].bytes);

		ck_assert_msg(error == rows[i].error, "row %u, opcode %u: %d, not %d", i,
			      rows[i].opcode, error, rows[i].error);
	}
	read.fh = handle_of(version, O_RDONLY);
	ck_assert_int_eq(request(FUSE_READ, version, &read, sizeof(read)), 0);
	ck_assert_uint_gt(answer.bytes, 0);
	struct fuse_release_in release = {.fh = read.fh};

	ck_assert_int_eq(request(FUSE_RELEASE, version, &release, sizeof(release)), 0);
	release.fh = handle_of(node_of(CONTROL_INO, "accesslog"), O_RDONLY);
	ck_assert_int_eq(
	    request(FUSE_RELEASE, node_of(CONTROL_INO, "accesslog"), &release, sizeof(release)), 0);
}
END_TEST

/* The kernel of a mount that is in use knows these ids: a line may be added, and none may change.
 */
START_TEST(ids_are_those_of_earlier_releases)
{
	static const struct {
		const char *name;
		uint64_t id;
	} golden[] = {
	    {"version", 1},    {"params", 2},	{"stats.json", 3},
	    {"metrics", 4},    {"mappings", 5}, {"accesslog", 6},
	    {"trace.json", 7}, {"users", 8},	{"by-uuid", 64},
	};
	const unsigned n = sizeof(golden) / sizeof(golden[0]);
	unsigned files = 0;

	ck_assert_uint_eq(CONTROL_INO, 1ULL << 62);
	for (unsigned i = 0; i < n; i++)
		ck_assert_msg(node_of(CONTROL_INO, golden[i].name) == CONTROL_INO + golden[i].id,
			      "%s has another node id", golden[i].name);
	ck_assert_uint_eq(node_of(CONTROL_INO + 64, fixture.volumes[0].device->uuid),
			  CONTROL_INO + 65);
	for (unsigned id = 0; id < CONTROL_FILES; id++)
		files += control_file_find(&fixture, id) != NULL;
	ck_assert_msg(files == n - 1, "a new file of .gpumem/ belongs into this list");
}
END_TEST

START_TEST(listings_go_on_behind_each_name)
{
	static const char *const names[] = {".",	  "..",	     "version",	 "params",
					    "stats.json", "metrics", "mappings", "accesslog",
					    "trace.json", "users",   "by-uuid"};
	struct fuse_read_in read = {.size = 1024};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct fuse_dirent *entry =
		    (const struct fuse_dirent *)(answer.data + sizeof(struct fuse_out_header));

		ck_assert_int_eq(request(FUSE_READDIR, CONTROL_INO, &read, sizeof(read)), 0);
		ck_assert_uint_ge(answer.bytes, FUSE_NAME_OFFSET);
		ck_assert_uint_eq(entry->namelen, strlen(names[i]));
		ck_assert_mem_eq(entry->name, names[i], entry->namelen);
		read.offset = entry->off;
	}
	ck_assert_uint_eq(read.offset, 64 + 2);
	ck_assert_int_eq(request(FUSE_READDIR, CONTROL_INO, &read, sizeof(read)), 0);
	ck_assert_uint_eq(answer.bytes, 0);
}
END_TEST

START_TEST(nodes_of_other_releases_are_stale)
{
	const uint64_t unknown[] = {CONTROL_INO + 9, CONTROL_INO + 62, CONTROL_INO + 65 + 99};
	struct fuse_open_in reading = {.flags = O_RDONLY};

	for (unsigned i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		ck_assert_int_eq(request(FUSE_GETATTR, unknown[i], NULL, 0), ESTALE);
		ck_assert_int_eq(request(OPCODE_STATX, unknown[i], NULL, 0), ESTALE);
		ck_assert_int_eq(request(FUSE_OPEN, unknown[i], &reading, sizeof(reading)), ESTALE);
	}
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("control operations", &tcase, 60);

	tcase_add_checked_fixture(tcase, session_up, session_down);
	tcase_add_test(tcase, others_are_refused);
	tcase_add_test(tcase, supported_ones_never_reach_the_tree);
	tcase_add_test(tcase, second_nodes_are_refused);
	tcase_add_test(tcase, supported_ones_answer);
	tcase_add_test(tcase, ids_are_those_of_earlier_releases);
	tcase_add_test(tcase, listings_go_on_behind_each_name);
	tcase_add_test(tcase, nodes_of_other_releases_are_stale);
	return unit_main(suite);
}
