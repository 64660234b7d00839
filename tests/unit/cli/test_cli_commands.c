/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem: compares the table of subcommands with the manual page, and the attributes with the
 * daemon's. */
#include <string.h>

#include "client/cli/attributes/attributes.h"
#include "client/cli/core/cli.h"
#include "tests/unit/page.h"
#include "tests/unit/unit.h"

#define PAGE "man/gpumem.1"

#define LISTED_MAX 256

/* An option as written on the page: "cp -j --threads=N". */
struct listed {
	char command[32], text[96];
};

static struct listed listed[LISTED_MAX];
static unsigned n_listed;
static char sections[32][96];
static unsigned n_sections;

/* Converts "cp Ar src ... Ar dst" to the form of the help, without macros and in capitals: "cp
 * SRC... DST". */
static void section_read(char *line, char *text)
{
	char *rest, *word = strtok_r(line, " \n", &rest);
	bool optional = false, joined = false;

	*text = '\0';
	strcat(text, word);
	while ((word = strtok_r(NULL, " \n", &rest))) {
		if (strcmp(word, "Op") == 0)
			optional = true;
		else if (strcmp(word, "Ns") == 0)
			joined = true;
		else if (strcmp(word, "...") == 0)
			strcat(text, "...");
		else if (strcmp(word, "Ar") != 0) {
			strcat(text, joined ? "" : " ");
			strcat(text, optional && !joined ? "[" : "");
			for (char *at = text + strlen(text); *word; word++, at[1] = '\0', at++)
				*at = *word >= 'a' && *word <= 'z' ? (char)(*word - 32) : *word;
			joined = false;
		}
	}
	if (optional)
		strcat(text, "]");
}

/* ".It Fl j , -threads Ns = Ns Ar N" */
static void option_read(char *line, char *text)
{
	char *rest, *word;

	*text = '\0';
	for (word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
		if (strcmp(word, ",") == 0)
			strcat(text, " ");
		else if (strcmp(word, "Ns") != 0 && strcmp(word, "Ar") != 0) {
			if (strcmp(word, "=") != 0 && !strchr(text, '='))
				strcat(text, "-");
			strcat(text, word);
		}
	}
}

static void page_read(FILE *page)
{
	char line[512], command[32] = "";

	while (fgets(line, sizeof(line), page)) {
		if (strncmp(line, ".Ss ", 4) == 0) {
			ck_assert_uint_lt(n_sections, 32);
			section_read(line + 4, sections[n_sections++]);
			snprintf(command, sizeof(command), "%.*s",
				 (int)strcspn(sections[n_sections - 1], " "),
				 sections[n_sections - 1]);
		} else if (strncmp(line, ".Sh ", 4) == 0) {
			*command = '\0';
		} else if (*command && strncmp(line, ".It Fl ", 7) == 0) {
			ck_assert_uint_lt(n_listed, LISTED_MAX);
			strcpy(listed[n_listed].command, command);
			option_read(line + 7, listed[n_listed++].text);
		}
	}
}

static void option_text(const struct cli_option *option, char *text)
{
	*text = '\0';
	if (option->code < CLI_LONG)
		sprintf(text, "-%c ", option->code);
	sprintf(text + strlen(text), "--%s%s%s", option->name, option->value ? "=" : "",
		option->value ? option->value : "");
}

static unsigned count_options(void)
{
	unsigned count = 0;

	for (unsigned i = 0; commands[i]; i++)
		for (const struct cli_option *one = commands[i]->options; one && one->name; one++)
			count++;
	return count;
}

START_TEST(manual_and_table_agree)
{
	FILE *page = page_open(PAGE);
	unsigned n_commands = 0;
	char text[96];

	ck_assert_ptr_nonnull(page);
	n_listed = n_sections = 0;
	page_read(page);
	fclose(page);
	for (unsigned i = 0; commands[i]; i++, n_commands++) {
		snprintf(text, sizeof(text), "%s%s%s", commands[i]->name,
			 *commands[i]->words ? " " : "", commands[i]->words);
		ck_assert_uint_lt(i, n_sections);
		ck_assert_str_eq(sections[i], text);
		for (const struct cli_option *one = commands[i]->options; one && one->name; one++) {
			bool found = false;

			option_text(one, text);
			for (unsigned n = 0; n < n_listed; n++)
				found |= strcmp(listed[n].text, text) == 0 &&
					 strcmp(listed[n].command, commands[i]->name) == 0;
			ck_assert_msg(found, "gpumem(1) lacks %s %s", commands[i]->name, text);
		}
	}
	ck_assert_uint_eq(n_sections, n_commands);
	ck_assert_uint_eq(n_listed, count_options());
}
END_TEST

static size_t longest_line(const char *text)
{
	size_t longest = 0;

	for (size_t length; *text; text += length + (text[length] == '\n')) {
		length = strcspn(text, "\n");
		longest = length > longest ? length : longest;
	}
	return longest;
}

START_TEST(help_shows_every_command_and_option)
{
	char text[16384] = "", shown[96];
	FILE *out = fmemopen(text, sizeof(text), "w");

	commands_help_write(out);
	fflush(out);
	ck_assert_uint_le(longest_line(text), 80);
	for (unsigned i = 0; commands[i]; i++)
		command_help_write(out, commands[i]);
	fclose(out);
	for (unsigned i = 0; commands[i]; i++) {
		snprintf(shown, sizeof(shown), "\n  %s ", commands[i]->name);
		ck_assert_msg(strstr(text, shown), "the help lacks '%s'", shown);
		for (const struct cli_option *one = commands[i]->options; one && one->name; one++) {
			snprintf(shown, sizeof(shown), "--%s%s%s", one->name, one->value ? "=" : "",
				 one->value ? one->value : "");
			ck_assert_msg(strstr(text, shown), "the help lacks '%s'", shown);
		}
	}
	ck_assert_uint_le(longest_line(text), 115);
}
END_TEST

START_TEST(option_letters_are_unique)
{
	for (unsigned i = 0; commands[i]; i++)
		for (const struct cli_option *one = commands[i]->options; one && one->name; one++) {
			ck_assert_int_ne(one->code, 'h');
			for (const struct cli_option *other = one + 1; other->name; other++) {
				ck_assert_int_ne(one->code, other->code);
				ck_assert_str_ne(one->name, other->name);
			}
		}
}
END_TEST

START_TEST(attributes_are_found)
{
	for (const struct attribute *one = attributes; one->name; one++) {
		ck_assert_ptr_eq(attribute_find(one->name), one);
		ck_assert_ptr_eq(attribute_find(one->full), one);
	}
	ck_assert_ptr_null(attribute_find("page_siz"));
	ck_assert_ptr_null(attribute_find("user.gpumem."));
}
END_TEST

static Suite *suite(bool with_page)
{
	TCase *tests;
	Suite *all = unit_suite("cli_commands", &tests, 60);

	tcase_add_test(tests, help_shows_every_command_and_option);
	tcase_add_test(tests, option_letters_are_unique);
	tcase_add_test(tests, attributes_are_found);
	if (with_page)
		tcase_add_test(tests, manual_and_table_agree);
	return all;
}

int main(void)
{
	FILE *page = page_open(PAGE);
	int status = unit_main(suite(page));

	return page_closed(page, PAGE, status);
}
