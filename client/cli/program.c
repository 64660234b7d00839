/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/program.h"

#include <errno.h>
#include <glob.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"

int program_folder(char folder[PATH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);

	if (length < 0)
		return -errno;
	folder[length] = '\0';
	dirname(folder); /* shortens the text in place, as the path is absolute */
	return 0;
}

static bool is_trusted(const char *path)
{
	struct stat st, own_st;

	return stat(path, &st) == 0 && stat("/proc/self/exe", &own_st) == 0 &&
	       (st.st_uid == 0 || st.st_uid == own_st.st_uid);
}

/* Escapes the characters that glob(3) interprets. */
static void glob_quote(const char *text, char quoted[2 * PATH_MAX])
{
	for (; *text; text++) {
		if (strchr("*?[\\", *text))
			*quoted++ = '\\';
		*quoted++ = *text;
	}
	*quoted = '\0';
}

char *program_search(const char *folder, const char *const *places, const char *file)
{
	char quoted[2 * PATH_MAX], pattern[3 * PATH_MAX];
	char *found = NULL;

	glob_quote(folder, quoted);
	for (; *places && !found; places++) {
		glob_t matches;

		snprintf(pattern, sizeof(pattern), "%s/%s%s", quoted, *places, file);
		if (glob(pattern, 0, NULL, &matches) == 0 && is_trusted(matches.gl_pathv[0]))
			found = realpath(matches.gl_pathv[0], NULL);
		globfree(&matches);
	}
	return found;
}

/* Whether a list whose words are separated by one of the characters has the word. */
static bool list_has(const char *list, const char *separators, const char *word)
{
	size_t length = strlen(word);

	while (*list) {
		size_t next = strcspn(list, separators);

		if (next == length && strncmp(list, word, length) == 0)
			return true;
		list += next;
		list += strspn(list, separators);
	}
	return false;
}

int environment_prepend(const char *name, const char *separators, const char *word)
{
	AUTO_FREE char *list = NULL;
	const char *had = getenv(name);

	if (had && list_has(had, separators, word))
		return 0;
	if (asprintf(&list, "%s%s%s", word, had && *had ? ":" : "", had ? had : "") < 0) {
		list = NULL;
		return -ENOMEM;
	}
	return setenv(name, list, 1) ? -errno : 0;
}
