/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "fs/core/caller.h"
#include "fs/core/fs.h"
#include "fs/fuse/capabilities.h"
#include "fs/fuse/readahead.h"
#include "fs/share/share.h"
#include "fs/volume/volume.h"

/* The kernel's default limit for one request (fs.fuse.max_pages_limit, 256 pages). On the reference
 * machine larger requests had no advantage over 1 MiB, and were slower at 16 MiB. */
#define MAX_WRITE (1U << 20)

/* On few cores the wake-ups of the rings cost more than the rings save (measured on two). */
#define IO_URING_CORES 4

bool capabilities_kernel_has_uring(void)
{
	FILE *file AUTO_FCLOSE = fopen("/sys/module/fuse/parameters/enable_uring", "re");

	return file && fgetc(file) == 'Y';
}

static int uring_choose(struct fs *fs)
{
	struct capability *uring = &fs->can.io_uring;
	enum switch_mode mode = fs->options.io_uring;

	if (fs->options.recovery == RECOVERY_TRANSPARENT)
		capability_set(uring, false,
			       "recovery=transparent needs /dev/fuse: over io_uring requests in "
			       "progress are lost when a daemon dies%s",
			       *fs->options.recovery_why ? "; io_uring=on turns recovery off" : "");
	else if (mode == SWITCH_OFF)
		capability_set(uring, false, "turned off (io_uring=off)");
	else if (fuse_version() < FUSE_MAKE_VERSION(3, 18))
		capability_set(uring, false, "libfuse %s is older than 3.18", fuse_pkgversion());
	else if (mode == SWITCH_AUTO && get_nprocs() < IO_URING_CORES)
		capability_set(uring, false, "no gain on %d cores", get_nprocs());
	else if (!capabilities_kernel_has_uring())
		capability_set(
		    uring, false,
		    "the kernel has it off (echo Y > /sys/module/fuse/parameters/enable_uring)");
	else
		capability_set(uring, true, "FUSE over io_uring");
	if (mode == SWITCH_ON && !uring->on) {
		log_error("io_uring=on: %s", uring->reason);
		return -ENOTSUP;
	}
	return 0;
}

static void recovery_choose(struct fs *fs)
{
	struct capability *recovery = &fs->can.recovery;
	const char *reason = fs->options.recovery_why;

	if (!fs->fdstore)
		capability_set(recovery, false, "%s%s: files are gone with the daemon",
			       *reason ? "recovery=auto: " : "turned off (recovery=off)", reason);
	else if (fs->options.recovery == RECOVERY_TRANSPARENT)
		capability_set(recovery, true,
			       "transparent%s%s: if the daemon dies, another daemon replaces it, "
			       "and programs wait meanwhile",
			       *reason ? ", by " : "", reason);
	else
		capability_set(
		    recovery, true,
		    "remount: if the daemon dies, a new mount has the files; open files fail");
}

int capabilities_choose(struct fs *fs)
{
	unsigned cores = (unsigned)get_nprocs();

	fs->can.threads = fs->options.threads;
	if (!fs->can.threads)
		fs->can.threads = cores < CAPABILITIES_THREADS_MIN   ? CAPABILITIES_THREADS_MIN
				  : cores > CAPABILITIES_THREADS_MAX ? CAPABILITIES_THREADS_MAX
								     : cores;
	fs->can.max_write = MAX_WRITE;
	capability_set(&fs->can.clone_fd, false, "requests come over io_uring");
	capability_set(&fs->can.busy_poll, false, "requests come over io_uring");
	recovery_choose(fs);
	return uring_choose(fs);
}

/* The kernel wants CAP_SYS_ADMIN in the initial user namespace. Root of another user namespace, as
 * in a rootless container, may mount but lacks the capability. */
static bool passthrough_is_permitted(void)
{
	return geteuid() == 0 && caller_in_initial_namespace(0);
}

static void passthrough_negotiate(struct fs *fs, struct fuse_conn_info *conn)
{
	struct capability *passthrough = &fs->can.passthrough;

	if (!passthrough_is_permitted())
		capability_set(passthrough, false,
			       "needs CAP_SYS_ADMIN outside of user namespaces; host/ goes "
			       "through the page cache");
	else if (fs->options.cache == CACHE_ALWAYS)
		capability_set(passthrough, false, "impossible with cache=always");
	else if (!fuse_set_feature_flag(conn, FUSE_CAP_PASSTHROUGH))
		capability_set(passthrough, false,
			       "the kernel has no FUSE passthrough (Linux 6.9)");
	else
		capability_set(passthrough, true,
			       "host/ files are read, written and mapped by the kernel alone");
}

/* An older libfuse, at run time or at build time, does not say which writes clear set-id bits. */
static bool libfuse_tells_kills(void)
{
	const char *patch = strrchr(fuse_pkgversion(), '.');

	return CAPABILITIES_HAS_KILLS && (fuse_version() > FUSE_MAKE_VERSION(3, 18) ||
					  (fuse_version() == FUSE_MAKE_VERSION(3, 18) && patch &&
					   strtoul(patch + 1, NULL, 10) >= 3));
}

