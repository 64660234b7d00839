/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "client/cli/core/output_json.h"

#include <errno.h>
#include <stdio.h>

#include "client/cli/core/cli.h"
#include "common/cleanup.h"
#include "common/text/utf8.h"

static int json_print(json_t *value, size_t flags)
{
	if (!value)
		return cli_fail("JSON", ENOMEM);
	json_object_set_new(value, "schema", json_integer(OUTPUT_SCHEMA));
	AUTO_FREE char *text = json_dumps(value, flags);

	json_decref(value);
	if (!text)
		return cli_fail("JSON", ENOMEM);
	utf8_write_json(text, stdout);
	fputc('\n', stdout);
	return CLI_OK;
}

int output_json(json_t *value)
{
	return json_print(value, JSON_INDENT(2));
}

int output_json_line(json_t *value)
{
	return json_print(value, JSON_COMPACT);
}

int output_list(const char *name, json_t *list, bool json, int status,
		void (*table)(const json_t *list))
{
	bool has_rows = json_array_size(list);
	int written = CLI_OK;

	if (json && (has_rows || status == CLI_OK))
		written = output_json(json_pack("{s:O}", name, list));
	else if (has_rows)
		table(list);
	json_decref(list);
	return status == CLI_OK ? written : status;
}
