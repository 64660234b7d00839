/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A FUSE server that shows a mount of gpumemfs and tells a single lie about the mount at a time.
 * setfattr -n user.lie -v "KIND SEED" on the server's root chooses the lie. All other answers are
 * the mount's, so that a client reaches the lie. */
#ifndef TESTS_MOUNT_LYING_H
#define TESTS_MOUNT_LYING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define LYING_TEXT_MAX (1U << 20)

enum lie_kind {
	LIE_NONE,
	LIE_ATTR,    /* the result of stat; a SEED from 2^40 on is the size */
	LIE_TEXT,    /* the files of .gpumem/: truncated, garbage, endless */
	LIE_NUMBERS, /* numbers in the files of .gpumem/ */
	LIE_JSON,    /* a value in stats.json or users */
	LIE_XATTR,   /* values of extended attributes */
	LIE_EXTENTS, /* only user.gpumem.extents: impossible layouts */
	LIE_IOCTL,
	LIE_SOCKET, /* the daemon's answers on the socket */
	LIE_NAMES,  /* names of directory entries */
	LIE_DATA,   /* number of bytes read and written */
	LIE_KINDS,
};

struct lie {
	enum lie_kind kind;
	uint64_t seed;
};

/* A number below the limit, chosen by the lie's seed. Each place gets a different number. */
uint64_t lie_pick(const struct lie *lie, unsigned place, uint64_t limit);
/* An unexpected number. */
uint64_t lie_number(const struct lie *lie, unsigned place);

void lie_attr(const struct lie *lie, struct stat *st);
/* Changes the text in a buffer of LYING_TEXT_MAX bytes. Returns the new number of bytes. */
size_t lie_text(const struct lie *lie, const char *name, char *text, size_t bytes);
size_t lie_value(const struct lie *lie, const char *name, char *value, size_t bytes);
/* A name for the number; NULL: there are no more names. */
const char *lie_name(const struct lie *lie, unsigned number);
/* The output of an ioctl; *rc: its result. */
void lie_ioctl(const struct lie *lie, void *out, size_t bytes, int *rc);

/* A packet of the daemon: its bytes in a buffer of room, and its descriptors, which are closed when
 * other descriptors replace them. False: the connection ends after this packet. */
#define LYING_FDS_MAX 250
struct lie_packet {
	char *bytes;
	size_t length, room;
	int fds[LYING_FDS_MAX];
	unsigned n_fds;
};
bool lie_packet(const struct lie *lie, struct lie_packet *packet);

/* Starts a relay at the path for the socket of the shown mount. current returns the selected lie.
 */
int lying_socket_start(const char *path, const char *real, struct lie (*current)(void));

#endif
