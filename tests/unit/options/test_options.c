/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/options/recovery.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/page.h"
#include "tests/unit/unit.h"

#define PAGE	  "man/gpumemfs.8"
#define WORDS_MAX 16

/* A command line, with the words separated by single blanks. */
struct words {
	char text[4096];
	char *argv[WORDS_MAX + 1];
	int argc;
};

static void words_split(struct words *words, const char *line)
{
	char *rest = words->text;

	ck_assert_uint_lt(strlen(line), sizeof(words->text));
	memcpy(words->text, line, strlen(line) + 1);
	words->argc = 0;
	while (rest) {
		ck_assert_int_lt(words->argc, WORDS_MAX);
		words->argv[words->argc++] = strsep(&rest, " ");
	}
	words->argv[words->argc] = NULL;
}

/* Parses the line. Sets said to the output on stderr. */
static int parse(const char *line, struct options *options, char *said, size_t room)
{
	static struct words words;
	int old = dup(STDERR_FILENO), file = memfd_create("stderr", 0);

	words_split(&words, line);
	fflush(stderr);
	dup2(file, STDERR_FILENO);
	int rc = options_parse(words.argc, words.argv, options);
	fflush(stderr);
	dup2(old, STDERR_FILENO);
	ssize_t length = pread(file, said, room - 1, 0);
	ck_assert_int_ge(length, 0);
	said[length] = '\0';
	close(file);
	close(old);
	return rc;
}

static struct options parsed(const char *line)
{
	struct options options;
	char said[4096];

	ck_assert_msg(parse(line, &options, said, sizeof(said)) == 0, "'%s': %s", line, said);
	ck_assert_msg(!*said, "'%s' says: %s", line, said);
	return options;
}

#define SEE " (see gpumemfs -h)\n"

