/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Our own options of -o, one row each: the member of struct options, the row of the table that
 * parses it, and its line of the help text. A new option is a row here and an entry in
 * gpumemfs(8).
 *
 * X(type, name, values, fallback, help, parse, min, max):
 * type, name    the member of struct options
 * values        the possible values; empty: a flag
 * fallback      parsed before the command line; NULL: the member stays 0
 * parse         a function of table.c, which may use min and max */
#ifndef FS_OPTIONS_LIST_H
#define FS_OPTIONS_LIST_H

#define OPTION_LIST(X)                                                                             \
	X(enum backend_kind, backend, "auto|cuda|vulkan|host", "auto",                             \
	  "source of memory; host simulates GPUs", parse_choice, 0, 0)                             \
	/* names and UUIDs, then numbers: ascending, each once; commas; NULL: all */               \
	X(char *, gpus, "LIST", NULL, "GPUs to show: 0:2, 0-3, gpu0.mig1, UUIDs (all)",            \
	  parse_gpus, 0, 0)                                                                        \
	X(struct amount, size, "BYTES|N%", NULL, "maximum memory to use on each GPU (no limit)",   \
	  parse_amount, 1, 0)                                                                      \
	X(struct amount, reserve, "BYTES|N%", "0", "memory to leave free on each GPU",             \
	  parse_amount, 0, 0)                                                                      \
	/* of system memory, for all GPUs together */                                              \
	X(struct amount, spill, "host:BYTES|N%,disk:BYTES|N%", NULL,                               \
	  "room for files that leave a full GPU (none)", parse_spill, 1, 0)                        \
	X(struct amount, keep_free, "BYTES|N%", "0",                                               \
	  "memory of each GPU to keep free (needs spill)", parse_amount, 0, 0)                     \
	/* n_shares, each user once */                                                             \
	X(struct user_share *, shares, "USER=WEIGHT:...", NULL,                                    \
	  "weights of users for their shares of a full GPU (1 each)", parse_shares, 0, 0)          \
	/* a share of the machine's memory; always given */                                        \
	X(struct amount, host_size, "BYTES|N%", "50%", "size of host/, and of each simulated GPU", \
	  parse_amount, 1, 0)                                                                      \
	X(unsigned, host_gpus, "N", "1",                                                           \
	  "number of GPUs that the host backend simulates, 1 to 64", parse_count, 1,               \
	  BACKEND_DEVICES_MAX)                                                                     \
	X(enum cache_mode, cache, "none|auto|always", "none",                                      \
	  "which data of gpuN/ the page cache keeps", parse_choice, 0, 0)                          \
	X(enum bar_provider, bar, "auto|dmabuf|gdrcopy|vulkan|off", "auto",                        \
	  "how the CPU reaches GPU memory directly", parse_choice, 0, 0)                           \
	X(enum switch_mode, io_uring, "auto|on|off", "auto",                                       \
	  "take requests from the kernel by io_uring", parse_choice, 0, 0)                         \
	/* 0: by the number of processors */                                                       \
	X(unsigned, threads, "N", NULL, "worker threads, 1 to 256 (by the machine)", parse_count,  \
	  1, 256)                                                                                  \
	/* after parsing never RECOVERY_AUTO */                                                    \
	X(enum recovery_mode, recovery, "auto|off|remount|transparent", "auto",                    \
	  "fate of the mount if the daemon dies", parse_choice, 0, 0)                              \
	X(enum standby_mode, standby, "off|on", "off", "keep a second daemon ready to take over",  \
	  parse_choice, 0, 0)                                                                      \
	/* absolute */                                                                             \
	X(char *, spool, "DIR", NULL, "where files with persist=disk are saved (nowhere)",         \
	  parse_path, 0, 0)                                                                        \
	X(enum restore_mode, restore, "lazy|now", "now",                                           \
	  "when saved files are restored: on open, or at once", parse_choice, 0, 0)                \
	X(uid_t, uid, "USER", NULL, "owner of the top directories (the mounting user)",            \
	  parse_user, 0, 0)                                                                        \
	X(gid_t, gid, "GROUP", NULL, "group of the top directories (the mounting user's)",         \
	  parse_group, 0, 0)                                                                       \
	X(mode_t, umask, "OCTAL", "0", "removed from 1777 for the mode of gpuN/ and host/",        \
	  parse_octal, 0, 0)                                                                       \
	/* off by default for users other than root */                                             \
	X(bool, allow_other, "", NULL, "let other users access the mount (for root: always)",      \
	  parse_allow_other, 0, 0)                                                                 \
	/* bytes */                                                                                \
	X(uint64_t, max_chunk, "BYTES", "16G", "largest single allocation, a multiple of 2M",      \
	  parse_chunk, 0, 0)                                                                       \
	X(unsigned, user_leases, "N", "4096", "maximum leases of one user other than root",        \
	  parse_count, 1, 1U << 20)                                                                \
	/* 0: by the limit of open files */                                                        \
	X(unsigned, user_host_files, "N", NULL,                                                    \
	  "maximum files of one user in host/ (by ulimit -Hn)", parse_count, 1, 1U << 26)          \
	X(struct amount, metadata, "BYTES|N%", NULL,                                               \
	  "memory for names and attributes (a quarter of the machine's)", parse_amount, 1, 0)      \
	X(struct amount, user_metadata, "BYTES|N%", NULL,                                          \
	  "maximum of metadata for one user (a sixteenth)", parse_amount, 1, 0)                    \
	/* of each place in spill */                                                               \
	X(struct amount, user_spill, "BYTES|N%", "50%",                                            \
	  "maximum of the memory in spill for one user", parse_amount, 1, 0)                       \
	/* seconds; 0: the age of a lease does not matter */                                       \
	X(unsigned, lease_timeout, "SECONDS", NULL,                                                \
	  "age at which leases no longer block changes (none)", parse_count, 1, 1U << 30)          \
	X(enum log_level, log_level, "error|warn|info|debug", "info", "least severe level to log", \
	  parse_choice, 0, 0)

#endif
