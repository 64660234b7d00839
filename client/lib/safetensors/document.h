/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* JSON of files that describe tensors, which may be hostile. */
#ifndef CLIENT_LIB_SAFETENSORS_DOCUMENT_H
#define CLIENT_LIB_SAFETENSORS_DOCUMENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define CLIENT_SHOWN_BYTES 80

struct client_shown {
	char text[CLIENT_SHOWN_BYTES + 8];
};

/* Text of the file for a message: in quotes, in one line, of limited length. */
struct client_shown client_text_show(const char *text);

/* Puts a path before the error text: -errno, as the call that failed gave it. */
int client_fail_in(const char *path, int rc);

/* Parses an object without duplicate keys. name: of the text, for messages. 0, -EINVAL with a text,
 * or -ENOMEM. */
int client_json_load(const char *text, size_t bytes, const char *name, json_t **json);
/* Whether a value is a list of integers, none of them negative. */
bool client_json_has_numbers(json_t *list);

struct client_dtype {
	const char *name;
	unsigned bits; /* of an element */
};

/* The type of a string such as "BF16", or NULL. */
const struct client_dtype *client_dtype_find(json_t *code);

#endif
