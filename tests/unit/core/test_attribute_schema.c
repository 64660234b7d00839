/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
#include "fs/core/attribute_schema.h"

#include <errno.h>

#include "common/log.h"
#include "tests/unit/page.h"
#include "tests/unit/unit.h"

#define PAGE	     "man/gpumem.7"
#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const struct {
	enum attr_id id;
	const char *name;
} names[] = {
    {ATTR_PAGE_SIZE, "user.gpumem.page_size"},
    {ATTR_PERSIST, "user.gpumem.persist"},
    {ATTR_MAPPING, "user.gpumem.mapping"},
    {ATTR_COPY, "user.gpumem.copy"},
    {ATTR_FORCE_PCIE, "user.gpumem.force_pcie"},
    {ATTR_SHARE, "user.gpumem.share"},
    {ATTR_RESIDENT, "user.gpumem.resident"},
    {ATTR_PRIORITY, "user.gpumem.priority"},
    {ATTR_QUOTA_BYTES, "user.gpumem.quota.max_bytes"},
    {ATTR_QUOTA_FILES, "user.gpumem.quota.max_files"},
    {ATTR_DEVICE, "user.gpumem.device"},
    {ATTR_EXTENTS, "user.gpumem.extents"},
    {ATTR_MAPPED, "user.gpumem.mapped"},
    {ATTR_LEASES, "user.gpumem.leases"},
    {ATTR_LAST_OPEN, "user.gpumem.last_open"},
    {ATTR_RBYTES, "user.gpumem.rbytes"},
    {ATTR_RFILES, "user.gpumem.rfiles"},
};

START_TEST(every_name_is_found)
{
	ck_assert_int_eq(COUNT(names), ATTR_COUNT);
	ck_assert_int_eq(attributes_find(names[_i].name), names[_i].id);
	ck_assert_str_eq(attributes_name(names[_i].id), names[_i].name);
	ck_assert_int_eq(attributes_read_only(names[_i].id), names[_i].id >= ATTR_DEVICE);
}
END_TEST

static const struct {
	const char *name;
	int rc;
} no_names[] = {
    {"user.gpumem.", -EINVAL},		 {"user.gpumem.page", -EINVAL},
    {"user.gpumem.page_sizes", -EINVAL}, {"user.gpumem.PAGE_SIZE", -EINVAL},
    {"user.gpumem.quota", -EINVAL},	 {"user.gpumem.quota.", -EINVAL},
    {"user.gpumem.page_size ", -EINVAL}, {"user.gpumem.%s%n", -EINVAL},
    {"user.gpumem", -ENODATA},		 {"user.gpumemx.page_size", -ENODATA},
    {"user.page_size", -ENODATA},	 {"trusted.gpumem.page_size", -ENODATA},
    {"security.selinux", -ENODATA},	 {"", -ENODATA},
};

START_TEST(other_names_are_not)
{
	ck_assert_int_eq(attributes_find(no_names[_i].name), no_names[_i].rc);
}
END_TEST

