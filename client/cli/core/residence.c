/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/core/residence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/core/facts.h"
#include "common/cleanup.h"

/* The value of the attribute, such as "gpu0:4096 host:8192 disk:0", or a place alone. Parts of
 * another form are left out. */
static void residence_parse(const char *text, struct residence *residence)
{
	*residence = (struct residence){0};
	while (*text && residence->count < RESIDENCE_PLACES) {
		struct residence_place *place = &residence->places[residence->count];
		size_t word = strcspn(text, " "), name = strcspn(text, ": ");

		if (name && name < sizeof(place->name)) {
			memcpy(place->name, text, name);
			place->bytes = name < word ? strtoull(text + name + 1, NULL, 10) : 0;
			residence->count++;
		}
		text += word + strspn(text + word, " ");
	}
}

void residence_read(const char *path, struct residence *residence)
{
	AUTO_FREE char *text = NULL;

	residence_parse(facts_attribute(path, "resident", &text) == 0 ? text : "", residence);
}

const char *residence_text(const struct residence *residence, char text[RESIDENCE_TEXT_MAX])
{
	size_t length = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < residence->count; i++)
		if (residence->places[i].bytes)
			length +=
			    (size_t)snprintf(text + length, RESIDENCE_TEXT_MAX - length, "%s%s",
					     length ? "+" : "", residence->places[i].name);
	if (!length && residence->count)
		snprintf(text, RESIDENCE_TEXT_MAX, "%s", residence->places[0].name);
	return text;
}

uint64_t residence_bytes(const struct residence *residence)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < residence->count; i++)
		bytes += residence->places[i].bytes;
	return bytes;
}

uint64_t residence_bytes_in(const struct residence *residence, const char *name)
{
	for (unsigned i = 0; i < residence->count; i++)
		if (strcmp(residence->places[i].name, name) == 0)
			return residence->places[i].bytes;
	return 0;
}