static void killpriv_negotiate(struct fs *fs, struct fuse_conn_info *conn)
{
	struct capability *killpriv = &fs->can.killpriv;

	if (!libfuse_tells_kills())
		capability_set(killpriv, false, "libfuse %s is older than 3.18.3",
			       fuse_pkgversion());
	else if (!fuse_set_feature_flag(conn, FUSE_CAP_HANDLE_KILLPRIV_V2))
		capability_set(killpriv, false,
			       "not in this kernel (Linux 5.11), which asks for a file's "
			       "capabilities before each write");
	else
		capability_set(killpriv, true,
			       "the daemon clears set-id bits of files that are written");
}

void capabilities_negotiate(struct fs *fs, struct fuse_conn_info *conn)
{
	conn->max_write = fs->can.max_write;
	/* The reply must not limit the readahead window: the daemon may raise the window before the
	 * kernel reads the reply. */
	conn->max_readahead = readahead_bytes(fs);
	conn->time_gran = 1;
	conn->max_background = 128;
	/* Keeps libfuse from a list of all requests. Workers themselves take the kernel's
	 * interrupts (deferral.h); over io_uring libfuse answers that there are none. */
	conn->no_interrupt = 1;

	fuse_set_feature_flag(conn, FUSE_CAP_ASYNC_READ); /* see readahead.h */
	fuse_set_feature_flag(conn, FUSE_CAP_PARALLEL_DIROPS);
	fuse_set_feature_flag(conn, FUSE_CAP_CACHE_SYMLINKS);
	/* An open directory has no state. With this flag the kernel also caches listings until the
	 * kernel itself changes the directory, and only the kernel does. */
	fuse_set_feature_flag(conn, FUSE_CAP_NO_OPENDIR_SUPPORT);
	fuse_set_feature_flag(conn, FUSE_CAP_NO_EXPORT_SUPPORT);
	/* With this flag off the kernel sets the size before open, by setattr, which exists anyway.
	 */
	fuse_unset_feature_flag(conn, FUSE_CAP_ATOMIC_O_TRUNC);
	fuse_unset_feature_flag(conn, FUSE_CAP_HANDLE_KILLPRIV);
	fuse_unset_feature_flag(conn, FUSE_CAP_SPLICE_READ);
	/* A write changes the times of a file, which would drop the pages that the write filled. */
	if (fs->options.cache != CACHE_NONE) {
		fuse_unset_feature_flag(conn, FUSE_CAP_AUTO_INVAL_DATA);
		fuse_set_feature_flag(conn, FUSE_CAP_EXPLICIT_INVAL_DATA);
	}
	if (fuse_set_feature_flag(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP))
		capability_set(&fs->can.mmap, true,
			       "shared mappings of device files go through the page cache");
	else
		capability_set(&fs->can.mmap, false,
			       "the kernel maps no direct_io files shared (Linux 6.6)");
	capability_set(&fs->can.parallel_writes, true, "direct writes to one file run at once");
	killpriv_negotiate(fs, conn);
	passthrough_negotiate(fs, conn);
}

static void capability_log(const char *name, const struct capability *capability)
{
	log_debug("%s: %s (%s)", name, capability->on ? "on" : "off", capability->reason);
}

/* What is on needs no reason at a mount. */
static void capability_write(FILE *out, const char *name, const struct capability *capability)
{
	if (capability->on)
		fprintf(out, "; %s: on", name);
	else
		fprintf(out, "; %s: off (%s)", name, capability->reason);
}

/* The line that a user reads who has just mounted. */
static void mount_log(const struct fs *fs, const struct capability *sharing)
{
	char line[1024] = "";
	FILE *out AUTO_FCLOSE = fmemopen(line, sizeof(line) - 1, "w");

	if (!out)
		return;
	for (unsigned i = 0; i < fs->n_volumes; i++)
		fprintf(out, "%s%s", i ? ", " : "", fs->volumes[i].name);
	capability_write(out, "recovery", &fs->can.recovery);
	capability_write(out, "sharing", sharing);
	fflush(out);
	log_info("%s: mounted with %s (gpumem doctor %s says more)", fs->options.mountpoint, line,
		 fs->options.mountpoint);
}

void capabilities_log(struct fs *fs)
{
	struct capability sharing;

	share_capability(fs, &sharing);
	mount_log(fs, &sharing);
	capability_log("io_uring", &fs->can.io_uring);
	if (!fs->can.io_uring.on) {
		capability_log("clone_fd", &fs->can.clone_fd);
		capability_log("busy_poll", &fs->can.busy_poll);
	}
	capability_log("recovery", &fs->can.recovery);
	capability_log("passthrough", &fs->can.passthrough);
	capability_log("mmap", &fs->can.mmap);
	capability_log("killpriv", &fs->can.killpriv);
	capability_log("sharing", &sharing);
	if (geteuid() != 0)
		log_debug("not root: no passthrough for host/, no limit on host/ that the kernel "
			  "enforces, and other users only with allow_other");
}
