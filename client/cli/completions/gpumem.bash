# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
# shellcheck shell=bash
#
# Completion of gpumem(1) for bash. The command itself says what may stand there; paths are bash's.

_gpumem() {
	local word=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]:1:COMP_CWORD}") line last
	# Bash splits at =: page_size=2M is put together again.
	if [ "$COMP_CWORD" -gt 1 ] && [ "$word" = = ]; then
		words=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
		words[-1]+="="
		word=
	elif [ "$COMP_CWORD" -gt 2 ] && [ "${COMP_WORDS[COMP_CWORD - 1]}" = = ]; then
		words=("${COMP_WORDS[@]:1:COMP_CWORD-2}")
		words[-1]+="=$word"
	fi
	last=${words[-1]}
	COMPREPLY=()
	while IFS= read -r line; do
		line=${line%%$'\t'*}
		# What stands before the = is on the command line already.
		[ "$last" = "${last#*=}" ] || line=${line#*=}
		COMPREPLY+=("$line")
	done < <(gpumem --complete "${words[@]}" 2>/dev/null)
	[ "${#COMPREPLY[@]}" = 1 ] && [ "${COMPREPLY[0]%=}" != "${COMPREPLY[0]}" ] && compopt -o nospace 2>/dev/null
	if [ "${#COMPREPLY[@]}" = 0 ] && [ "$COMP_CWORD" -gt 1 ]; then
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
	fi
}

complete -F _gpumem gpumem