static const struct {
	enum attr_id id;
	const char *text;
	int rc;
	uint8_t value;
} values[] = {
    {ATTR_PAGE_SIZE, "auto", 0, PAGE_SIZE_AUTO},
    {ATTR_PAGE_SIZE, "4K", 0, PAGE_SIZE_4K},
    {ATTR_PAGE_SIZE, "64K", 0, PAGE_SIZE_64K},
    {ATTR_PAGE_SIZE, "2M", 0, PAGE_SIZE_2M},
    {ATTR_PAGE_SIZE, "1G", 0, PAGE_SIZE_1G},
    {ATTR_PAGE_SIZE, "", -EINVAL, 0},
    {ATTR_PAGE_SIZE, "4k", -EINVAL, 0},
    {ATTR_PAGE_SIZE, "4096", -EINVAL, 0},
    {ATTR_PAGE_SIZE, "2M ", -EINVAL, 0},
    {ATTR_PAGE_SIZE, "2M\n", -EINVAL, 0},
    {ATTR_PAGE_SIZE, "64", -EINVAL, 0},
    {ATTR_PAGE_SIZE, "autoauto", -EINVAL, 0},
    {ATTR_PERSIST, "volatile", 0, PERSIST_VOLATILE},
    {ATTR_PERSIST, "restart", 0, PERSIST_RESTART},
    {ATTR_PERSIST, "disk", 0, PERSIST_DISK},
    {ATTR_PERSIST, "disks", -EINVAL, 0},
    {ATTR_MAPPING, "auto", 0, MAPPING_AUTO},
    {ATTR_MAPPING, "persistent", 0, MAPPING_PERSISTENT},
    {ATTR_MAPPING, "transient", 0, MAPPING_TRANSIENT},
    {ATTR_MAPPING, "none", -EINVAL, 0},
    {ATTR_COPY, "auto", 0, COPYING_AUTO},
    {ATTR_COPY, "bar", 0, COPYING_BAR},
    {ATTR_COPY, "dma", 0, COPYING_DMA},
    {ATTR_COPY, "DMA", -EINVAL, 0},
    {ATTR_FORCE_PCIE, "0", 0, FORCE_PCIE_NO},
    {ATTR_FORCE_PCIE, "1", 0, FORCE_PCIE_YES},
    {ATTR_FORCE_PCIE, "2", -EINVAL, 0},
    {ATTR_FORCE_PCIE, "01", -EINVAL, 0},
    {ATTR_SHARE, "private", 0, SHARE_PRIVATE},
    {ATTR_SHARE, "trusted", 0, SHARE_TRUSTED},
    {ATTR_SHARE, "public", -EINVAL, 0},
    {ATTR_RESIDENT, "gpu", 0, RESIDENT_GPU},
    {ATTR_RESIDENT, "host", 0, RESIDENT_HOST},
    {ATTR_RESIDENT, "evicted", 0, RESIDENT_EVICTED},
    {ATTR_RESIDENT, "gpu0:4096", -EINVAL, 0},
    {ATTR_PRIORITY, "0", 0, PRIORITY_0},
    {ATTR_PRIORITY, "9", 0, PRIORITY_9},
    {ATTR_PRIORITY, "10", -EINVAL, 0},
    {ATTR_PRIORITY, "-1", -EINVAL, 0},
    {ATTR_QUOTA_BYTES, "1", -EINVAL, 0},
    {ATTR_DEVICE, "GPU-0", -EINVAL, 0},
    {ATTR_LEASES, "0", -EINVAL, 0},
    {ATTR_RFILES, "", -EINVAL, 0},
};

static uint8_t field(const struct attr_values *attrs, enum attr_id id)
{
	const uint8_t all[] = {attrs->page_size,  attrs->persist, attrs->mapping,  attrs->copy,
			       attrs->force_pcie, attrs->share,	  attrs->resident, attrs->priority};

	_Static_assert(sizeof(all) == ATTR_VALUES, "every attribute is read by its name here");
	return id < ATTR_VALUES ? all[id] : 0;
}

/* The text has no NUL at its end and ends with its allocation, so that a sanitizer sees any read
 * past the end. */
static int parse(enum attr_id id, const char *text, size_t length, struct attr_values *attrs)
{
	char *exact = malloc(length ? length : 1);

	memcpy(exact, text, length);
	int rc = attributes_parse(id, exact, length, "/gpu0/file", attrs);
	free(exact);
	return rc;
}

/* All attributes set to non-default values, to see that a refusal changes no attribute and a value
 * changes only its own attribute. */
static const struct attr_values before = {
    .page_size = PAGE_SIZE_1G,
    .mapping = MAPPING_TRANSIENT,
    .copy = COPYING_DMA,
    .force_pcie = FORCE_PCIE_YES,
    .share = SHARE_TRUSTED,
    .resident = RESIDENT_HOST,
    .priority = PRIORITY_9,
};

START_TEST(values_are_taken_or_refused)
{
	enum attr_id id = values[_i].id;
	struct attr_values attrs = before;

	ck_assert_int_eq(parse(id, values[_i].text, strlen(values[_i].text), &attrs),
			 values[_i].rc);
	if (values[_i].rc < 0) {
		ck_assert_mem_eq(&attrs, &before, sizeof(attrs));
		return;
	}
	ck_assert_uint_eq(field(&attrs, id), values[_i].value);
	ck_assert_uint_eq(attrs.set, 1U << id);
	ck_assert_str_eq(attributes_text(id, &attrs), values[_i].text);
	for (enum attr_id other = 0; other < ATTR_VALUES; other++)
		ck_assert(other == id || field(&attrs, other) == field(&before, other));
}
END_TEST

START_TEST(values_end_where_they_say)
{
	struct attr_values attrs = {0};

	ck_assert_int_eq(parse(ATTR_PAGE_SIZE, "2Mxyz", 2, &attrs), 0);
	ck_assert_uint_eq(attrs.page_size, PAGE_SIZE_2M);
	ck_assert_int_eq(parse(ATTR_PAGE_SIZE, "64K", 2, &attrs), -EINVAL);
	ck_assert_int_eq(parse(ATTR_PAGE_SIZE, "2M", 3, &attrs), -EINVAL);
	ck_assert_int_eq(parse(ATTR_PAGE_SIZE, "2M\0x", 4, &attrs), -EINVAL);
	ck_assert_int_eq(parse(ATTR_PAGE_SIZE, "\0", 1, &attrs), -EINVAL);
	ck_assert_int_eq(attributes_parse(ATTR_COPY, NULL, 0, "/", &attrs), -EINVAL);
	ck_assert_uint_eq(attrs.page_size, PAGE_SIZE_2M);

	char *large = malloc(65536);
	memset(large, 'a', 65536);
	ck_assert_int_eq(parse(ATTR_PAGE_SIZE, large, 65536, &attrs), -EINVAL);
	free(large);
}
END_TEST

