# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
# Mounts of tests that run beside a script.
# shellcheck shell=bash

# The mount namespace of a script has a copy of every mount. The mounts of other tests would not end before the script.
release_other_mounts() {
	local where
	awk '/ - fuse\.gpumemfs /{ print $5 }' /proc/self/mountinfo | while read -r where; do
		where=$(printf '%b' "${where//\\/\\0}")
		[ "$where" = "${MNT:-}" ] || umount -l "$where" 2>/dev/null || true
	done
}
