#compdef gpumem
# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
#
# Completion of gpumem(1) for zsh. The command itself says what may stand there; paths are zsh's.

_gpumem() {
	local line word
	local -a plain open
	while IFS= read -r line; do
		word=${line%%$'\t'*}
		# A word that ends in = wants a value right behind it.
		if [[ $word == *= ]]; then
			open+=("${word//:/\\:}:${line#*$'\t'}")
		else
			plain+=("${word//:/\\:}:${line#*$'\t'}")
		fi
	done < <(gpumem --complete "${(@)words[2,CURRENT]}" 2>/dev/null)
	if (( ${#plain} + ${#open} )); then
		(( ${#plain} )) && _describe -t words word plain
		(( ${#open} )) && _describe -t words word open -S ''
	elif (( CURRENT > 2 )); then
		_files
	fi
}

_gpumem "$@"
