/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Random calls on a few files, compared with arrays of bytes. The devices and quotas are full much
 * of the time. Every second run has system memory for extents that leave the devices. */
#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

#include "tests/unit/file_fixture.h"

#define FILES	     5
#define MODEL_BYTES  (14 * MIB)
#define DEVICE_BYTES (16 * MIB)
#define SPILL_BYTES  (20 * MIB)
#define STEPS	     1500

struct model {
	struct file *file;
	unsigned char *bytes; /* MODEL_BYTES, zero beyond size */
	uint64_t size;
	uint8_t page_size;
};

struct world {
	struct fixture f;
	struct model models[FILES];
	uint64_t state;
	unsigned char *buffer;
	unsigned char *source;
};

static struct world *world_of(void *quota_owner)
{
	return (struct world *)((char *)quota_owner - offsetof(struct world, f.quota_owner));
}

static uint64_t below(struct world *w, uint64_t limit)
{
	return limit ? unit_random(&w->state) % limit : 0;
}

/* Returns lengths and offsets of every scale, often at the borders of blocks and chunks. */
static uint64_t some_bytes(struct world *w, uint64_t limit)
{
	static const uint64_t borders[] = {4 * KIB, 64 * KIB, 2 * MIB};
	unsigned bits = below(w, 2) ? 20 + (unsigned)below(w, 5) : 1 + (unsigned)below(w, 22);
	uint64_t value = below(w, 1ULL << bits);

	if (below(w, 3) == 0) {
		uint64_t border = borders[below(w, 3)];

		value = value / border * border;
	}
	return value < limit ? value : below(w, limit);
}

static bool is_refusal(int64_t rc)
{
	return rc == -ENOSPC || rc == -EDQUOT;
}

static void grow_model(struct model *model, uint64_t size)
{
	if (size > model->size)
		model->size = size;
}

static void step_write(struct world *w, struct model *model)
{
	uint64_t offset = below(w, 3) ? some_bytes(w, MODEL_BYTES - 1) : model->size;
	uint64_t bytes = some_bytes(w, MODEL_BYTES - offset);
	unsigned char *from = w->source + below(w, 4096);

	ssize_t n = file_write(model->file, &w->f.call, from, bytes, offset);

	if (n < 0) {
		ck_assert_msg(is_refusal(n), "write: %zd", n);
		return;
	}
	ck_assert_uint_le((uint64_t)n, bytes);
	ck_assert(n > 0 || bytes == 0);
	memcpy(model->bytes + offset, from, (size_t)n);
	if (n)
		grow_model(model, offset + (uint64_t)n);
}

static void step_read(struct world *w, struct model *model)
{
	uint64_t offset = some_bytes(w, MODEL_BYTES), bytes = some_bytes(w, MODEL_BYTES);
	uint64_t expected = 0;

	if (offset < model->size)
		expected = bytes < model->size - offset ? bytes : model->size - offset;
	memset(w->buffer, 0x5c, expected);

	ssize_t n = file_read(model->file, &w->f.call, w->buffer, bytes, offset);

	ck_assert_int_eq(n, (ssize_t)expected);
	ck_assert_mem_eq(w->buffer, model->bytes + offset, expected);
}

static void step_truncate(struct world *w, struct model *model)
{
	uint64_t size = some_bytes(w, MODEL_BYTES);

	ck_assert_int_eq(file_truncate(model->file, &w->f.call, size), 0);
	if (size < model->size)
		memset(model->bytes + size, 0, model->size - size);
	model->size = size;
}

