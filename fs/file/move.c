/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Moves the bytes of a file into other memory, all or nothing: to another volume, or in another
 * layout on the same volume. The file's layout_lock is held exclusive until the end. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/log.h"
#include "fs/extents/extents_copy.h"
#include "fs/file/core/missing.h"
#include "fs/file/core/record.h"
#include "fs/file/host/old_memory.h"
#include "fs/file/internal.h"
#include "fs/object/host_pin.h"

struct file_move {
	struct file *file;
	struct file_call call;
	struct volume *to;
	uint64_t size;
	struct extents extents;	    /* the copy, on a device */
	struct host_object copy;    /* in host/; or fd -1 */
	struct volume *from;	    /* volume of old_extents; NULL: none */
	struct extents old_extents; /* the file's former memory on a device */
	struct journal_file image;  /* the record of the commit, with record as extents */
	struct journal_extent *record;
	uint64_t allocated;
	int64_t charged; /* bytes to charge more than before */
	uint8_t tail_shift;
};

/* The end of the memory that is worth copying. */
static uint64_t file_data_end(const struct file *file, uint64_t size)
{
	uint64_t reserved = file_is_device(file) ? atomic_load(&file->fields->reserved) : 0;

	return size > reserved ? size : reserved;
}

static int move_alloc(struct file_move *move, uint64_t end)
{
	struct allocation allocation = allocation_for(move->to, &move->call, end);
	struct data_run run;
	int rc = 0;

	allocation.fill = POOL_UNDEFINED;
	allocation.charge = ALLOCATION_UNCHARGED;
	allocation.target = &move->extents;
	for (uint64_t at = 0; rc == 0 && file_next_run(move->file, at, end, &run); at = run.to) {
		if (run.data)
			rc = alloc_run(&allocation, run.from, run.to, run.to);
	}
	move->allocated = allocation.bytes;
	move->tail_shift = (uint8_t)__builtin_ctzll(allocation.layout.unit);
	return rc;
}

/* Fills the whole copy: with the object's data, and with zeroes. */
static int move_fill_from_object(struct file_move *move)
{
	int fd = atomic_load(&move->file->object.fd);
	struct bounce *bounce;
	int rc = bounce_new(&move->call, move->allocated, &bounce);

	if (rc < 0)
		return rc;
	EXTENTS_FOREACH (extent, &move->extents) {
		uint64_t end = extent_end(extent);
		struct data_run run;

		for (uint64_t at = extent->offset; rc == 0 && object_next_run(fd, at, end, &run);
		     at = run.to)
			rc = run.data ? bounce_in(bounce, move->file, run.from, &move->extents,
						  run.from, run.to - run.from)
				      : extents_zero(move->call.copier, &move->extents, run.from,
						     run.to);
	}
	rc = device_wait(&move->call, rc);
	bounce_free(bounce);
	return rc;
}

static int move_copy_to_device(struct file_move *move)
{
	int rc = move_alloc(move, file_data_end(move->file, move->size));

	if (rc < 0 || !move->extents.count)
		return rc;
	if (file_is_device(move->file))
		return device_fill(&move->call, &move->extents, &move->file->extents);
	return move_fill_from_object(move);
}

static int move_copy_runs(struct file_move *move, struct bounce *bounce)
{
	struct file *file = move->file;
	uint64_t written = 0;
	struct data_run run;
	int rc = 0;

	for (uint64_t at = 0; rc == 0 && file_next_run(file, at, move->size, &run); at = run.to) {
		if (!run.data)
			continue;
		if (file_is_device(file))
			rc = bounce_out(bounce, &file->extents, run.from, NULL, move->copy.fd,
					run.from, run.to - run.from, &written);
		else
			rc = object_copy(atomic_load(&file->object.fd), run.from, move->copy.fd,
					 run.from, run.to - run.from, &written);
	}
	return rc;
}

static int move_copy_to_object(struct file_move *move)
{
	struct bounce *bounce = NULL;
	int rc = 0;

	/* An empty file needs no object, unless the file has an fd from an earlier time in host/:
	 * object_replace_by_empty put a placeholder there. */
	if (!move->size && atomic_load(&move->file->object.fd) < 0)
		return 0;
	rc = host_new_object(move->to, &move->call, host_tmpfs_wanted(&move->call), &move->copy);
	if (rc == 0 && ftruncate(move->copy.fd, (off_t)move->size) < 0)
		rc = -errno;
	if (rc == 0 && move->size)
		rc = bounce_new(&move->call, move->size, &bounce);
	if (rc == 0)
		rc = move_copy_runs(move, bounce);
	bounce_free(bounce);
	if (rc == 0)
		move->allocated = object_taken(move->copy.fd);
	return rc;
}

