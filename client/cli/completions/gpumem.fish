# SPDX-License-Identifier: Apache-2.0 OR MIT
# SPDX-FileCopyrightText: The gpumemfs authors
#
# Completion of gpumem(1) for fish. The command itself says what may stand there; paths are fish's.

function __gpumem_words
    set -l before (commandline --tokenize --cut-at-cursor --current-process)
    set -l now (commandline --current-token --cut-at-cursor)
    gpumem --complete $before[2..-1] "$now" 2>/dev/null
end

# At the first word there are no paths.
complete -c gpumem -f -n 'test (count (commandline --tokenize --cut-at-cursor --current-process)) -lt 2' -a '(__gpumem_words)'
complete -c gpumem -F -n 'test (count (commandline --tokenize --cut-at-cursor --current-process)) -ge 2' -a '(__gpumem_words)'