static const struct {
	const char *line, *said;
} bad[] = {
    {"gpumemfs",
     "gpumemfs: no mountpoint given (usage: gpumemfs [SOURCE] MOUNTPOINT [-o OPTIONS])\n"},
    {"gpumemfs -o size=1G",
     "gpumemfs: no mountpoint given (usage: gpumemfs [SOURCE] MOUNTPOINT [-o OPTIONS])\n"},
    {"gpumemfs src ",
     "gpumemfs: no mountpoint given (usage: gpumemfs [SOURCE] MOUNTPOINT [-o OPTIONS])\n"},
    {"gpumemfs a b c", "gpumemfs: unexpected argument 'c'" SEE},
    {"gpumemfs /mnt -x", "gpumemfs: unknown argument '-x'" SEE},
    {"gpumemfs /mnt -fx", "gpumemfs: unknown argument '-x'" SEE},
    {"gpumemfs --foo /mnt", "gpumemfs: unknown argument '--foo'" SEE},
    {"gpumemfs --help=x /mnt", "gpumemfs: unknown argument '--help=x'" SEE},
    {"gpumemfs /mnt -o", "gpumemfs: -o needs an argument" SEE},
    {"gpumemfs /mnt -N 17", "gpumemfs: -N is not supported: mount from inside the namespace\n"},
    {"gpumemfs /mnt -o foo", "gpumemfs: unknown option 'foo'" SEE},
    {"gpumemfs /mnt -o foo=bar", "gpumemfs: unknown option 'foo'" SEE},
    {"gpumemfs /mnt -o sizes=1G", "gpumemfs: unknown option 'sizes': did you mean size?" SEE},
    {"gpumemfs /mnt -o siz=1G", "gpumemfs: unknown option 'siz': did you mean size?" SEE},
    {"gpumemfs /mnt -o =1", "gpumemfs: unknown option ''" SEE},
    {"gpumemfs /mnt -o allow_root", "gpumemfs: unknown option 'allow_root'" SEE},
    {"gpumemfs /mnt -o ro=1", "gpumemfs: unknown option 'ro=1'" SEE},
    {"gpumemfs /mnt -o x-", "gpumemfs: unknown option 'x-'" SEE},
    {"gpumemfs /mnt -o auto_unmount", "gpumemfs: option 'auto_unmount' is not supported: gpumemfs "
				      "unmounts at its end; after a crash, use gpumem umount\n"},
    {"gpumemfs /mnt -s -o auto_unmount",
     "gpumemfs: option 'auto_unmount' is not supported: "
     "gpumemfs unmounts at its end; after a crash, use gpumem umount\n"},
    {"gpumemfs /mnt -o backend=rocm", "gpumemfs: backend=rocm: not one of auto|cuda|vulkan|host\n"},
    {"gpumemfs /mnt -o backend=", "gpumemfs: backend=: not one of auto|cuda|vulkan|host\n"},
    {"gpumemfs /mnt -o backend",
     "gpumemfs: option 'backend' needs a value (backend=auto|cuda|vulkan|host)\n"},
    {"gpumemfs /mnt -o cache=yes", "gpumemfs: cache=yes: not one of none|auto|always\n"},
    {"gpumemfs /mnt -o bar=direct",
     "gpumemfs: bar=direct: not one of auto|dmabuf|gdrcopy|vulkan|off\n"},
    {"gpumemfs /mnt -o io_uring=1", "gpumemfs: io_uring=1: not one of auto|on|off\n"},
    {"gpumemfs /mnt -o log_level=3", "gpumemfs: log_level=3: not one of error|warn|info|debug\n"},
    {"gpumemfs /mnt -o size=12Q", "gpumemfs: size=12Q: not a size (use 10G, 512M or 50%)\n"},
    {"gpumemfs /mnt -o size=", "gpumemfs: size=: not a size (use 10G, 512M or 50%)\n"},
    {"gpumemfs /mnt -o size=-1", "gpumemfs: size=-1: not a size (use 10G, 512M or 50%)\n"},
    {"gpumemfs /mnt -o size=0x10", "gpumemfs: size=0x10: not a size (use 10G, 512M or 50%)\n"},
    {"gpumemfs /mnt -o size=5%%", "gpumemfs: size=5%%: not a size (use 10G, 512M or 50%)\n"},
    {"gpumemfs /mnt -o size=18446744073709551616",
     "gpumemfs: size=18446744073709551616: not a size (use 10G, 512M or 50%)\n"},
    {"gpumemfs /mnt -o size=17179869184G",
     "gpumemfs: size=17179869184G: not a size (use 10G, 512M or 50%)\n"},
    {"gpumemfs /mnt -o size=101%", "gpumemfs: size=101%: more than 100%\n"},
    {"gpumemfs /mnt -o size=0", "gpumemfs: size=0: must be more than nothing\n"},
    {"gpumemfs /mnt -o host_size=0%", "gpumemfs: host_size=0%: must be more than nothing\n"},
    {"gpumemfs /mnt -o reserve=x", "gpumemfs: reserve=x: not a size (use 10G, 512M or 50%)\n"},
    {"gpumemfs /mnt -o spill=10G",
     "gpumemfs: spill=10G: not host: or disk: and a size (use host:64G, host:25% or "
     "host:64G,disk:1T)\n"},
    {"gpumemfs /mnt -o spill=host:1G,disk:2,spool=/s,disk:3",
     "gpumemfs: unknown option 'disk:3' (see gpumemfs -h)\n"},
    {"gpumemfs /mnt -o spill=host:1G,disk:x,spool=/s",
     "gpumemfs: spill=host:1G,disk:x: not a size (use 10G, 512M or 50%)\n"},
    {"gpumemfs /mnt -o spill=disk:1G",
     "gpumemfs: spill=disk: needs spool=DIR, a directory on the disk\n"},
    {"gpumemfs /mnt -o keep_free=10%",
     "gpumemfs: keep_free=: files can only leave a GPU with spill=\n"},
    {"gpumemfs /mnt -o shares=0=2", "gpumemfs: shares=: files can only leave a GPU with spill=\n"},
    {"gpumemfs /mnt -o shares=",
     "gpumemfs: shares=: not a list of users and weights (use alice=3:1001=2)\n"},
    {"gpumemfs /mnt -o shares=root",
     "gpumemfs: shares=root: not a list of users and weights (use alice=3:1001=2)\n"},
    {"gpumemfs /mnt -o shares==3",
     "gpumemfs: shares==3: not a list of users and weights (use alice=3:1001=2)\n"},
    {"gpumemfs /mnt -o shares=0=1:",
     "gpumemfs: shares=0=1:: not a list of users and weights (use alice=3:1001=2)\n"},
    {"gpumemfs /mnt -o shares=0=0", "gpumemfs: shares=0=0: a weight is a number from 1 to 1000\n"},
    {"gpumemfs /mnt -o shares=0=1001",
     "gpumemfs: shares=0=1001: a weight is a number from 1 to 1000\n"},
    {"gpumemfs /mnt -o shares=0=", "gpumemfs: shares=0=: a weight is a number from 1 to 1000\n"},
    {"gpumemfs /mnt -o shares=no-such-user=2", "gpumemfs: shares=no-such-user=2: no such user\n"},
    {"gpumemfs /mnt -o shares=4294967295=2", "gpumemfs: shares=4294967295=2: no such user\n"},
    {"gpumemfs /mnt -o shares=0=1:5=2:root=3",
     "gpumemfs: shares=0=1:5=2:root=3: a user is named twice\n"},
    {"gpumemfs /mnt -o user_spill=0", "gpumemfs: user_spill=0: must be more than nothing\n"},
    {"gpumemfs /mnt -o user_spill=1x",
     "gpumemfs: user_spill=1x: not a size (use 10G, 512M or 50%)\n"},
    {"gpumemfs /mnt -o spill=host:", "gpumemfs: spill=host:: not a size (use 10G, 512M or 50%)\n"},
    {"gpumemfs /mnt -o spill=host:0", "gpumemfs: spill=host:0: must be more than nothing\n"},
    {"gpumemfs /mnt -o host_gpus=0", "gpumemfs: host_gpus=0: not a number from 1 to 64\n"},
    {"gpumemfs /mnt -o host_gpus=65", "gpumemfs: host_gpus=65: not a number from 1 to 64\n"},
    {"gpumemfs /mnt -o threads=0", "gpumemfs: threads=0: not a number from 1 to 256\n"},
    {"gpumemfs /mnt -o threads=257", "gpumemfs: threads=257: not a number from 1 to 256\n"},
    {"gpumemfs /mnt -o threads=4294967297",
     "gpumemfs: threads=4294967297: not a number from 1 to 256\n"},
    {"gpumemfs /mnt -o threads=4x", "gpumemfs: threads=4x: not a number from 1 to 256\n"},
    {"gpumemfs /mnt -o max_chunk=0", "gpumemfs: max_chunk=0: not a multiple of 2M\n"},
    {"gpumemfs /mnt -o max_chunk=3M", "gpumemfs: max_chunk=3M: not a multiple of 2M\n"},
    {"gpumemfs /mnt -o max_chunk=50%", "gpumemfs: max_chunk=50%: not a size (use 512M or 16G)\n"},
    {"gpumemfs /mnt -o umask=8", "gpumemfs: umask=8: not an octal mode (use 022 or 077)\n"},
    {"gpumemfs /mnt -o umask=", "gpumemfs: umask=: not an octal mode (use 022 or 077)\n"},
    {"gpumemfs /mnt -o umask=1777", "gpumemfs: umask=1777: not an octal mode (use 022 or 077)\n"},
    {"gpumemfs /mnt -o umask=00022", "gpumemfs: umask=00022: not an octal mode (use 022 or 077)\n"},
    {"gpumemfs /mnt -o uid=no-such-user", "gpumemfs: uid=no-such-user: no such user\n"},
    {"gpumemfs /mnt -o uid=4294967295", "gpumemfs: uid=4294967295: no such user\n"},
    {"gpumemfs /mnt -o gid=-1", "gpumemfs: gid=-1: no such group\n"},
    {"gpumemfs /mnt -o allow_other=1", "gpumemfs: allow_other=1: takes no value\n"},
    {"gpumemfs /mnt -o gpus=",
     "gpumemfs: gpus=: not a list of GPUs (use 0, 0:2, 0-3, gpu0.mig1 or UUIDs)\n"},
    {"gpumemfs /mnt -o gpus=a",
     "gpumemfs: gpus=a: not a list of GPUs (use 0, 0:2, 0-3, gpu0.mig1 or UUIDs)\n"},
    {"gpumemfs /mnt -o gpus=0:",
     "gpumemfs: gpus=0:: not a list of GPUs (use 0, 0:2, 0-3, gpu0.mig1 or UUIDs)\n"},
    {"gpumemfs /mnt -o gpus=0::1",
     "gpumemfs: gpus=0::1: not a list of GPUs (use 0, 0:2, 0-3, gpu0.mig1 or UUIDs)\n"},
    {"gpumemfs /mnt -o gpus=3-1",
     "gpumemfs: gpus=3-1: not a list of GPUs (use 0, 0:2, 0-3, gpu0.mig1 or UUIDs)\n"},
    {"gpumemfs /mnt -o gpus=1-",
     "gpumemfs: gpus=1-: not a list of GPUs (use 0, 0:2, 0-3, gpu0.mig1 or UUIDs)\n"},
    {"gpumemfs /mnt -o gpus=gpux",
     "gpumemfs: gpus=gpux: not a list of GPUs (use 0, 0:2, 0-3, gpu0.mig1 or UUIDs)\n"},
    {"gpumemfs /mnt -o gpus=MIG-57a2",
     "gpumemfs: gpus=MIG-57a2: not a list of GPUs (use 0, 0:2, 0-3, gpu0.mig1 or UUIDs)\n"},
    {"gpumemfs /mnt -o gpus=64",
     "gpumemfs: gpus=64: not a list of GPUs (use 0, 0:2, 0-3, gpu0.mig1 or UUIDs)\n"},
    {"gpumemfs /mnt -o gpus=0-4000000000",
     "gpumemfs: gpus=0-4000000000: not a list of GPUs (use 0, 0:2, 0-3, gpu0.mig1 or UUIDs)\n"},
    {"gpumemfs /mnt -o gpus=0,2-1",
     "gpumemfs: gpus=0,2-1: not a list of GPUs (use 0, 0:2, 0-3, gpu0.mig1 or UUIDs)\n"},
    {"gpumemfs /mnt -o 0", "gpumemfs: unknown option '0'" SEE},
    {"gpumemfs /mnt -o gpus=0,size=1G,1", "gpumemfs: unknown option '1'" SEE},
    {"gpumemfs /mnt -o ro,,foo,bar", "gpumemfs: unknown option 'foo'" SEE},
    {"gpumemfs /mnt -o size=1\\,ro", "gpumemfs: size=1,ro: not a size (use 10G, 512M or 50%)\n"},
    /* Sloppy mode covers unknown names, not wrong values. */
    {"gpumemfs /mnt -s -o foo,size=12Q", "gpumemfs: size=12Q: not a size (use 10G, 512M or 50%)\n"},
};

