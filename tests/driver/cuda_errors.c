/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Error names, and the search for functions by name. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tests/driver/standin.h"

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
#define ERROR(name, text)                                                                          \
	{                                                                                          \
		CUDA_ERROR_##name, "CUDA_ERROR_" #name, text                                       \
	}
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    ERROR(INVALID_VALUE, "invalid argument"),
    ERROR(OUT_OF_MEMORY, "out of memory"),
    ERROR(NOT_INITIALIZED, "initialization error"),
    ERROR(DEINITIALIZED, "driver shutting down"),
    ERROR(DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    ERROR(NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(INVALID_DEVICE, "invalid device ordinal"),
    ERROR(INVALID_CONTEXT, "invalid device context"),
    ERROR(MAP_FAILED, "mapping of buffer object failed"),
    ERROR(UNMAP_FAILED, "unmapping of buffer object failed"),
    ERROR(NOT_MAPPED, "resource not mapped"),
    ERROR(ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    ERROR(PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    ERROR(NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution"),
    ERROR(CONTAINED, "Invalid access of peer GPU memory over nvlink or a hardware error"),
    ERROR(OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    ERROR(INVALID_HANDLE, "invalid resource handle"),
    ERROR(ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    ERROR(NOT_FOUND, "named symbol not found"),
    ERROR(NOT_READY, "device not ready"),
    ERROR(ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(HOST_MEMORY_ALREADY_REGISTERED,
	  "part or all of the requested memory range is already mapped"),
    ERROR(HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    ERROR(HARDWARE_STACK_ERROR, "hardware stack error"),
    ERROR(LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(NOT_PERMITTED, "operation not permitted"),
    ERROR(NOT_SUPPORTED, "operation not supported"),
    ERROR(SYSTEM_DRIVER_MISMATCH,
	  "system has unsupported display driver / cuda driver combination"),
    ERROR(UNKNOWN, "unknown error"),
#undef ERROR
};
#define N_ERRORS (sizeof(errors) / sizeof(errors[0]))

/* Returns CUDA_SUCCESS for an unknown name. */
CUresult error_by_name(const char *name, size_t length)
{
	static const char lost[] = "DEVICE_LOST";

	/* A GPU that fell off the bus has no error code of its own: the driver says "unknown
	 * error". */
	if (length == strlen(lost) && !memcmp(name, lost, length))
		return CUDA_ERROR_UNKNOWN;
	for (size_t i = 0; i < N_ERRORS; i++) {
		const char *full = errors[i].name;
		const char *suffix = full + (strlen(full) > 11 ? 11 : 0);

		if ((strlen(full) == length && !memcmp(name, full, length)) ||
		    (strlen(suffix) == length && !memcmp(name, suffix, length)))
			return errors[i].code;
	}
	return CUDA_SUCCESS;
}

STANDIN_API CUresult cuGetErrorName(CUresult error, const char **name)
{
	for (size_t i = 0; i < N_ERRORS; i++)
		if (errors[i].code == error) {
			*name = errors[i].name;
			return CUDA_SUCCESS;
		}
	*name = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

STANDIN_API CUresult cuGetErrorString(CUresult error, const char **text)
{
	for (size_t i = 0; i < N_ERRORS; i++)
		if (errors[i].code == error) {
			*text = errors[i].text;
			return CUDA_SUCCESS;
		}
	*text = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

/* Finds the newest version of a function in the requested version of CUDA. */
static void *find_function(const char *symbol, int version)
{
	static const char *const suffixes[] = {"_v4", "_v2", ""};
	Dl_info self;
	void *library, *function = NULL;
	char name[128];

	if (!dladdr((void *)cuGetErrorName, &self))
		return NULL;
	library = dlopen(self.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
	if (!library)
		return NULL;
	for (unsigned i = version < 13000 ? 1 : 0; i < 3 && !function; i++) {
		snprintf(name, sizeof(name), "%s%s", symbol, suffixes[i]);
		function = dlsym(library, name);
	}
	dlclose(library);
	return function;
}

STANDIN_API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
					 cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	if (!symbol || !function || flags > 2)
		return CUDA_ERROR_INVALID_VALUE;
	*function = find_function(symbol, version);
	if (status)
		*status =
		    *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
