# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
# Helpers shared by the shell tests. Sourced first: the test goes on in its own folder in gpu0/.
# shellcheck shell=bash

set -eu -o pipefail
umask 022

fail() {
	echo "failed: $*"
	exit 1
}

skip() {
	echo "$*"
	exit 77
}

# At the runner's deadline: what did not happen, and who keeps the mount of `up`.
awaited='' mount_device=''
is_late() {
	[ -z "$mount_device" ] || "${BASH_SOURCE[0]%/*}/holders.py" "$mount_device"
	fail "did not happen: ${awaited:-the end of the test}"
}
trap is_late TERM

trap 'echo "failed at $0:$LINENO: $BASH_COMMAND" >&2' ERR
set -E

# Whether the preload library of this build can be loaded into programs without sanitizers.
is_plain_preload() {
	case $(ldd "$BUILD/libgpumem-preload.so") in
	*libasan* | *libtsan*) return 1 ;;
	esac
}

need_plain_preload() {
	is_plain_preload || skip "a library with a sanitizer goes into no ordinary program"
}

need() {
	local tool
	for tool; do
		command -v "$tool" >/dev/null || skip "no $tool here"
	done
}

# equal WHAT GOT WANTED
equal() {
	[ "$2" = "$3" ] || fail "$1: got '$2', wanted '$3'"
}

# refused REGEX COMMAND...: the command fails and its message matches.
refused() {
	local wanted=$1 message
	shift
	if message=$("$@" 2>&1 </dev/null); then
		fail "should have been refused: $*"
	fi
	grep -qiE -- "$wanted" <<<"$message" || fail "$*: '$message' says nothing of '$wanted'"
}

random_file() { # FILE BYTES
	head -c "$2" /dev/urandom >"$1"
}

sum_of() {
	sha256sum <"$1"
}

size_of() {
	stat -c %s "$1"
}

as_nobody() {
	as_user 65534 "$@"
}

# as_user ID COMMAND...: as a user and a group of that number, which need no name
as_user() {
	setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"
}

# Makes mounting possible for every user: if /dev/fuse is for root only, as on a machine without udev, the test starts
# again in a mount namespace with a /dev/fuse for all users.
fuse_for_all() {
	need fusermount3 setpriv unshare
	if [ -n "${FUSE_FOR_ALL:-}" ]; then
		mknod "$WORK/fuse" c 10 229
		chmod 0666 "$WORK/fuse"
		mount --bind "$WORK/fuse" /dev/fuse
	elif ! as_nobody test -w /dev/fuse; then
		FUSE_FOR_ALL=1 exec unshare -m "$0"
	fi
	as_nobody test -w /dev/fuse || skip "/dev/fuse is for root alone"
	[ -u "$(command -v fusermount3)" ] || skip "fusermount3 is not set-user-id root"
	as_nobody test -x "$BUILD/gpumemfs" || skip "nobody cannot reach $BUILD"
}

# ordinary_user: fuse_for_all for $user, a user of this test alone: as_owner. The daemons of a user without a login session
# meet their clients in the folder own_dir. $own is its name without the random part.
ordinary_user() {
	[ -n "${FUSE_FOR_ALL:-}" ] || FUSE_FOR_ALL=1 exec unshare -m "$0"
	fuse_for_all
	user=$((60000 + $$ % 5000))
	own=/tmp/gpumemfs-$user
	# fusermount3 asks for the user's name.
	(cat /etc/passwd && echo "owner$user:x:$user:$user::/:/bin/sh") >"$WORK/passwd"
	mount --bind "$WORK/passwd" /etc/passwd
	MNT=$WORK/dir
	mkdir -p "$MNT"
	chown "$user" "$MNT"
}

own_dir() {
	find /tmp -maxdepth 1 -type d -name "gpumemfs-$user-*" -user "$user" -perm 700
}

own_remove() {
	[ -z "${own:-}" ] || rm -rf "$own" "$own"-*
}

as_owner() {
	as_user "$user" env -u XDG_RUNTIME_DIR LD_LIBRARY_PATH="$DAEMON_LIBRARY_PATH" "$@"
}