START_TEST(bad_line_is_named)
{
	struct options options;
	char said[4096];

	ck_assert_msg(parse(bad[_i].line, &options, said, sizeof(said)) == -EINVAL, "'%s' passed",
		      bad[_i].line);
	ck_assert_str_eq(said, bad[_i].said);
	ck_assert_ptr_null(options.mountpoint);
	options_free(&options);
}
END_TEST

START_TEST(defaults)
{
	struct options options = parsed("gpumemfs /");

	ck_assert_ptr_null(options.source);
	ck_assert_str_eq(options.mountpoint, "/");
	ck_assert(!options.foreground && !options.debug && !options.help && !options.version);
	ck_assert(!options.fake);
	ck_assert_int_eq(options.backend, BACKEND_AUTO);
	ck_assert_ptr_null(options.gpus);
	ck_assert(!options.size.given);
	ck_assert_uint_eq(amount_bytes(&options.reserve, 1000, 7), 0);
	ck_assert_uint_eq(amount_bytes(&options.host_size, 1000, 7), 500);
	ck_assert_uint_eq(amount_bytes(&options.user_spill, 1000, 7), 500);
	ck_assert_uint_eq(options.host_gpus, 1);
	ck_assert_int_eq(options.cache, CACHE_NONE);
	ck_assert_int_eq(options.bar, BAR_AUTO);
	ck_assert_int_eq(options.io_uring, SWITCH_AUTO);
	ck_assert_uint_eq(options.threads, 0);
	ck_assert(!options.uid_given && options.uid == getuid());
	ck_assert(!options.gid_given && options.gid == getgid());
	ck_assert_uint_eq(options.umask, 0);
	ck_assert(options.allow_other == (geteuid() == 0) && !options.allow_other_given);
	ck_assert_uint_eq(options.max_chunk, 16ULL << 30);
	ck_assert_int_eq(options.log_level, LOG_LEVEL_INFO);
	ck_assert_ptr_null(options.mount_options);
	options_free(&options);
}
END_TEST

