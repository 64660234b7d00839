# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
# Shared by scripts/bundle and scripts/wheel: libraries and glibc that programs need.
# shellcheck shell=bash

# Libraries of glibc: each system has its own, and must use its own.
glibc='^(ld-linux.*|libc|libm|libmvec|libdl|libpthread|librt|libresolv|libutil|libanl)\.so'

# The shared libraries that a program loads, except glibc's.
libraries_of() {
	# Without the stand-ins for a driver's libraries, as a machine's own driver counts there, and without
	# libgpumem, which the callers copy.
	ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' |
		grep -v -e '/driver/' -e '/libgpumem\.so' | sort -u |
		while read -r library; do
			basename "$library" | grep -qE "$glibc" || echo "$library"
		done | awk -F/ '!seen[$NF]++'
}

# glibc_needed FOLDER: the newest glibc that a file of the folder needs.
glibc_needed() {
	find "$1" -type f \( -perm -u=x -o -name '*.so*' \) -exec objdump -T {} + 2>/dev/null |
		grep -oE 'GLIBC_[0-9]+\.[0-9.]+' | sort -uV | tail -n 1 | cut -d_ -f2
}