# up_as_owner OPTIONS: mounts in the background; the daemon's messages are in $WORK/message
up_as_owner() {
	as_owner "$BUILD/gpumemfs" "$MNT" -o "$OPTIONS,$1" >"$WORK/message" 2>&1 || fail "$(cat "$WORK/message")"
}

xattr() { # FILE NAME: its value, below user.gpumem.
	getfattr --only-values -n "user.gpumem.$2" "$1"
}

xattr_set() { # FILE NAME VALUE
	setfattr -n "user.gpumem.$2" -v "$3" "$1"
}

used_bytes() { # DIRECTORY: the used bytes there, by df
	df -B1 --output=used "$1" | tail -1 | tr -d ' '
}

free_bytes() {
	df -B1 --output=avail "$1" | tail -1 | tr -d ' '
}

# Waits for an event: eventually COMMAND... There is no other limit than the runner's deadline.
eventually() {
	awaited=$*
	until "$@"; do sleep 0.01; done
	awaited=
}

# The daemon with the backend's libraries, for tests that mount by themselves.
gpumemfs() {
	env LD_LIBRARY_PATH="$DAEMON_LIBRARY_PATH" "$BUILD/gpumemfs" "$@"
}

mounted() {
	awk -v where="$MNT" '$5 == where { found = 1 } END { exit !found }' /proc/self/mountinfo
}

# up [OPTIONS]: a daemon in the foreground on $MNT; sets DAEMON_PID.
up() {
	mkdir -p "$MNT"
	(exec env LD_LIBRARY_PATH="$DAEMON_LIBRARY_PATH" \
		"$BUILD/gpumemfs" -f "$MNT" -o "$OPTIONS${1:+,$1}" >>"$LOG" 2>&1) &
	DAEMON_PID=$!
	awaited="a mount with $OPTIONS${1:+,$1}"
	until mounted; do
		kill -0 "$DAEMON_PID" || fail "the daemon ended: $(tail -3 "$LOG")"
		sleep 0.01
	done
	stat "$MNT/gpu0" >/dev/null
	# The daemon answers before files of the mount can be shared.
	while grep -q '^sharing off: the mount has just been made' "$MNT/.gpumem/params"; do sleep 0.01; done
	mount_device=$(awk -v where="$MNT" '$5 == where { device = $3 } END { print device }' /proc/self/mountinfo)
	awaited=
}

# The serving process: the child of $DAEMON_PID, or $DAEMON_PID itself if there is no keeper.
serving() {
	local process
	process=$(sed -n 's/^daemon .* process \([0-9]*\) .*/\1/p' "$MNT/.gpumem/params")
	echo "${process:-$DAEMON_PID}"
}

# fault ORDER...: the orders for the stand-in driver of a daemon that was started with faults_to_order, from now on.
fault() {
	printf '%s\n' "$@" >"$WORK/faults.new"
	mv "$WORK/faults.new" "$WORK/faults"
}

faults_to_order() {
	export GPUMEM_STANDIN_FAULT_FILE=$WORK/faults
	: >"$WORK/faults"
}

# The state of a GPU in stats.json: health_of gpu0 [health|resets|lost_bytes]
health_of() {
	python3 -c 'import json,sys
print(next(v[sys.argv[3]] for v in json.load(open(sys.argv[1]))["volumes"] if v["name"] == sys.argv[2]))' \
		"$MNT/.gpumem/stats.json" "$1" "${2:-health}"
}

is_health() { # GPU HEALTH
	[ "$(health_of "$1")" = "$2" ]
}

# A descriptor in the hands of a process that has just ended, or of another test's namespace, keeps a mount for a moment.
unmounted_now() {
	local said
	said=$(umount "$MNT" 2>&1) && return
	grep -q busy <<<"$said" || fail "umount: $said"
	return 1
}

down() {
	eventually unmounted_now
	wait "$DAEMON_PID" || fail "the daemon ended with status $?"
}

if [ -d "$GPU0" ]; then
	mkdir "$GPU0/$TEST"
	cd "$GPU0/$TEST"
fi