START_TEST(every_option)
{
	struct options options =
	    parsed("gpumemfs vram / -o "
		   "backend=cuda,gpus=0:2,size=10G,reserve=5%,host_size=1G,host_gpus=64 "
		   "-ocache=always,bar=vulkan,io_uring=on -o threads=256,uid=17,gid=root,umask=027 "
		   "-o allow_other,max_chunk=2M,log_level=warn,spill=host:25%,disk:7G "
		   "-o spool=/s,keep_free=3G "
		   "-o shares=root=3:1001=1000,user_spill=10%");

	ck_assert_str_eq(options.source, "vram");
	ck_assert_int_eq(options.backend, BACKEND_CUDA);
	ck_assert_str_eq(options.gpus, "0,2");
	ck_assert(options.size.given && !options.size.percent);
	ck_assert_uint_eq(options.size.value, 10ULL << 30);
	ck_assert(options.reserve.given && options.reserve.percent);
	ck_assert_uint_eq(options.reserve.value, 5);
	ck_assert(options.spill.given);
	ck_assert_uint_eq(options.spill_disk.value, 7ULL << 30);
	ck_assert_str_eq(options.spool, "/s");
	ck_assert_uint_eq(options.keep_free.value, 3ULL << 30);
	ck_assert_uint_eq(amount_bytes(&options.user_spill, 1000, 7), 100);
	ck_assert_uint_eq(options_weight(&options, 0), 3);
	ck_assert_uint_eq(options_weight(&options, 1001), 1000);
	ck_assert_uint_eq(options_weight(&options, 1002), 1);
	ck_assert_uint_eq(amount_bytes(&options.spill, 1000, 7), 250);
	ck_assert_uint_eq(amount_bytes(&options.host_size, 1000, 7), 1ULL << 30);
	ck_assert_uint_eq(options.host_gpus, 64);
	ck_assert_int_eq(options.cache, CACHE_ALWAYS);
	ck_assert_int_eq(options.bar, BAR_VULKAN);
	ck_assert_int_eq(options.io_uring, SWITCH_ON);
	ck_assert_uint_eq(options.threads, 256);
	ck_assert(options.uid_given && options.uid == 17);
	ck_assert(options.gid_given && options.gid == 0);
	ck_assert_uint_eq(options.umask, 027);
	ck_assert(options.allow_other && options.allow_other_given);
	ck_assert_uint_eq(options.max_chunk, 2ULL << 20);
	ck_assert_int_eq(options.log_level, LOG_LEVEL_WARN);
	options_free(&options);
}
END_TEST

