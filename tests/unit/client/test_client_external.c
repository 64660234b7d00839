/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* How the devices of HIP and Level Zero are told apart. tests/mount/cases/client_external maps
 * files by both. */
#include "client/gpu/external.h"
#include "tests/unit/unit.h"

START_TEST(by_the_drivers_uuid)
{
	const uint8_t *wanted = (const uint8_t *)"sixteen bytes of";

	ck_assert(external_is_gpu(wanted, (const uint8_t *)"sixteen bytes of", ""));
	ck_assert(!external_is_gpu(wanted, (const uint8_t *)"sixteen bytes Of", ""));
	ck_assert(!external_is_gpu(wanted, NULL, ""));
}
END_TEST

/* Mesa's driver for AMD has the PCI address as UUID; HIP's UUID is a text of another number. */
START_TEST(by_the_pci_address)
{
	const uint32_t words[4] = {1, 0xc3, 0x1f, 7};
	const uint8_t *wanted = (const uint8_t *)words;
	const uint8_t *hip = (const uint8_t *)"GPU-0123456789ab";

	ck_assert(external_is_gpu(wanted, hip, "0001:c3:1f.7"));
	ck_assert(external_is_gpu(wanted, NULL, "0001:C3:1F.7"));
	ck_assert(!external_is_gpu(wanted, hip, "0000:c3:1f.7"));
	ck_assert(!external_is_gpu(wanted, hip, "0001:c3:1f.70"));
	ck_assert(!external_is_gpu(wanted, hip, ""));
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("client_external", &tcase, 10);

	tcase_add_test(tcase, by_the_drivers_uuid);
	tcase_add_test(tcase, by_the_pci_address);
	return unit_main(suite);
}