START_TEST(reset_brings_back_the_default)
{
	struct attr_values attrs = {0};

	for (enum attr_id id = 0; id < ATTR_VALUES; id++)
		ck_assert_int_eq(parse(id, attributes_text(id, &attrs),
				       strlen(attributes_text(id, &attrs)), &attrs),
				 0);
	ck_assert_uint_eq(attrs.set, (1U << ATTR_VALUES) - 1);
	ck_assert_int_eq(parse(ATTR_MAPPING, "persistent", 10, &attrs), 0);
	ck_assert_int_eq(parse(ATTR_COPY, "dma", 3, &attrs), 0);
	attributes_reset(ATTR_MAPPING, &attrs);
	ck_assert_str_eq(attributes_text(ATTR_MAPPING, &attrs), "auto");
	ck_assert_str_eq(attributes_text(ATTR_COPY, &attrs), "dma");
	ck_assert_uint_eq(attrs.set, ((1U << ATTR_VALUES) - 1) & ~(1U << ATTR_MAPPING));
}
END_TEST

/* The journal of an earlier daemon holds such values. */
START_TEST(values_are_known)
{
	for (enum attr_id id = 0; id < ATTR_VALUES; id++) {
		struct attr_values attrs = {0};
		unsigned n = 1;

		for (const char *at = attributes[id].choices; *at; at++)
			n += *at == ' ';
		for (uint64_t value = 0; value < 1U << ATTRIBUTE_BITS(id); value++) {
			attrs.bits = value << ATTRIBUTE_SHIFT(id);
			ck_assert_msg(attributes_are_known(&attrs) == (value < n), "%s: value %lu",
				      attributes_name(id), value);
		}
	}
}
END_TEST

START_TEST(bits_of_no_attribute_are_unknown)
{
	for (unsigned bit = ATTRIBUTE_SHIFT(ATTR_VALUES); bit < 64; bit++) {
		struct attr_values attrs = {.bits = 1ULL << bit};
		bool is_set_bit = bit >= ATTRIBUTES_BITS && bit < ATTRIBUTES_BITS + ATTR_VALUES;

		ck_assert_msg(attributes_are_known(&attrs) == is_set_bit, "bit %u", bit);
	}
}
END_TEST

/* Zero is the default, and the list of choices begins with the default. */
START_TEST(defaults_come_first)
{
	const struct attr_values none = {0};

	for (enum attr_id id = 0; id < ATTR_VALUES; id++) {
		const char *text = attributes_text(id, &none);
		ck_assert_uint_gt(strlen(text), 0);
		ck_assert_int_eq(strncmp(attributes[id].choices, text, strlen(text)), 0);
	}
}
END_TEST

static const struct {
	const char *text;
	size_t length; /* 0: the whole text */
	int rc;
	uint64_t limit;
} quotas[] = {
    {"none", 0, 0, UINT64_MAX},
    {"0", 0, 0, 0},
    {"5000", 0, 0, 5000},
    {"10G", 0, 0, 10ULL << 30},
    {"4T", 0, 0, 4ULL << 40},
    {"12345678", 3, 0, 123},
    {"18446744073709551614", 0, 0, UINT64_MAX - 1},
    {"18446744073709551615", 0, -EINVAL, 0},
    {"18446744073709551616", 0, -EINVAL, 0},
    {"16777216T", 0, -EINVAL, 0},
    {"None", 0, -EINVAL, 0},
    {"non", 0, -EINVAL, 0},
    {"nonesuch", 0, -EINVAL, 0},
    {"-1", 0, -EINVAL, 0},
    {"+1", 0, -EINVAL, 0},
    {" 1", 0, -EINVAL, 0},
    {"1 ", 0, -EINVAL, 0},
    {"1\n", 0, -EINVAL, 0},
    {"1.5G", 0, -EINVAL, 0},
    {"50%", 0, -EINVAL, 0},
    {"G", 0, -EINVAL, 0},
    {"1GBB", 0, -EINVAL, 0},
    {"0x10", 0, -EINVAL, 0},
    {"1\0", 2, -EINVAL, 0},
    {"1\0G", 3, -EINVAL, 0},
    {"none\0", 5, -EINVAL, 0},
    {"0000000000000000000000000000000000000000000000000000000000000001", 0, -EINVAL, 0},
};

