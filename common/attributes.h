/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The schema of the attributes user.gpumem.* (gpumem(7)): one row for each attribute. The daemon's
 * parser, the checks of the journal and the spool, the gpumem command and its completion read the
 * schema, and tests bring every value through a restart. A new value is a word in its attribute's
 * list; a new attribute is a list and a row. */
#ifndef COMMON_ATTRIBUTES_H
#define COMMON_ATTRIBUTES_H

#include <stdint.h>

#define ATTRIBUTES_PREFIX "user.gpumem."

/* V(constant, word), in the order in which the journal numbers the values; the first value is the
 * default. At most 8, or 16 of the priority. */
#define ATTRIBUTE_PAGE_SIZE(V)                                                                     \
	V(PAGE_SIZE_AUTO, "auto")                                                                  \
	V(PAGE_SIZE_4K, "4K")                                                                      \
	V(PAGE_SIZE_64K, "64K")                                                                    \
	V(PAGE_SIZE_2M, "2M")                                                                      \
	V(PAGE_SIZE_1G, "1G")
#define ATTRIBUTE_PERSIST(V)                                                                       \
	V(PERSIST_VOLATILE, "volatile") V(PERSIST_RESTART, "restart") V(PERSIST_DISK, "disk")
#define ATTRIBUTE_MAPPING(V)                                                                       \
	V(MAPPING_AUTO, "auto")                                                                    \
	V(MAPPING_PERSISTENT, "persistent") V(MAPPING_TRANSIENT, "transient")
#define ATTRIBUTE_COPY(V)	V(COPYING_AUTO, "auto") V(COPYING_BAR, "bar") V(COPYING_DMA, "dma")
#define ATTRIBUTE_FORCE_PCIE(V) V(FORCE_PCIE_NO, "0") V(FORCE_PCIE_YES, "1")
#define ATTRIBUTE_SHARE(V)	V(SHARE_PRIVATE, "private") V(SHARE_TRUSTED, "trusted")
#define ATTRIBUTE_RESIDENT(V)                                                                      \
	V(RESIDENT_GPU, "gpu")                                                                     \
	V(RESIDENT_HOST, "host") V(RESIDENT_EVICTED, "evicted") V(RESIDENT_DISK, "disk")
#define ATTRIBUTE_PRIORITY(V)                                                                      \
	V(PRIORITY_0, "0")                                                                         \
	V(PRIORITY_1, "1")                                                                         \
	V(PRIORITY_2, "2")                                                                         \
	V(PRIORITY_3, "3")                                                                         \
	V(PRIORITY_4, "4")                                                                         \
	V(PRIORITY_5, "5")                                                                         \
	V(PRIORITY_6, "6") V(PRIORITY_7, "7") V(PRIORITY_8, "8") V(PRIORITY_9, "9")

/* A(ID, field, list of values, purpose): attributes of files, which new files inherit from their
 * directory. At most 15. A file's "resident" is set to a value, and read as bytes in each place. */
#define ATTRIBUTES_WITH_VALUES(A)                                                                  \
	A(PAGE_SIZE, page_size, ATTRIBUTE_PAGE_SIZE, "unit and alignment of the memory")           \
	A(PERSIST, persist, ATTRIBUTE_PERSIST, "what outlives the daemon")                         \
	A(MAPPING, mapping, ATTRIBUTE_MAPPING, "how long the CPU's mapping stays")                 \
	A(COPY, copy, ATTRIBUTE_COPY, "how read and write move bytes")                             \
	A(FORCE_PCIE, force_pcie, ATTRIBUTE_FORCE_PCIE, "map over PCIe on coherent platforms")     \
	A(SHARE, share, ATTRIBUTE_SHARE, "whether readers get the memory itself")                  \
	A(RESIDENT, resident, ATTRIBUTE_RESIDENT, "where the bytes are")                           \
	A(PRIORITY, priority, ATTRIBUTE_PRIORITY, "which files leave a full GPU last")

/* A(ID, name, kind, purpose): quotas, and attributes that can only be read. */
#define ATTRIBUTES_WITHOUT_VALUES(A)                                                               \
	A(QUOTA_BYTES, "quota.max_bytes", QUOTA, "limit for all below a directory")                \
	A(QUOTA_FILES, "quota.max_files", QUOTA, "limit for all below a directory")                \
	A(DEVICE, "device", READ_ONLY, "the GPU")                                                  \
	A(EXTENTS, "extents", READ_ONLY_LINES, "the layout")                                       \
	A(MAPPED, "mapped", READ_ONLY, "bytes mapped through the BAR")                             \
	A(LEASES, "leases", READ_ONLY, "how many leases share the memory")                         \
	A(LAST_OPEN, "last_open", READ_ONLY, "when a process last opened the file")                \
	A(RBYTES, "rbytes", READ_ONLY, "memory of everything below a directory")                   \
	A(RFILES, "rfiles", READ_ONLY, "how many files are below a directory")

#define ATTRIBUTE_CHOICES_MAX 16

enum attribute_kind {
	ATTRIBUTE_VALUE, /* one of its choices */
	ATTRIBUTE_QUOTA, /* a number or "none", of directories */
	ATTRIBUTE_READ_ONLY,
	ATTRIBUTE_READ_ONLY_LINES /* with a value of many lines */
};

#define ATTRIBUTE_ID_(id, ...) ATTR_##id,
enum attr_id {
	ATTRIBUTES_WITH_VALUES(ATTRIBUTE_ID_) ATTR_VALUES, /* how many of the above */
	ATTR_BEFORE_OTHERS_ = ATTR_VALUES - 1,
	ATTRIBUTES_WITHOUT_VALUES(ATTRIBUTE_ID_) ATTR_COUNT
};
#undef ATTRIBUTE_ID_

/* enum attr_page_size and so on. */
#define ATTRIBUTE_CONSTANT_(constant, word)    constant,
#define ATTRIBUTE_ENUM_(id, field, list, help) enum attr_##field{list(ATTRIBUTE_CONSTANT_)};
ATTRIBUTES_WITH_VALUES(ATTRIBUTE_ENUM_)
#undef ATTRIBUTE_ENUM_
#undef ATTRIBUTE_CONSTANT_

struct attribute {
	const char *name;    /* without the prefix */
	const char *full;    /* with the prefix */
	const char *choices; /* "auto 4K 64K", or words for a quota; "" for an attribute that can
				only be read */
	const char *help;
	enum attribute_kind kind;
	const char
	    *words[ATTRIBUTE_CHOICES_MAX]; /* the choices of ATTRIBUTE_VALUE; the rest NULL */
};

/* By enum attr_id; a row without a name ends the table. */
extern const struct attribute attributes[ATTR_COUNT + 1];

#endif