static void move_drop_copy(struct file_move *move)
{
	if (move->to->pool)
		device_release_unused(move->to, &move->call, &move->extents);
	if (move->copy.id)
		journal_drop(move->call.journal, FDSTORE_HOST, move->copy.id);
	if (move->copy.fd >= 0) {
		close(move->copy.fd);
		file_count_object(&move->call, -1, move->copy.tmpfs);
	}
}

static int move_account(struct file_move *move, int64_t bytes)
{
	return move->to->pool ? 0 : system_account(move->to->system, move->copy.tmpfs, bytes);
}

/* The file is charged for the old bytes already: charges the difference, now if the copy is larger.
 * The system memory of host/ is a separate account. */
static int move_charge_difference(struct file_move *move)
{
	uint64_t old = atomic_load(&move->file->allocated);
	int64_t difference = (int64_t)(move->allocated - old);
	int rc = move_account(move, (int64_t)move->allocated);

	if (rc < 0)
		return rc;
	if (difference > 0)
		rc = file_charge(&move->call, difference);
	if (rc < 0)
		move_account(move, -(int64_t)move->allocated);
	move->charged = difference;
	return rc;
}

/* Prepares the record while the move can still fail. */
static int move_prepare_record(struct file_move *move)
{
	uint32_t n = move->extents.count;

	if (!move->call.journal)
		return 0;
	move->image = (struct journal_file){
	    .ino = move->call.ino,
	    .object = move->copy.id,
	    .volume = move->to->index,
	    .tail_shift = move->tail_shift,
	    .object_shift = move->copy.shift,
	    .n_extents = n,
	};
	move->record = file_record_extents(&move->extents);
	/* The persistent size: a device file has the value already; a file with an object does not
	 * use the field before the move. */
	atomic_store(&move->file->fields->size, move->size);
	return n && !move->record ? -ENOMEM : 0;
}

void file_move_piece(const struct file_move *move, struct journal_piece *piece)
{
	*piece = (struct journal_piece){
	    .kind = JOURNAL_FILE,
	    .bytes = sizeof(move->image),
	    .fixed = &move->image,
	    .tail = {{move->record, move->image.n_extents * (uint32_t)sizeof(*move->record)}},
	};
}

static int move_make_copy(struct file_move *move)
{
	int rc = move->to->pool ? move_copy_to_device(move) : move_copy_to_object(move);

	if (rc == 0)
		rc = move_prepare_record(move);
	if (rc == 0)
		rc = move_charge_difference(move);
	if (rc < 0)
		move_drop_copy(move);
	return rc;
}

static void move_undo_copy(struct file_move *move)
{
	if (move->charged > 0)
		file_charge(&move->call, -move->charged);
	move_account(move, -(int64_t)move->allocated);
	move_drop_copy(move);
}

/* Before the record, which the caller writes. A file in host/ has no extents to hold. */
static int move_hold(struct file_move *move)
{
	struct file *file = move->file;
	int rc = device_hold_replaced(&move->call, file_volume(file), &file->extents);

	if (rc < 0)
		move_undo_copy(move);
	return rc;
}

/* The kernel uses the object itself, sharers the chunks: the memory cannot be replaced. */
static int move_check(const struct file *file, const struct volume *to)
{
	if (file_is_foreign(file))
		return to ? -EXDEV : -EOPNOTSUPP;
	if (file_is_held(file))
		return -EBUSY;
	return !file_is_device(file) && atomic_load(&file->object.backing_id) ? -ETXTBSY : 0;
}

static int move_begin(struct file *file, const struct file_call *call, struct volume *to,
		      struct file_move **move)
{
	struct file_move *new_move = file_is_missing(file) ? NULL : calloc(1, sizeof(*new_move));

	if (!new_move)
		return file_is_missing(file) ? -EIO : -ENOMEM;
	file_lock_layout(file);
	*new_move = (struct file_move){
	    .file = file,
	    .call = *call,
	    .to = to ? to : file_volume(file),
	    .size = file_size(file),
	    .copy = {.fd = -1},
	};

	int rc = move_check(file, to);

	if (rc == 0)
		rc = move_make_copy(new_move);
	if (rc == 0)
		rc = move_hold(new_move);
	if (rc < 0) {
		brlock_write_unlock(&file->layout_lock);
		free(new_move->record);
		free(new_move);
		return rc;
	}
	*move = new_move;
	return 0;
}

int file_move_begin(struct file *file, const struct file_call *call, struct volume *to,
		    struct file_move **move)
{
	struct file_call own_call = *call;
	int rc;

	do {
		rc = move_begin(file, &own_call, to, move);
	} while (rc == -ENOSPC &&
		 file_find_room(to ? to : file_volume(file), &own_call, file_allocated(file)));
	return rc;
}

static void move_abort(struct file_move *move)
{
	device_unhold(&move->call, &move->file->extents);
	move_undo_copy(move);
}

/* A file's descriptor number never changes, because some threads use the descriptor without the
 * layout_lock: dup3 replaces the object behind the number. */
