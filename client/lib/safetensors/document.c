/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/lib/safetensors/document.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/error.h"
#include "client/core/process.h"
#include "common/cleanup.h"
#include "common/text/utf8.h"

/* Long paths are cut at the front, so that the error's text has room. */
#define SHOWN_PATH 200

/* As deep as the reference implementation goes: jansson recurses on the stack of the calling
 * thread, which may be small. */
#define DEPTH_MAX 127

/* The largest integer that jansson reads. */
#define INTEGER_MAX "9223372036854775807"

static const struct client_dtype dtype_table[] = {
    {"BOOL", 8},    {"I8", 8},	    {"I16", 16},	{"I32", 32},	    {"I64", 64},
    {"U8", 8},	    {"U16", 16},    {"U32", 32},	{"U64", 64},	    {"F16", 16},
    {"F32", 32},    {"F64", 64},    {"BF16", 16},	{"C64", 64},	    {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
};

/* Text of the file for a message: in quotes, in one line, of limited length. */
static struct client_shown text_show(const char *text, size_t bytes)
{
	char part[CLIENT_SHOWN_BYTES + 1] = "";
	struct client_shown shown = {"'"};
	size_t n = bytes <= CLIENT_SHOWN_BYTES ? bytes : CLIENT_SHOWN_BYTES;

	/* The text is not cut in the middle of a character. */
	while (n < bytes && n && ((unsigned char)text[n] & 0xc0) == 0x80)
		n--;
	memcpy(part, text, n);
	const char *rest = utf8_escape(part, "", shown.text + 1, CLIENT_SHOWN_BYTES + 1);
	strcat(shown.text, *rest || n < bytes ? "...'" : "'");
	return shown;
}

struct client_shown client_text_show(const char *text)
{
	return text_show(text, strlen(text));
}

/* The duplicate key that ends before end. */
static struct client_shown key_show(const char *text, size_t end)
{
	size_t at = end ? end - 1 : 0, slashes;

	for (;;) {
		if (!at--)
			return text_show("", 0);
		if (text[at] != '"')
			continue;
		for (slashes = 0; slashes < at && text[at - slashes - 1] == '\\'; slashes++)
			;
		if (slashes % 2 == 0)
			return text_show(text + at + 1, end - at - 2);
	}
}

/* The place of the quote that ends the string; bytes: the string has no end. */
static size_t string_end(const char *text, size_t bytes, size_t start)
{
	size_t at = start + 1;

	while (at < bytes && text[at] != '"')
		at += text[at] == '\\' ? 2 : 1;
	return at < bytes ? at : bytes;
}

static int text_check_depth(const char *text, size_t bytes, const char *name)
{
	unsigned depth = 0;

	for (size_t i = 0; i < bytes; i++) {
		if (text[i] == '"')
			i = string_end(text, bytes, i);
		else if (text[i] == '{' || text[i] == '[')
			depth++;
		else if ((text[i] == '}' || text[i] == ']') && depth)
			depth--;
		if (depth > DEPTH_MAX)
			return client_fail(EINVAL, "the %s is nested too deeply", name);
	}
	return 0;
}

/* Of a number as text: n characters. */
static bool integer_is_large(const char *number, size_t n)
{
	const char *digits = number + (*number == '-');
	const size_t n_digits = n - (size_t)(digits - number), n_max = strlen(INTEGER_MAX);

	return strspn(digits, "0123456789") >= n_digits &&
	       (n_digits > n_max || (n_digits == n_max && memcmp(digits, INTEGER_MAX, n_max) > 0));
}

/* Larger integers, which fields unknown to the format may have, get a decimal point: jansson would
 * fail. Fields of the format accept neither. */
static void integers_add_point(char *text, size_t bytes)
{
	for (size_t i = 0, n; i < bytes; i += n + 1) {
		n = strspn(text + i, "0123456789.eE+-");
		if (text[i] == '"')
			n = string_end(text, bytes, i) - i;
		else if (n && integer_is_large(text + i, n))
			text[i + n - 2] = '.';
	}
}

static int json_fail(const json_error_t *error, const char *text, const char *name)
{
	if (json_error_code(error) == json_error_out_of_memory)
		return client_fail(ENOMEM, "no memory for a %s", name);
	if (json_error_code(error) == json_error_duplicate_key)
		return client_fail(EINVAL, "%s is there twice",
				   key_show(text, (size_t)error->position).text);
	return client_fail(EINVAL, "the %s is not as the format has it: %s, at byte %d", name,
			   client_text_show(error->text).text, error->position);
}

/* jansson draws its seed once in a process: a child must not find the seed half written. */
static void json_prepare(void)
{
	CLIENT_CALL();
	json_object_seed(0);
}

int client_json_load(const char *text, size_t bytes, const char *name, json_t **json)
{
	json_error_t error;

	json_prepare();

	if (!bytes || text[0] != '{')
		return client_fail(EINVAL, "the %s does not begin with '{'", name);
	/* jansson skips a NUL behind a number. */
	if (memchr(text, '\0', bytes))
		return client_fail(EINVAL, "the %s contains a NUL", name);
	int rc = text_check_depth(text, bytes, name);
	if (rc < 0)
		return rc;
	AUTO_FREE char *copy = malloc(bytes + 1);
	if (!copy)
		return client_fail(ENOMEM, "no memory for a %s of %zu bytes", name, bytes);
	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	integers_add_point(copy, bytes);
	*json = json_loadb(copy, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
	return *json ? 0 : json_fail(&error, text, name);
}

bool client_json_has_numbers(json_t *list)
{
	json_t *number;
	size_t i;

	json_array_foreach (list, i, number)
		if (!json_is_integer(number) || json_integer_value(number) < 0)
			return false;
	return json_is_array(list);
}

const struct client_dtype *client_dtype_find(json_t *code)
{
	for (size_t i = 0; i < sizeof(dtype_table) / sizeof(dtype_table[0]); i++)
		if (json_is_string(code) &&
		    json_string_length(code) == strlen(dtype_table[i].name) &&
		    !strcmp(json_string_value(code), dtype_table[i].name))
			return &dtype_table[i];
	return NULL;
}

int client_fail_in(const char *path, int rc)
{
	size_t bytes = strlen(path);
	char message[640];

	snprintf(message, sizeof(message), "%s", client_error_text());
	if (bytes > SHOWN_PATH)
		return client_fail(-rc, "...%s: %s", path + bytes - SHOWN_PATH, message);
	return client_fail(-rc, "%s: %s", path, message);
}