static void step_allocate(struct world *w, struct model *model)
{
	static const int modes[] = {
	    0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
	    FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
	int mode = modes[below(w, 5)];
	uint64_t offset = some_bytes(w, MODEL_BYTES - 1);
	uint64_t bytes = some_bytes(w, MODEL_BYTES - offset);
	int rc = file_allocate(model->file, &w->f.call, mode, offset, bytes);

	if (rc < 0) {
		ck_assert_msg(is_refusal(rc) && !(mode & FALLOC_FL_PUNCH_HOLE), "mode %d: %d", mode,
			      rc);
		return;
	}
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		memset(model->bytes + offset, 0, bytes);
	if (!(mode & FALLOC_FL_KEEP_SIZE) && bytes)
		grow_model(model, offset + bytes);
}

static void check_zero(const struct model *model, uint64_t from, uint64_t to)
{
	ck_assert(all_zero(model->bytes + from, to - from));
}

static void step_seek(struct world *w, struct model *model)
{
	uint64_t offset = some_bytes(w, MODEL_BYTES);
	int64_t data = file_seek(model->file, offset, SEEK_DATA);
	int64_t hole = file_seek(model->file, offset, SEEK_HOLE);

	if (offset >= model->size) {
		ck_assert_int_eq(data, -ENXIO);
		ck_assert_int_eq(hole, -ENXIO);
		return;
	}
	ck_assert_int_ge(hole, (int64_t)offset);
	ck_assert_int_le(hole, (int64_t)model->size);
	if (data == -ENXIO) {
		check_zero(model, offset, model->size);
		return;
	}
	ck_assert_int_ge(data, (int64_t)offset);
	ck_assert_int_lt(data, (int64_t)model->size);
	check_zero(model, offset, (uint64_t)data);
	ck_assert(data == (int64_t)offset || hole == (int64_t)offset);
}

static void step_copy(struct world *w, struct model *from, struct model *to)
{
	uint64_t from_offset = some_bytes(w, MODEL_BYTES),
		 to_offset = some_bytes(w, MODEL_BYTES - 1);
	uint64_t bytes = some_bytes(w, MODEL_BYTES - to_offset), most = 0;

	if (from_offset < from->size)
		most = bytes < from->size - from_offset ? bytes : from->size - from_offset;

	bool overlap =
	    from == to && from_offset < to_offset + most && to_offset < from_offset + most;
	ssize_t n = file_copy(from->file, from_offset, to->file, &w->f.call, to_offset, bytes);

	if (overlap) {
		ck_assert_int_eq(n, -EINVAL);
		return;
	}
	if (n < 0) {
		ck_assert_msg(is_refusal(n), "copy: %zd", n);
		return;
	}
	ck_assert_uint_le((uint64_t)n, most);
	ck_assert(n > 0 || most == 0);
	memcpy(to->bytes + to_offset, from->bytes + from_offset, (size_t)n);
	if (n)
		grow_model(to, to_offset + (uint64_t)n);
}

static void step_move(struct world *w, struct model *model)
{
	struct volume *before = file_volume(model->file);
	struct volume *to = &w->f.volumes[below(w, VOLUMES)];
	enum file_move_end end = below(w, 4) ? FILE_MOVE_COMMIT : FILE_MOVE_ABORT;
	struct file_move *move;

	if (to == before)
		return;

	int rc = file_move_begin(model->file, &w->f.call, to, &move);

	if (rc < 0) {
		ck_assert_msg(is_refusal(rc), "move: %d", rc);
		return;
	}
	file_move_end(move, end);
	file_move_free(move);
	ck_assert_ptr_eq(file_volume(model->file), end == FILE_MOVE_COMMIT ? to : before);
}

static void step_relayout(struct world *w, struct model *model)
{
	int rc;

	w->f.call.attrs.page_size = (uint8_t)below(w, 4);
	rc = file_relayout(model->file, &w->f.call);
	ck_assert_msg(rc == 0 || is_refusal(rc), "relayout: %d", rc);
	if (rc == 0)
		model->page_size = w->f.call.attrs.page_size;
}

static void step_place(struct world *w, struct model *model)
{
	enum memory_place place = (enum memory_place)below(w, PLACES);
	uint64_t most = some_bytes(w, MODEL_BYTES), moved;
	int rc = file_place(model->file, &w->f.call, place, most, &moved);

	ck_assert_msg(rc == 0 || is_refusal(rc), "place: %d", rc);
	ck_assert_uint_le(
	    moved, file_volume(model->file)->spill ? atomic_load(&model->file->allocated) : 0);
}

/* Moves memory of any file on the volume but one. */
static bool make_room(void *owner, const struct volume *volume, enum memory_place place,
		      enum place_short why, uint64_t bytes, const struct file *but)
{
	enum memory_place below = volume_place_below(volume, place);
	struct world *w = world_of(owner);
	uint64_t moved = 0;

	(void)why;
	for (int i = 0; below < PLACES && !moved && i < FILES; i++) {
		struct file *file = w->models[i].file;

		if (file_volume(file) == volume && file != but)
			file_evict(file, &w->f.call, place, below, FILE_MAY_WAIT, bytes, &moved);
	}
	return moved;
}

static void step_quota(struct world *w)
{
	int64_t limit = below(w, 3) ? INT64_MAX : (int64_t)below(w, 40 * MIB);

	atomic_store(&w->f.quota_owner.limit, limit);
	limit = below(w, 3) ? INT64_MAX : (int64_t)below(w, SPILL_BYTES);
	atomic_store(&w->f.quota_owner.spill_limit, limit);
}

static void check_model(struct world *w, struct model *model)
{
	ck_assert_uint_eq(file_size(model->file), model->size);
	ck_assert_int_eq(file_read(model->file, &w->f.call, w->buffer, MODEL_BYTES, 0),
			 (ssize_t)model->size);
	ck_assert_mem_eq(w->buffer, model->bytes, model->size);
	check_beyond_end(&w->f, model->file);
}

static void check_accounts(struct world *w)
{
	int64_t taken = 0, in[PLACES] = {0};

	for (int i = 0; i < FILES; i++) {
		struct file *file = w->models[i].file;

		check_layout(file);
		ck_assert_uint_le(file_allocated(file), atomic_load(&file->allocated));
		taken += (int64_t)atomic_load(&file->allocated);
		for (enum memory_place place = PLACE_HOST; place < PLACES; place++)
			in[place] += (int64_t)file_bytes_in(file, place);
	}
	for (enum memory_place place = PLACE_HOST; place < PLACES; place++)
		ck_assert_int_eq(in[place], atomic_load(&w->f.quota_owner.spilled[place]));
	ck_assert_int_eq(taken, atomic_load(&w->f.quota_owner.total));
}

static void step(struct world *w)
{
	struct model *model = &w->models[below(w, FILES)];

	w->f.call.attrs.page_size = model->page_size;
	switch (below(w, 20)) {
	default:
		step_write(w, model);
		break;
	case 0 ... 4:
		step_read(w, model);
		break;
	case 5 ... 6:
		step_truncate(w, model);
		break;
	case 7 ... 9:
		step_allocate(w, model);
		break;
	case 10:
		step_seek(w, model);
		break;
	case 11 ... 12:
		step_copy(w, &w->models[below(w, FILES)], model);
		break;
	case 13:
		file_trim(model->file, &w->f.call);
		break;
	case 14:
		step_move(w, model);
		break;
	case 15:
		step_relayout(w, model);
		break;
	case 16:
		step_quota(w);
		break;
	case 17:
		step_place(w, model);
		break;
	}
	check_accounts(w);
	/* The bytes beyond the end are checked first: a later step would hide the bytes that the
	 * step left there. */
	check_beyond_end(&w->f, model->file);
	if (below(w, 8) == 0)
		check_model(w, model);
}

static void open_world(struct world *w, uint64_t seed, bool spill)
{
	memset(w, 0, sizeof(*w));
	fixture_open(&w->f, DEVICE_BYTES, 8 * MIB);
	if (spill) {
		fixture_spill(&w->f, SPILL_BYTES);
		fixture_disk(&w->f, SPILL_BYTES);
		w->f.call.make_room = make_room;
	}
	w->state = seed;
	w->buffer = malloc(MODEL_BYTES);
	w->source = malloc(MODEL_BYTES + 4096);
	unit_fill(w->source, MODEL_BYTES + 4096, &w->state);
	for (int i = 0; i < FILES; i++) {
		struct model *model = &w->models[i];

		model->file = fixture_file(&w->f, i % VOLUMES);
		model->bytes = calloc(1, MODEL_BYTES);
		model->page_size = (uint8_t)below(w, 4);
	}
}

static void close_world(struct world *w)
{
	for (int i = 0; i < FILES; i++) {
		check_model(w, &w->models[i]);
		file_free(w->models[i].file, &w->f.call);
		free(w->models[i].bytes);
	}
	free(w->buffer);
	free(w->source);
	fixture_close(&w->f);
}

START_TEST(test_random)
{
	struct world world;

	open_world(&world, unit_seed() + (uint64_t)_i, _i % 2);
	for (int i = 0; i < STEPS; i++)
		step(&world);
	close_world(&world);
}
END_TEST

int main(void)
{
	TCase *tcase;
	Suite *suite = unit_suite("file_random", &tcase, 600);

	tcase_add_loop_test(tcase, test_random, 0, unit_rounds(2, 4));
	return unit_main(suite);
}
