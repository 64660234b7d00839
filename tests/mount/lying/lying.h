/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A FUSE server that shows a mount of gpumemfs and tells one lie about it at a time. Which one is
 * set by setfattr -n user.lie -v "KIND SEED" on its root; everything else is as the mount has it,
 * so that a client comes as far as the lie. */
#ifndef TESTS_MOUNT_LYING_H
#define TESTS_MOUNT_LYING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define LYING_TEXT_MAX (1U << 20)

enum lie_kind {
	LIE_NONE,
	LIE_ATTR,    /* what stat says; a SEED from 2^40 on is the size */
	LIE_TEXT,    /* the files of .gpumem/: cut, garbage, without end */
	LIE_NUMBERS, /* numbers in them */
	LIE_JSON,    /* one value in stats.json */
	LIE_XATTR,   /* the values of attributes */
	LIE_EXTENTS, /* of user.gpumem.extents alone: layouts that cannot be */
	LIE_IOCTL,
	LIE_SOCKET, /* what the daemon answers there */
	LIE_NAMES,  /* of a directory's entries */
	LIE_DATA,   /* how much is read and written */
	LIE_KINDS,
};

struct lie {
	enum lie_kind kind;
	uint64_t seed;
};

/* For another place each: a number below the limit that the lie's seed says. */
uint64_t lie_pick(const struct lie *lie, unsigned place, uint64_t limit);
/* A number that nobody expects. */
uint64_t lie_number(const struct lie *lie, unsigned place);

void lie_attr(const struct lie *lie, struct stat *st);
/* In place, in a buffer of LYING_TEXT_MAX bytes: how many there are then. */
size_t lie_text(const struct lie *lie, const char *name, char *text, size_t bytes);
size_t lie_value(const struct lie *lie, const char *name, char *value, size_t bytes);
/* A name for the number; NULL: no more. */
const char *lie_name(const struct lie *lie, unsigned number);
/* What an ioctl wrote; *rc: what it returns. */
void lie_ioctl(const struct lie *lie, void *out, size_t bytes, int *rc);

/* A packet of the daemon's: its bytes in a buffer of room, and its descriptors, which are closed
 * where others take their place. False: the connection ends after it. */
#define LYING_FDS_MAX 250
struct lie_packet {
	char *bytes;
	size_t length, room;
	int fds[LYING_FDS_MAX];
	unsigned n_fds;
};
bool lie_packet(const struct lie *lie, struct lie_packet *packet);

/* The socket of the mount that is shown, relayed to one at the path; current: the lie of now. */
int lying_socket_start(const char *path, const char *real, struct lie (*current)(void));

#endif