START_TEST(quotas_are_taken_or_refused)
{
	size_t length = quotas[_i].length ? quotas[_i].length : strlen(quotas[_i].text);
	char *exact = malloc(length);

	memcpy(exact, quotas[_i].text, length);
	for (enum attr_id id = ATTR_QUOTA_BYTES; id <= ATTR_QUOTA_FILES; id++) {
		uint64_t limit = 77;
		ck_assert_int_eq(attributes_parse_quota(id, exact, length, "/gpu0", &limit),
				 quotas[_i].rc);
		ck_assert_uint_eq(limit, quotas[_i].rc ? 77 : quotas[_i].limit);
	}
	free(exact);
}
END_TEST

START_TEST(empty_quota_is_refused)
{
	uint64_t limit = 77;

	ck_assert_int_eq(attributes_parse_quota(ATTR_QUOTA_BYTES, "", 0, "/", &limit), -EINVAL);
	ck_assert_int_eq(attributes_parse_quota(ATTR_QUOTA_BYTES, NULL, 0, "/", &limit), -EINVAL);
	ck_assert_uint_eq(limit, 77);
}
END_TEST

#define SECTION ".Sh ATTRIBUTES\n"

/* Splits a line ".It Cm name Ns = Ns Cm a | b" of the page into the name, and the choices separated
 * by blanks. */
static void item_split(char *line, char *name, char *choices, size_t bytes)
{
	char *rest = NULL, *word = strtok_r(line, " \n", &rest);

	snprintf(name, bytes, ATTRIBUTES_PREFIX "%s", word);
	choices[0] = '\0';
	while ((word = strtok_r(NULL, " \n", &rest))) {
		if (strchr("=|", *word) || strcmp(word, "Ns") == 0 || strcmp(word, "Cm") == 0 ||
		    strcmp(word, "Ar") == 0)
			continue;
		if (*choices)
			strncat(choices, " ", bytes - strlen(choices) - 1);
		strncat(choices, word, bytes - strlen(choices) - 1);
	}
}

START_TEST(manual_and_table_agree)
{
	FILE *page = page_open(PAGE);
	char line[256], name[256], choices[256];
	unsigned seen = 0;
	bool inside = false;

	ck_assert_ptr_nonnull(page);
	while (fgets(line, sizeof(line), page)) {
		if (strncmp(line, ".Sh ", 4) == 0)
			inside = strcmp(line, SECTION) == 0;
		if (!inside || strncmp(line, ".It Cm ", 7) != 0)
			continue;
		item_split(line + 7, name, choices, sizeof(name));
		int id = attributes_find(name);
		ck_assert_msg(id >= 0, "gpumem(7) invents %s", name);
		ck_assert_msg(!(seen >> id & 1), "gpumem(7) has %s twice", name);
		seen |= 1U << id;
		if (id < ATTR_VALUES)
			ck_assert_str_eq(choices, attributes[id].choices);
		ck_assert_int_eq(*choices == '\0', attributes_read_only(id));
	}
	fclose(page);
	for (int id = 0; id < ATTR_COUNT; id++)
		ck_assert_msg(seen >> id & 1, "gpumem(7) lacks %s", attributes_name(id));
}
END_TEST

static Suite *suite(bool with_page)
{
	TCase *tests;
	Suite *all = unit_suite("attribute_schema", &tests, 60);

	tcase_add_loop_test(tests, every_name_is_found, 0, COUNT(names));
	tcase_add_loop_test(tests, other_names_are_not, 0, COUNT(no_names));
	tcase_add_loop_test(tests, values_are_taken_or_refused, 0, COUNT(values));
	tcase_add_test(tests, values_end_where_they_say);
	tcase_add_test(tests, reset_brings_back_the_default);
	tcase_add_test(tests, values_are_known);
	tcase_add_test(tests, bits_of_no_attribute_are_unknown);
	tcase_add_test(tests, defaults_come_first);
	tcase_add_loop_test(tests, quotas_are_taken_or_refused, 0, COUNT(quotas));
	tcase_add_test(tests, empty_quota_is_refused);
	if (with_page)
		tcase_add_test(tests, manual_and_table_agree);
	return all;
}

int main(void)
{
	FILE *page = page_open(PAGE);

	/* Each refusal logs a line. */
	log_setup(LOG_LEVEL_ERROR, LOG_TO_TERMINAL);
	return page_closed(page, PAGE, unit_main(suite(page)));
}
