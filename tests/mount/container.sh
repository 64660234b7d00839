#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
# A container without a container engine, for shell tests: its own namespaces (mounts, processes, network, IPC, host
# name), and a root with this machine's programs, this tree, and the given files only.
# shellcheck shell=bash

need unshare nsenter setpriv pivot_root pgrep
unshare -m true 2>/dev/null || skip "no right to make mount namespaces"

# The tests' own files, and with them the files that sanitizers read.
TREE=$(realpath "${BASH_SOURCE[0]%/*}/../..")
export TREE

# For the shell that becomes the first process: GIVEN... -- COMMAND...; its root is in $WORK/root.
# shellcheck disable=SC2016
CONTAINER='
	set -eu
	root=$WORK/root
	mount -t tmpfs tmpfs "$root"
	mkdir "$root/proc" "$root/dev" "$root/old"
	mkdir -m 1777 "$root/tmp"
	for path in /bin /sbin /lib /lib32 /lib64 /usr /etc "$TREE" "$BUILD"; do
		if [ -L "$path" ]; then
			cp -P "$path" "$root/"
		elif [ -d "$path" ]; then
			mkdir -p "$root$path"
			mount --rbind "$path" "$root$path"
		fi
	done
	for device in null zero urandom ${DEVICES:-}; do
		touch "$root/dev/$device"
		mount --bind "/dev/$device" "$root/dev/$device"
	done
	while [ "$1" != -- ]; do
		IFS=: read -r source target options <<<"$1"
		shift
		if [ -d "$source" ]; then
			mkdir -p "$root$target"
		else
			mkdir -p "$root${target%/*}"
			touch "$root$target"
		fi
		mount --rbind "$source" "$root$target"
		case $options in
		ro) mount -o "remount,bind,ro,nosuid,nodev" "$root$target" ;;
		rslave | rshared) continue ;;
		esac
		mount --make-rprivate "$root$target"
	done
	shift
	mount -t proc proc "$root/proc"
	hostname container
	cd "$root"
	pivot_root . old
	mount --make-rslave old # or what is shared would be unmounted for all
	umount -l old
	rmdir old
	cd /
	exec "$@"'

# contain GIVEN... -- COMMAND...; GIVEN is SOURCE:TARGET[:ro|rslave|rshared], as for docker run -v. Runs like docker: as
# root, without a user namespace.
contain() {
	if [ "${CONTAINERS_BY:-}" = podman ]; then
		contain_by_podman "$@"
		return
	fi
	mkdir -p "$WORK/root"
	unshare --mount --pid --net --ipc --uts --fork --kill-child --propagation "${PROPAGATION:-slave}" \
		bash -c "$CONTAINER" container "$@"
}

# Like rootless podman for the user 65534 (nobody): root inside the container, an ordinary user outside.
contain_rootless() {
	if [ "${CONTAINERS_BY:-}" = podman ]; then
		rootless_by_podman "$@"
		return
	fi
	mkdir -p "$WORK/root"
	as_nobody test -x "$BUILD/gpumemfs" || skip "nobody cannot reach $BUILD"
	as_nobody unshare --user --map-root-user true 2>/dev/null || skip "no user namespaces for ordinary users"
	as_nobody unshare --user --map-root-user --mount --pid --net --ipc --uts --fork --kill-child --propagation slave \
		bash -c "$CONTAINER" container "$@"
}

# The same by podman (tests/containers/run): the container has the name of the shell that waits for it.
contain_by_podman() {
	local options=(--rm --interactive --network none --name "c$BASHPID" --hostname container) name
	for name in BUILD TREE TOOLS WORK OPTIONS DAEMON_LIBRARY_PATH LD_LIBRARY_PATH GRACE REPORT; do
		[ -z "${!name:-}" ] || options+=(--env "$name")
	done
	[ -z "${DEVICES:-}" ] || options+=(--privileged)
	options+=(--volume "$TREE:$TREE:ro" --volume "$BUILD:$BUILD:ro")
	while [ "$1" != -- ]; do
		options+=(--volume "$1")
		shift
	done
	shift
	podman --log-level error run "${options[@]}" gpumemfs-test "$@"
}

# A process of rootless podman keeps the namespaces of the user whose XDG_RUNTIME_DIR this is.
rootless_by_podman() {
	mkdir -p "$WORK/podman"
	chown 65534 "$WORK/podman"
	trap 'pkill -F "$WORK/podman/libpod/tmp/pause.pid" 2>/dev/null || true' EXIT
	HOME=/home/nobody XDG_RUNTIME_DIR=$WORK/podman as_nobody \
		bash -c "$(declare -f contain_by_podman); contain_by_podman \"\$@\"" podman "$@"
}

# first_of PID: the first process of a container that was started in the background as PID.
first_of() {
	if [ "${CONTAINERS_BY:-}" = podman ]; then
		podman inspect --format '{{.State.Pid}}' "c$1"
	else
		pgrep -P "$(pgrep -P "$1")"
	fi
}

# enter PID COMMAND...: in the container of this first process, as docker exec.
enter() {
	nsenter --target "$1" --mount --pid --net --ipc --uts --root --wd "${@:2}"
}

# on_a_node: starts the test again in a mount namespace that stands for the machine of the containers: $WORK/node is
# shared with the containers that get it as rshared or rslave.
on_a_node() {
	if [ -z "${ON_A_NODE:-}" ]; then
		export ON_A_NODE=1
		exec unshare --mount --propagation slave "$0"
	fi
	mkdir -p "$WORK/node"
	mount -t tmpfs tmpfs "$WORK/node"
	mount --make-shared "$WORK/node"
}
