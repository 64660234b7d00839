/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Names and attributes, while an allocation or system call fails. */
#include "tests/unit/failures/daemon.h"
#include "tests/unit/failures/requests.h"

#define OPTIONS "backend=host,host_gpus=2,host_size=64M,spill=host:48M,bar=off"

static void make_names(uint64_t top, struct node *dir, struct node *sub)
{
	TRY(do_mkdir(top, "dir", dir));
	TRY(do_mkdir(dir->ino, "sub", sub));
	TRY(do_mkdir(dir->ino, "other", NULL));
	TRY(do_mknod(dir->ino, "file", S_IFREG | 0644, NULL));
	TRY(do_mknod(dir->ino, "fifo", S_IFIFO | 0644, NULL));
	TRY(do_symlink(dir->ino, "link", "some/target"));
	TRY(do_readdir(dir->ino));
	TRY(do_statfs(dir->ino));
}

static void set_attributes(const struct node *dir, const struct node *file)
{
	TRY(do_set(file, "user.one", "value"));
	TRY(do_set(file, "user.one", "another value"));
	TRY(do_set(file, "trusted.two", "2"));
	TRY(do_set(file, "user.gpumem.page_size", "64K"));
	TRY(do_set(file, "user.gpumem.priority", "3"));
	TRY(do_set(dir, "user.gpumem.quota.max_bytes", "8M"));
	TRY(do_set(dir, "user.gpumem.quota.max_files", "100"));
	TRY(do_get(file, "user.one"));
	TRY(do_get(dir, "user.gpumem.quota.max_bytes"));
	TRY(do_list(file));
	TRY(do_remove(file, "user.one"));
	TRY(do_remove(file, "user.gpumem.page_size"));
	TRY(do_chown(file, 3));
}

static void move_names(uint64_t top, const struct node *dir, const struct node *sub)
{
	TRY(do_rename(dir->ino, "file", sub->ino, "moved", 0));
	TRY(do_rename(sub->ino, "moved", dir->ino, "file", RENAME_NOREPLACE));
	TRY(do_rename(dir->ino, "file", dir->ino, "fifo", RENAME_EXCHANGE));
	TRY(do_rename(dir->ino, "fifo", sub->ino, "away", RENAME_WHITEOUT));
	TRY(do_rename(sub->ino, "away", dir->ino, "file", 0));
	TRY(do_rename(dir->ino, "sub", top, "sub", 0));
	TRY(do_rename(top, "sub", dir->ino, "other", 0));
}

static void remove_names(const struct node *dir)
{
	TRY(do_unlink(dir->ino, "file"));
	TRY(do_unlink(dir->ino, "fifo"));
	TRY(do_unlink(dir->ino, "link"));
	TRY(do_rmdir(dir->ino, "other"));
}

static void names(void)
{
	struct node dir = {0}, sub = {0}, file = {0}, nameless = {0};

	scenario_up(OPTIONS);
	make_names(gpu(0)->ino, &dir, &sub);
	TRY(do_create(dir.ino, "opened", &file));
	set_attributes(&dir, &file);
	TRY(do_link(&file, sub.ino, "again"));
	move_names(gpu(0)->ino, &dir, &sub);
	TRY(do_tmpfile(dir.ino, &nameless));
	TRY(do_link(&nameless, dir.ino, "named"));
	TRY(do_tmpfile(dir.ino, &nameless));
	TRY(do_release(&nameless));
	TRY(do_unlink(dir.ino, "opened"));
	TRY(do_release(&file));
	do_forget(&file, 1);
	TRY(do_unlink(sub.ino, "again"));
	remove_names(&dir);
	scenario_down();
}

int main(void)
{
	return failures_main("failures of names and attributes", names, false);
}
