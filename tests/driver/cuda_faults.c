/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Injected faults: "cuMemCreate@5=OUT_OF_MEMORY;device1@10=ECC_UNCORRECTABLE~". */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/driver/standin.h"

struct fault {
	char where[64];	    /* a function, deviceN or memoryN */
	unsigned long from; /* the number of the failing call, counted from 1 */
	bool sticky;	    /* all later calls fail too */
	bool passing;	    /* the device works again in a new context */
	CUresult error;
	unsigned long seen;
};

#define FAULTS_MAX 32

/* The error of a fault that is due. */
struct ordered {
	CUresult error;
	bool passing;
};

static struct {
	pthread_mutex_t lock;
	atomic_bool wanted; /* a fault is set, or a fault file is named */
	struct fault faults[FAULTS_MAX];
	unsigned count;
	struct changing_file file;
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool parse_fault(const char *text, size_t length, struct fault *fault)
{
	char copy[128], *at, *equals, *end;
	size_t name;

	*fault = (struct fault){.from = 1};
	if (length >= sizeof(copy))
		return false;
	memcpy(copy, text, length);
	copy[length] = '\0';
	equals = strchr(copy, '=');
	if (!equals)
		return false;
	*equals++ = '\0';
	at = strchr(copy, '@');
	if (at) {
		*at++ = '\0';
		fault->from = strtoul(at, &end, 10);
		if (*end || !fault->from)
			return false;
	}
	name = strlen(equals);
	for (; name && strchr("+~", equals[name - 1]); name--) {
		fault->sticky |= equals[name - 1] == '+';
		fault->passing |= equals[name - 1] == '~';
	}
	fault->error = error_by_name(equals, name);
	if (fault->error == CUDA_SUCCESS || strlen(copy) >= sizeof(fault->where))
		return false;
	memcpy(fault->where, copy, strlen(copy) + 1);
	return true;
}

static void parse_faults(const char *text)
{
	faults.count = 0;
	while (*text) {
		size_t length = strcspn(text, ";\n");
		size_t blank = strspn(text, " \t");

		if (blank < length && text[blank] != '#') {
			if (faults.count == FAULTS_MAX ||
			    !parse_fault(text + blank, length - blank,
					 &faults.faults[faults.count])) {
				fprintf(stderr, "standin: not a fault: %.*s\n", (int)length, text);
				abort();
			}
			faults.count++;
		}
		text += length + (text[length] != '\0');
	}
}

static void read_file(void)
{
	char text[4096];

	if (changing_file_read(&faults.file, text, sizeof(text)))
		parse_faults(text);
}

static void load(void)
{
	const char *text = getenv("GPUMEM_STANDIN_FAULT");

	faults.file.path = getenv("GPUMEM_STANDIN_FAULT_FILE");
	if (text)
		parse_faults(text);
	atomic_store(&faults.wanted, faults.count || faults.file.path);
}

/* The function's name in a fault may leave out the version suffix. */
static bool is_named(const struct fault *fault, const char *where)
{
	size_t length = strlen(fault->where);

	return !strncmp(where, fault->where, length) &&
	       (!where[length] || (where[length] == '_' && where[length + 1] == 'v'));
}

static struct ordered count(const char *where)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct ordered error = {CUDA_SUCCESS, false};

	pthread_once(&once, load);
	if (!atomic_load_explicit(&faults.wanted, memory_order_relaxed))
		return error;
	pthread_mutex_lock(&faults.lock);
	if (faults.file.path)
		read_file();
	for (unsigned i = 0; i < faults.count; i++) {
		struct fault *fault = &faults.faults[i];

		if (!is_named(fault, where))
			continue;
		fault->seen++;
		if (fault->seen == fault->from || (fault->sticky && fault->seen > fault->from))
			error = (struct ordered){fault->error, fault->passing};
	}
	pthread_mutex_unlock(&faults.lock);
	return error;
}

static bool is_fatal(CUresult error)
{
	switch (error) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_UNKNOWN:
		return true;
	default:
		return false;
	}
}

/* A program that defines standin_refuses(function) chooses calls that find no memory. */
typedef bool refuses_function(const char *function);

static refuses_function *program_refuses;

static void program_look_up(void)
{
	*(void **)&program_refuses = dlsym(RTLD_DEFAULT, "standin_refuses");
}

CUresult fault_call(const char *function, int device)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct ordered fault = count(function);

	pthread_once(&once, program_look_up);
	if (program_refuses && program_refuses(function))
		return CUDA_ERROR_OUT_OF_MEMORY;

	if (device >= 0 && is_fatal(fault.error))
		device_fail((unsigned)device, fault.error, fault.passing);
	return fault.error;
}

static CUresult fault_at(const char *what, uint64_t number, unsigned device)
{
	char name[32];

	snprintf(name, sizeof(name), "%s%llu", what, (unsigned long long)number);
	return fault_call(name, (int)device);
}

CUresult fault_device(unsigned device)
{
	return fault_at("device", device, device);
}

CUresult fault_memory(uint64_t number, unsigned device)
{
	return number ? fault_at("memory", number, device) : CUDA_SUCCESS;
}

void device_fail(unsigned device, CUresult error, bool passing)
{
	int works = CUDA_SUCCESS;

	if (atomic_compare_exchange_strong(&standin.devices[device].failed, &works, (int)error))
		atomic_store(&standin.devices[device].passing, passing);
}

void device_renew(unsigned device)
{
	if (atomic_exchange(&standin.devices[device].passing, false))
		atomic_store(&standin.devices[device].failed, CUDA_SUCCESS);
}

/* An error ends the contexts of its device; calls that need a context fail. Calls without a context
 * go on unless the device is gone. */
CUresult device_lost(unsigned device)
{
	CUresult error = device_state(device);

	return error == CUDA_ERROR_UNKNOWN || error == CUDA_ERROR_DEVICE_UNAVAILABLE ? error
										     : CUDA_SUCCESS;
}

CUresult device_state(unsigned device)
{
	return (CUresult)atomic_load_explicit(&standin.devices[device].failed,
					      memory_order_relaxed);
}
