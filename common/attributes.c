/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "common/attributes.h"

#define CHOICES_QUOTA		"none, or a number such as 5000, 10G, 10GiB or 10GB"
#define CHOICES_READ_ONLY	""
#define CHOICES_READ_ONLY_LINES ""

/* Each word with a blank before it: the text of all choices starts behind the first blank. */
#define WORD_WITH_BLANK(constant, word) " " word
#define WORD_OF_LIST(constant, word)	word,

#define VALUES_ROW(id, field, list, text)                                                          \
	[ATTR_##id] = {.name = #field,                                                             \
		       .full = ATTRIBUTES_PREFIX #field,                                           \
		       .choices = &(list(WORD_WITH_BLANK))[1],                                     \
		       .help = text,                                                               \
		       .kind = ATTRIBUTE_VALUE,                                                    \
		       .words = {list(WORD_OF_LIST)}},
#define OTHER_ROW(id, text_name, text_kind, text)                                                  \
	[ATTR_##id] = {.name = text_name,                                                          \
		       .full = ATTRIBUTES_PREFIX text_name,                                        \
		       .choices = CHOICES_##text_kind,                                             \
		       .help = text,                                                               \
		       .kind = ATTRIBUTE_##text_kind},

const struct attribute attributes[ATTR_COUNT + 1] = {ATTRIBUTES_WITH_VALUES(VALUES_ROW)
							 ATTRIBUTES_WITHOUT_VALUES(OTHER_ROW)};
