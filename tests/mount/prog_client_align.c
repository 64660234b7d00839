/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* check: asan-host asan-standin */
/* backends: host standin vulkan cuda
 * timeout: 300
 * expect-log: quota
 * gpumem_align between the volumes of a mount and in place: mappings made afterwards, and the state
 * after a failure. */
#include "tests/mount/client.h"

#include <sys/xattr.h>

#define HEADER                                                                                     \
	"{\"odd\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"                        \
	"\"weight\":{\"dtype\":\"BF16\",\"shape\":[1536,1024],\"data_offsets\":[1,3145729]}}"
#define WEIGHT_BYTES (3 * MIB)

static int model(const char *path, uint64_t seed)
{
	int fd = new_file(path);
	uint64_t length = strlen(HEADER);
	char *data = malloc(1 + WEIGHT_BYTES);

	pattern_fill(data, 1 + WEIGHT_BYTES, seed, 0);
	write_all(fd, &length, sizeof(length), 0);
	write_all(fd, HEADER, length, sizeof(length));
	write_all(fd, data, 1 + WEIGHT_BYTES, sizeof(length) + length);
	free(data);
	return fd;
}

static void expect_model(const char *path, uint64_t seed, size_t start)
{
	size_t bytes = start + 1 + WEIGHT_BYTES;
	gpumem *file = lease(path, O_RDWR);

	EQUAL(info_of(file).size, bytes);
	expect_pattern(host_pointer(file, bytes) + start, seed, 0, 1 + WEIGHT_BYTES);
	GOOD(gpumem_close(file));
}

/* Returns the offset of the data. */
static size_t align(const char *source, const char *target)
{
	struct gpumem_safetensors *header;

	GOOD(gpumem_align(source, target, 256, &header));
	size_t start = header->data_start;
	EQUAL(header->n_tensors, 2);
	EQUAL(header->tensors[0].place, GPUMEM_VIEWABLE);
	EQUAL(header->tensors[1].place, GPUMEM_ALIGNED);
	EQUAL(header->tensors[1].offset % 256, 0);
	EQUAL(header->tensors[1].offset, start + 1);
	gpumem_safetensors_free(header);
	return start;
}

/* Number of copy_file_range requests that the daemon has counted. */
static long long copies(void)
{
	static const char requests[] = "\"requests\": ";
	char path[PATH_MAX], text[16384] = "";

	sprintf(path, "%s/.gpumem/stats.json", getenv("MNT"));
	int fd = OK(open(path, O_RDONLY));
	OK(read(fd, text, sizeof(text) - 1));
	OK(close(fd));
	char *at = strstr(text, "\"copy_file_range\":");
	at = at ? strstr(at, requests) : NULL;
	if (!at)
		FAIL("no copy_file_range in %s", text);
	return atoll(at + strlen(requests));
}

static void from_host_to_a_gpu(void)
{
	char path[PATH_MAX];

	sprintf(path, "%s/client_align", getenv("HOSTDIR"));
	OK(close(model(path, 1)));
	size_t start = align(path, "aligned");
	expect_model("aligned", 1, start);
	expect_model(path, 1, 8 + strlen(HEADER));
	EQUAL(names_here(), 1);
	OK(unlink(path));
}

static void from_disk(void)
{
	char path[PATH_MAX];

	sprintf(path, "%s/model", getenv("WORK"));
	OK(close(model(path, 2)));
	expect_model("aligned", 2, align(path, "aligned"));
	OK(unlink(path));
}

static void to_the_other_gpu(void)
{
	OK(close(model("model", 3)));
	expect_model(other("aligned"), 3, align("model", other("aligned")));
}

/* The bytes stay on the GPU; a client with a lease of the old file keeps the old file. */
static void in_place(void)
{
	int fd = model("model", 4);

	OK(fchmod(fd, 0640));
	gpumem *old = lease("model", O_RDWR);
	unsigned char *at = host_pointer(old, 8 + strlen(HEADER) + 1 + WEIGHT_BYTES);
	long long before = copies();
	size_t start = align("model", "model");

	CHECK(copies() > before);
	expect_model("model", 4, start);
	EQUAL(stat_of("model").st_mode, S_IFREG | 0640);
	EQUAL(names_here(), 1);
	CHECK(!memcmp(at + 8, HEADER, strlen(HEADER)));
	expect_pattern(at + 8 + strlen(HEADER), 4, 0, 1 + WEIGHT_BYTES);
	GOOD(gpumem_close(old));
	EQUAL(align("model", "model"), start);
	expect_model("model", 4, start);
}

static void on_a_full_quota(void)
{
	OK(mkdir("folder", 0755));
	OK(setxattr("folder", "user.gpumem.quota.max_bytes", "5M", 2, 0));
	OK(chdir("folder"));
	OK(close(model("model", 5)));
	OK(close(model("../model", 6)));
	REFUSED(EDQUOT, "model: ", gpumem_align("model", "model", 256, NULL));
	REFUSED(EDQUOT, "model: ", gpumem_align("../model", "model", 256, NULL));
	REFUSED(EDQUOT, "other: ", gpumem_align("../model", "other", 256, NULL));
	EQUAL(names_here(), 1);
	expect_model("model", 5, 8 + strlen(HEADER));
	OK(unlink("model"));
	expect_model("other", 6, align("../model", "other"));
}

static void not_a_model(void)
{
	put("text", "not a model, but long enough for a length");
	REFUSED(EINVAL, "text: no safetensors file", gpumem_align("text", "text", 256, NULL));
	REFUSED(EISDIR, "directory", gpumem_align(".", "new", 256, NULL));
	REFUSED(EINVAL, "text: no safetensors file", gpumem_align("text", ".", 256, NULL));
	expect_text("text", "not a model, but long enough for a length");
	EQUAL(names_here(), 1);
}

CLIENT_PROG(TEST(from_host_to_a_gpu), TEST(from_disk), TEST(to_the_other_gpu), TEST(in_place),
	    TEST(on_a_full_quota), TEST(not_a_model))