/* Every value in the table is accepted and gives the value of the enum. */
START_TEST(choices_match_the_enums)
{
	static const struct {
		const char *line;
		enum bar_provider bar;
		enum backend_kind backend;
		enum switch_mode io_uring;
		enum cache_mode cache;
		enum log_level level;
	} cases[] = {
	    {"gpumemfs / -o bar=auto,backend=auto,io_uring=auto,cache=none,log_level=error",
	     BAR_AUTO, BACKEND_AUTO, SWITCH_AUTO, CACHE_NONE, LOG_LEVEL_ERROR},
	    {"gpumemfs / -o bar=dmabuf,backend=cuda,io_uring=on,cache=auto,log_level=warn",
	     BAR_DMABUF, BACKEND_CUDA, SWITCH_ON, CACHE_AUTO, LOG_LEVEL_WARN},
	    {"gpumemfs / -o bar=gdrcopy,backend=vulkan,io_uring=off,cache=always,log_level=info",
	     BAR_GDRCOPY, BACKEND_VULKAN, SWITCH_OFF, CACHE_ALWAYS, LOG_LEVEL_INFO},
	    {"gpumemfs / -o bar=off,backend=host,io_uring=off,cache=always,log_level=debug",
	     BAR_OFF, BACKEND_HOST, SWITCH_OFF, CACHE_ALWAYS, LOG_LEVEL_DEBUG},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct options options = parsed(cases[i].line);
		ck_assert_int_eq(options.bar, cases[i].bar);
		ck_assert_int_eq(options.backend, cases[i].backend);
		ck_assert_int_eq(options.io_uring, cases[i].io_uring);
		ck_assert_int_eq(options.cache, cases[i].cache);
		ck_assert_int_eq(options.log_level, cases[i].level);
		options_free(&options);
	}
}
END_TEST

/* The options, the user, the kernel and the limit of open files decide recovery=auto once. */
static const struct {
	const char *given;
	struct recovery_facts facts;
	enum recovery_mode mode;
	const char *why;
} recoveries[] = {
    {"ro", {true, "6.9.0", 16384}, RECOVERY_TRANSPARENT, "recovery=auto"},
    {"recovery=auto", {true, "7.0", 1 << 20}, RECOVERY_TRANSPARENT, "recovery=auto"},
    {"io_uring=off", {true, "6.18.44", 1 << 20}, RECOVERY_TRANSPARENT, "recovery=auto"},
    {"io_uring=on", {true, "6.18.44", 1 << 20}, RECOVERY_OFF, "io_uring=on"},
    {"ro", {false, "6.18.44", 1 << 20}, RECOVERY_OFF, "not root's"},
    {"ro", {true, "6.8.12-generic", 1 << 20}, RECOVERY_OFF, "Linux 6.9"},
    {"ro", {true, "6.18.44", 16383}, RECOVERY_OFF, "16383 open files"},
    {"recovery=transparent", {false, "5.15", 1024}, RECOVERY_TRANSPARENT, ""},
    {"recovery=remount", {true, "6.18.44", 1 << 20}, RECOVERY_REMOUNT, ""},
    {"recovery=off", {true, "6.18.44", 1 << 20}, RECOVERY_OFF, ""},
};

START_TEST(recovery_is_decided)
{
	char line[128];

	snprintf(line, sizeof(line), "gpumemfs / -o %s", recoveries[_i].given);
	struct options options = parsed(line);

	/* The first decision is by the facts of the test machine. */
	ck_assert_int_ne(options.recovery, RECOVERY_AUTO);
	if (*options.recovery_why)
		options.recovery = RECOVERY_AUTO;
	recovery_decide_by(&recoveries[_i].facts, &options);
	ck_assert_int_eq(options.recovery, recoveries[_i].mode);
	ck_assert_msg(strstr(options.recovery_why, recoveries[_i].why), "%s", options.recovery_why);
	ck_assert(!*recoveries[_i].why == !*options.recovery_why);
	options_free(&options);
}
END_TEST

/* A daemon started by a keeper, and a keeper started by a daemon, serve a mount that already has
 * recovery. */
START_TEST(recovery_goes_on)
{
	static const char *const lines[] = {"gpumemfs --line=5 /", "gpumemfs --adopt=5 /"};
	struct options options = parsed(lines[_i]);
	const struct recovery_facts poor = {.kernel = "5.15"};

	options.recovery = RECOVERY_AUTO;
	recovery_decide_by(&poor, &options);
	ck_assert_int_eq(options.recovery, RECOVERY_TRANSPARENT);
	options_free(&options);
}
END_TEST

