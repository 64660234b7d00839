/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* JSON on standard output, for programs. */
#ifndef CLIENT_CLI_CORE_OUTPUT_JSON_H
#define CLIENT_CLI_CORE_OUTPUT_JSON_H

#include <jansson.h>
#include <stdbool.h>

/* Ends a command that lists: writes the list as JSON under its name, or by table if the list is not
 * empty, and drops the reference. Gives the command's status so far, or the status of writing. */
int output_list(const char *name, json_t *list, bool json, int status,
		void (*table)(const json_t *list));
/* The version of the JSON documents, which gpumem(1) describes: rises if a member is removed or
 * changes its meaning. */
#define OUTPUT_SCHEMA 1
/* Writes the object with its schema and drops the reference. Gives the exit status. NULL means that
 * there was no memory. */
int output_json(json_t *value);
/* Writes the object in one line, for commands that write several documents. */
int output_json_line(json_t *value);

#endif
