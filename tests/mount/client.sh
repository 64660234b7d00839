#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
# libgpumem by hand in shell tests: client_start begins to talk to client_tool, through COMMAND... if given.
# shellcheck shell=bash

client_start() {
	coproc CLIENT { "$@" env LD_LIBRARY_PATH="$DAEMON_LIBRARY_PATH" "$TOOLS/client_tool"; }
	client_in=${CLIENT[1]} client_out=${CLIENT[0]}
}

# told COMMAND...: the client's answer
told() {
	local answer
	echo "$*" >&"$client_in"
	read -r answer <&"$client_out" || fail "the client said nothing to '$*'"
	echo "$answer"
}

# says WANTED COMMAND...: the answer matches this pattern
says() {
	local wanted=$1 answer
	shift
	answer=$(told "$@")
	# shellcheck disable=SC2053 # a pattern
	[[ $answer == $wanted ]] || fail "client: $*: '$answer', wanted '$wanted'"
}

client_end() {
	local pid=$CLIENT_PID
	exec {client_in}>&-
	wait "$pid" || fail "the client ended with status $?"
}

byte_at() { # FILE OFFSET
	dd if="$1" bs=1 skip="$2" count=1 status=none
}
