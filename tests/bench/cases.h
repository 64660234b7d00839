/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The cases, in the order of the report. */
#ifndef TESTS_BENCH_CASES_H
#define TESTS_BENCH_CASES_H

#include "tests/bench/bench.h"

extern const struct bench_case case_read, case_random, case_storm, case_write; /* cases_io.c */
extern const struct bench_case case_processor;			    /* cases_processor.c */
extern const struct bench_case case_command;			    /* cases_command.c */
extern const struct bench_case case_copy;			    /* cases_copy.c */
extern const struct bench_case case_mmap;			    /* cases_mmap.c */
extern const struct bench_case case_memory, case_names, case_crowd; /* cases_names.c */
extern const struct bench_case case_pointer, case_calls;	    /* cases_client.c */
extern const struct bench_case case_access;			    /* cases_access.c */
extern const struct bench_case case_pingpong;			    /* cases_pingpong.c */

#endif
