/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* A set of versions: a directory with files or directories, and the link "current" to one of them.
 * Another user may change the set at any moment: no link is followed, and set is a descriptor of
 * the directory. The functions give 0 or -errno with client_error_text. */
#ifndef CLIENT_LIB_VERSIONS_VERSIONS_H
#define CLIENT_LIB_VERSIONS_VERSIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define VERSIONS_CURRENT "current"
/* The version that was current before. */
#define VERSIONS_PREVIOUS "previous"
/* How the names of hidden entries begin: of versions that are being removed, or made. */
#define VERSIONS_OLD ".old-"
#define VERSIONS_NEW ".new-"
/* Of a link that becomes current at once. */
#define VERSIONS_LINK ".current-"
/* An attribute of a version that was published: when last, in ns since 1970, as decimal text. */
#define VERSIONS_TIME "user.versions.published"

/* Opens a set: a descriptor, or -errno. */
int versions_open(const char *set);
/* The version that a link names. -ENOENT: there is no such link; -ELOOP: it leads elsewhere. */
int versions_read(int set, const char *link, char name[NAME_MAX + 1]);
/* Whether a version is the current one. */
bool versions_is_named(int set, const char *version);
/* Whether a name can be a version's: not a link's of the set, nor hidden. */
bool versions_name_is_valid(const char *name);

int versions_publish(int set, const char *version);
/* Publishes the version that was current before. */
int versions_rollback(int set, char version[NAME_MAX + 1]);

#endif