static void object_install(const struct file_call *call, struct file *file, int fd)
{
	int old = -1;

	if (atomic_compare_exchange_strong(&file->object.fd, &old, fd))
		return;
	while (dup3(fd, old, O_CLOEXEC) < 0 && (errno == EINTR || errno == EBUSY))
		;
	close(fd);
	file_count_object(call, -1, file_tmpfs(file));
}

/* Frees the object of a file that moved to a device. A mapping that outlived its handle keeps the
 * object: truncating the object would end that program by SIGBUS. So the descriptor gets another,
 * empty object. */
static void object_replace_by_empty(int fd)
{
	int empty = memfd_create("gpumemfs-moved", MFD_CLOEXEC);

	if (empty < 0 || dup3(empty, fd, O_CLOEXEC) < 0)
		log_error("host: cannot free the memory of a file that moved to a GPU: %s",
			  strerror(errno));
	if (empty >= 0)
		close(empty);
}

/* Threads without layout_lock read the volume first, and then members that the volume implies. So
 * set the new volume's members before the volume, and clear the old volume's members after. */
static void move_commit(struct file_move *move)
{
	struct file *file = move->file;
	struct volume *from = atomic_load(&file->volume);
	uint64_t old_object = file_object_id(file);

	file_set_object_id(file, move->copy.id);
	if (from->pool) {
		pool_free_announce(from->pool);
		move->from = from;
		move->old_extents = file->extents;
		device_uncharge_places(&move->call, &move->old_extents);
	}
	if (!from->pool) {
		host_windows_forget(from->windows, file);
		if (!file_keep_old_object(file, from, atomic_load(&file->allocated)))
			system_account(from->system, file_tmpfs(file),
				       -(int64_t)atomic_load(&file->allocated));
	}
	file->extents = move->extents;
	atomic_store(&file->fields->size, move->size);
	if (!from->pool || !move->to->pool)
		atomic_store(&file->fields->reserved, 0);
	atomic_store(&file->memory.tail_shift, move->tail_shift);
	atomic_store(&file->allocated, 0);
	device_update_accounting(file, (int64_t)move->allocated);
	if (move->copy.fd >= 0) {
		atomic_store(&file->object.shift, move->copy.shift);
		object_install(&move->call, file, move->copy.fd);
	}
	/* Programs still have descriptors of the old object, not of this object. */
	atomic_store(&file->object.handed_out, atomic_load(&file->object.mapped) > 0);
	atomic_store(&file->volume, move->to);

	if (move->copy.fd < 0 && atomic_load(&file->object.fd) >= 0) {
		object_replace_by_empty(atomic_load(&file->object.fd));
		file_count_object(&move->call, 0, file_tmpfs(file));
	}
	atomic_store(&file->object.bounded, move->copy.tmpfs == SYSTEM_TMPFS_OWN);
	if (old_object)
		journal_drop(move->call.journal, FDSTORE_HOST, old_object);
	if (move->charged < 0)
		file_charge(&move->call, move->charged);
}

void file_move_end(struct file_move *move, enum file_move_end end)
{
	struct file *file = move->file;

	if (end == FILE_MOVE_COMMIT) {
		move_commit(move);
		file_recorded(&move->call, &file->extents);
	} else {
		move_abort(move);
	}
	brlock_write_unlock(&file->layout_lock);
}

void file_move_free(struct file_move *move)
{
	if (move && move->from) {
		device_release(move->from, &move->old_extents);
		pool_free_announced(move->from->pool);
	}
	if (move)
		free(move->record);
	free(move);
}

/* Records the layout, and with the layout the attributes that asked for the layout. */
static void relayout_record(const struct file_move *move, unsigned n_pieces)
{
	struct journal_values values = {.ino = move->call.ino, .attrs = move->call.attrs};
	struct journal_piece pieces[2];

	file_move_piece(move, &pieces[0]);
	pieces[1] = (struct journal_piece){
	    .kind = JOURNAL_VALUES, .bytes = sizeof(values), .fixed = &values};
	journal_append(move->call.journal, pieces, n_pieces, NULL);
}

static int relayout(struct file *file, const struct file_call *call, unsigned n_pieces)
{
	struct file_move *move;
	int rc;

	if (journal_room(call->journal))
		return -ENOSPC;
	rc = file_move_begin(file, call, NULL, &move);
	if (rc < 0)
		return rc == -ETXTBSY ? -EBUSY : rc;
	if (call->journal)
		relayout_record(move, n_pieces);
	file_move_end(move, FILE_MOVE_COMMIT);
	file_move_free(move);
	return 0;
}

int file_relayout(struct file *file, const struct file_call *call)
{
	return relayout(file, call, 2);
}

int file_replace_object(struct file *file, const struct file_call *call)
{
	return relayout(file, call, 1);
}