START_TEST(standby_wants_a_keeper)
{
	struct options options;
	char said[4096];

	ck_assert_int_eq(
	    parse("gpumemfs / -o standby=on,io_uring=on", &options, said, sizeof(said)), -EINVAL);
	ck_assert_str_eq(said, "gpumemfs: standby=on: needs recovery=transparent or "
			       "recovery=remount: not with io_uring=on\n");
	ck_assert_int_eq(
	    parse("gpumemfs / -o standby=on,recovery=off", &options, said, sizeof(said)), -EINVAL);
	ck_assert_str_eq(said,
			 "gpumemfs: standby=on: needs recovery=transparent or recovery=remount\n");
	options = parsed("gpumemfs / -o standby=on,recovery=transparent");
	ck_assert_int_eq(options.standby, STANDBY_ON);
	options_free(&options);
}
END_TEST

static const struct {
	const char *given, *gpus, *mount_options;
} gpus[] = {
    {"gpus=0", "0", NULL},
    {"gpus=63", "63", NULL},
    {"gpus=2:0", "0,2", NULL},
    {"gpus=0-3", "0,1,2,3", NULL},
    {"gpus=0-1:4:1", "0,1,4", NULL},
    {"gpus=0\\,2", "0,2", NULL},
    {"gpus=0\\,2-3,ro", "0,2,3", "ro"},
    {"gpus=0,2", "0,2", NULL},
    {"gpus=gpu0.mig1", "gpu0.mig1", NULL},
    {"gpus=gpu0.mig1:3:GPU-57a2d19c-6e40-4b13-9f08-3d71c5e20001",
     "gpu0.mig1,GPU-57a2d19c-6e40-4b13-9f08-3d71c5e20001,3", NULL},
    {"gpus=MIG-57a2d19c-6e40-4b13-9f08-3d71c5e20041,gpu0.mig2,ro",
     "MIG-57a2d19c-6e40-4b13-9f08-3d71c5e20041,gpu0.mig2", "ro"},
    {"gpus=0,2,4-5,ro", "0,2,4,5", "ro"},
    {"gpus=1:2,7", "1,2,7", NULL},
    {"gpus=0,ro", "0", "ro"},
    {"gpus=0,gpus=1", "1", NULL},
};

START_TEST(gpus_in_every_form)
{
	char line[128];

	snprintf(line, sizeof(line), "gpumemfs / -o %s", gpus[_i].given);
	struct options options = parsed(line);
	ck_assert_str_eq(options.gpus, gpus[_i].gpus);
	ck_assert_pstr_eq(options.mount_options, gpus[_i].mount_options);
	options_free(&options);
}
END_TEST

