#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
# Helpers shared by the tests of the command gpumem. Sourced after lib.sh.
# shellcheck shell=bash

cli() {
	"$BUILD/gpumem" "$@"
}

# ends STATUS REGEX COMMAND...: the command ends with this status and its messages match.
ends() {
	local wanted=$1 regex=$2 status=0 message
	shift 2
	message=$("$@" 2>&1 </dev/null) || status=$?
	equal "status of $* ('$message')" "$status" "$wanted"
	grep -qE -- "$regex" <<<"$message" || fail "$*: '$message' says nothing of '$regex'"
}

# says EXPRESSION COMMAND...: the command prints JSON (j), for which the Python expression is true.
says() {
	local expression=$1
	shift
	"$@" >"$WORK/said.json" || fail "$*: status $?"
	python3 - "$expression" "$WORK/said.json" <<-'PYTHON' || fail "$*: not $expression: $(cat "$WORK/said.json")"
		import json, sys
		j = json.load(open(sys.argv[2]))
		sys.exit(not eval(sys.argv[1]))
	PYTHON
}

no_partials() { # DIRECTORY
	equal "what is left beside the files" "$(find "$1" -name '.*gpumem-part')" ''
}