/* The last list counts. */
START_TEST(shares_are_replaced_and_bounded)
{
	static char line[USER_SHARES_MAX * 8 + 128];
	struct options options = parsed("gpumemfs / -o spill=host:1G,shares=7=2:8=3,shares=7=5");
	size_t length = (size_t)sprintf(line, "gpumemfs / -o spill=host:1G,shares=0=1");
	char said[sizeof(line) + 128];

	ck_assert_uint_eq(options.n_shares, 1);
	ck_assert_uint_eq(options_weight(&options, 7), 5);
	ck_assert_uint_eq(options_weight(&options, 8), 1);
	options_free(&options);
	for (unsigned uid = 1; uid < USER_SHARES_MAX; uid++)
		length += (size_t)sprintf(line + length, ":%u=1", uid);
	options = parsed(line);
	ck_assert_uint_eq(options.n_shares, USER_SHARES_MAX);
	options_free(&options);
	sprintf(line + length, ":1000=1");
	ck_assert_int_eq(parse(line, &options, said, sizeof(said)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(said, ": more than 256 users\n"));
	options_free(&options);
}
END_TEST

START_TEST(generic_options_are_handed_on)
{
	struct options options =
	    parsed("gpumemfs / -o "
		   "defaults,ro,,noexec,nosuid,nodev,sync,dirsync,noatime,relatime,x-systemd."
		   "automount,X-foo=1,_netdev,nofail,user=me,comment=a -w -r");

	ck_assert_str_eq(options.mount_options,
			 "ro,noexec,nosuid,nodev,sync,dirsync,noatime,rw,ro");
	options_free(&options);
}
END_TEST

/* The lines of mount(8): with an entry in fstab, and without. */
START_TEST(remounts_are_understood)
{
	char said[256];
	struct options options = parsed("mount.gpumemfs name / -o "
					"ro,remount,noexec,backend=host,size=1G,_netdev,nofail");

	ck_assert_int_eq(options.role, ROLE_REMOUNT);
	ck_assert_str_eq(options.mount_options, "ro,noexec");
	options_free(&options);
	options = parsed("mount.fuse.gpumemfs name / -o "
			 "rw,nodev,relatime,remount,user_id=0,group_id=0,default_permissions,"
			 "allow_other,max_read=131072");
	ck_assert_int_eq(options.role, ROLE_REMOUNT);
	ck_assert_str_eq(options.mount_options, "rw,suid,dev,exec,async,symfollow,rw,nodev");
	options_free(&options);
	ck_assert_int_eq(parse("mount.fuse.gpumemfs name / -o rw,remount,user_id=0,size=10M",
			       &options, said, sizeof(said)),
			 -EINVAL);
	ck_assert_ptr_nonnull(strstr(said, "option 'size' cannot be changed by a remount"));
	ck_assert_int_eq(parse("gpumemfs / -o remount,size=10M", &options, said, sizeof(said)),
			 -EINVAL);
	ck_assert_int_eq(parse("gpumemfs / -o user_id=0", &options, said, sizeof(said)), -EINVAL);
}
END_TEST

/* The options in any place, with mount(8)'s own flags between the options. */
static const char *const helper_lines[] = {
    "gpumemfs none / -o rw,size=1G",
    "gpumemfs -o rw,size=1G none /",
    "gpumemfs none -o rw -osize=1G /",
    "gpumemfs none / -n -s -v -o rw,size=1G -t fuse.gpumemfs",
    "mount.fuse.gpumemfs none / -nv -o rw,size=1G",
    "/sbin/mount.fuse.gpumemfs none / -s -o rw,unheard=of,size=1G",
    "gpumemfs -w -o size=1G -- none /",
    "gpumemfs none / -o rw,unheard,size=1G -s",
};

START_TEST(mount_helpers_are_understood)
{
	struct options options = parsed(helper_lines[_i]);

	ck_assert_str_eq(options.source, "none");
	ck_assert_str_eq(options.mountpoint, "/");
	ck_assert_str_eq(options.mount_options, "rw");
	ck_assert_uint_eq(options.size.value, 1ULL << 30);
	ck_assert(!options.foreground && !options.fake);
	options_free(&options);
}
END_TEST

START_TEST(flag_f_is_foreground_or_fake)
{
	struct options options = parsed("gpumemfs / -f");
	ck_assert(options.foreground && !options.fake);
	options_free(&options);

	options = parsed("/sbin/mount.fuse.gpumemfs none / -f");
	ck_assert(!options.foreground && options.fake);
	options_free(&options);
}
END_TEST

START_TEST(debug_logs_everything)
{
	struct options options = parsed("gpumemfs / -d -o log_level=error");

	ck_assert(options.debug && options.foreground);
	ck_assert_int_eq(options.log_level, LOG_LEVEL_DEBUG);
	options_free(&options);
}
END_TEST

START_TEST(help_and_version_need_nothing_else)
{
	static const char *const lines[] = {"gpumemfs -h", "gpumemfs --help", "gpumemfs -o foo -h",
					    "gpumemfs a b c d -h"};
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct options options = parsed(lines[i]);
		ck_assert(options.help && !options.version);
		options_free(&options);
	}
	struct options options = parsed("gpumemfs --version");
	ck_assert(options.version && !options.help);
	options_free(&options);
	options = parsed("gpumemfs -V");
	ck_assert(options.version);
	options_free(&options);
}
END_TEST

START_TEST(mountpoint_is_made_absolute)
{
	char folder[] = "/tmp/test_options.XXXXXX";
	char real[PATH_MAX], expected[PATH_MAX + 16];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_ptr_nonnull(realpath(folder, real));
	ck_assert_int_eq(chdir(folder), 0);
	ck_assert_int_eq(symlink(".", "link"), 0);

	struct options options = parsed("gpumemfs link/.");
	ck_assert_str_eq(options.mountpoint, real);
	options_free(&options);

	options = parsed("gpumemfs missing");
	snprintf(expected, sizeof(expected), "%s/missing", real);
	ck_assert_str_eq(options.mountpoint, expected);
	options_free(&options);

	options = parsed("gpumemfs /no/such/place");
	ck_assert_str_eq(options.mountpoint, "/no/such/place");
	options_free(&options);

	ck_assert_int_eq(unlink("link"), 0);
	ck_assert_int_eq(chdir("/"), 0);
	ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

START_TEST(amounts)
{
	struct amount none = {0}, bytes = {.given = true, .value = 5},
		      third = {.given = true, .percent = true, .value = 33};

	ck_assert_uint_eq(amount_bytes(&none, 1000, 42), 42);
	ck_assert_uint_eq(amount_bytes(&bytes, 1000, 42), 5);
	ck_assert_uint_eq(amount_bytes(&third, 1000, 42), 330);
	ck_assert_uint_eq(amount_bytes(&third, UINT64_MAX, 42),
			  UINT64_MAX / 100 * 33 + 15 * 33 / 100);
}
END_TEST

START_TEST(help_shows_every_option)
{
	char text[8192] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	options_help(out, "gpumemfs");
	fclose(out);
	for (unsigned i = 0; *options_values(i) || strcmp(options_name(i), "allow_other") == 0;
	     i++) {
		char shown[128];
		snprintf(shown, sizeof(shown), "  %s%s%s ", options_name(i),
			 *options_values(i) ? "=" : "", options_values(i));
		ck_assert_msg(strstr(text, shown), "the help lacks '%s'", shown);
	}
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		ck_assert_msg(strlen(line) <= 100, "too long: %s", line);
}
END_TEST

#define NAMES_MAX 128

/* An entry of the page: a name, and the values after the name's =. */
struct listed {
	char name[32], values[64];
};

static const struct listed *listed_find(const struct listed *all, unsigned count, const char *name)
{
	for (unsigned i = 0; i < count; i++)
		if (strcmp(all[i].name, name) == 0)
			return &all[i];
	return NULL;
}

/* ".It Cm name", ".It Cm name , name" or ".It Cm name Ns = Ns Ar BYTES | N%". */
static unsigned page_read(FILE *page, struct listed *all)
{
	char line[512], *rest, *word;
	unsigned count = 0;

	while (fgets(line, sizeof(line), page)) {
		if (strncmp(line, ".It Cm ", 7) != 0)
			continue;
		for (word = strtok_r(line + 4, " \n", &rest); word && strcmp(word, "Ns") != 0;
		     word = strtok_r(NULL, " \n", &rest)) {
			if (strcmp(word, "Cm") == 0 || strcmp(word, ",") == 0)
				continue;
			ck_assert_uint_lt(count, NAMES_MAX);
			snprintf(all[count].name, sizeof(all[0].name), "%s", word);
			all[count++].values[0] = '\0';
		}
		while (word && (word = strtok_r(NULL, " \n", &rest)))
			if (strcmp(word, "=") != 0 && strcmp(word, "Ns") != 0 &&
			    strcmp(word, "Cm") != 0 && strcmp(word, "Ar") != 0)
				strncat(all[count - 1].values, word,
					sizeof(all[0].values) - strlen(all[count - 1].values) - 1);
	}
	return count;
}

static bool option_is_known(const char *name)
{
	for (unsigned i = 0; options_name(i); i++)
		if (strcmp(options_name(i), name) == 0)
			return true;
	return false;
}

START_TEST(manual_and_table_agree)
{
	static struct listed all[NAMES_MAX];
	FILE *page = page_open(PAGE);
	ck_assert_ptr_nonnull(page);
	unsigned count = page_read(page, all);

	fclose(page);
	for (unsigned i = 0; options_name(i); i++) {
		const struct listed *found = listed_find(all, count, options_name(i));
		ck_assert_msg(found, "gpumemfs(8) lacks %s", options_name(i));
		ck_assert_str_eq(found->values, options_values(i));
	}
	for (unsigned i = 0; i < count; i++)
		ck_assert_msg(option_is_known(all[i].name), "gpumemfs(8) invents %s", all[i].name);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static Suite *suite(bool with_page)
{
	TCase *tests;
	Suite *all = unit_suite("options", &tests, 60);

	tcase_add_loop_test(tests, bad_line_is_named, 0, COUNT(bad));
	tcase_add_test(tests, defaults);
	tcase_add_test(tests, every_option);
	tcase_add_test(tests, choices_match_the_enums);
	tcase_add_loop_test(tests, gpus_in_every_form, 0, COUNT(gpus));
	tcase_add_loop_test(tests, recovery_is_decided, 0,
			    sizeof(recoveries) / sizeof(recoveries[0]));
	tcase_add_loop_test(tests, recovery_goes_on, 0, 2);
	tcase_add_test(tests, standby_wants_a_keeper);
	tcase_add_test(tests, shares_are_replaced_and_bounded);
	tcase_add_test(tests, generic_options_are_handed_on);
	tcase_add_loop_test(tests, mount_helpers_are_understood, 0, COUNT(helper_lines));
	tcase_add_test(tests, remounts_are_understood);
	tcase_add_test(tests, flag_f_is_foreground_or_fake);
	tcase_add_test(tests, debug_logs_everything);
	tcase_add_test(tests, help_and_version_need_nothing_else);
	tcase_add_test(tests, mountpoint_is_made_absolute);
	tcase_add_test(tests, amounts);
	tcase_add_test(tests, help_shows_every_option);
	if (with_page)
		tcase_add_test(tests, manual_and_table_agree);
	return all;
}

int main(void)
{
	FILE *page = page_open(PAGE);
	int status = unit_main(suite(page));

	return page_closed(page, PAGE, status);
}
