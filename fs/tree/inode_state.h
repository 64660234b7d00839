/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The life of an inode's data: which combinations of its counts and flags are legal. The members
 * are in inode->uses, under the inode's lock.
 *
 * state             nlink  opens + leases      keep_data  data_freed  unlinked_open
 * named             >= 1   any                 any        false       false
 * unlinked, in use  0      >= 1                any        false       true
 * unlinked, kept    0      0                   true       false       true
 * freed             0      0                   false      true        false
 *
 * Only regular files leave the first state; the data of other inodes is freed with the inode.
 * unlinked, kept: mappings in the kernel may outlive all handles, until the kernel forgets the
 * inode. freed is final: no open, no lease and no name any more. writers <= opens always. The other
 * flags are independent: charges.counted (topology) is false without names, recorded only becomes
 * true, unseen.listing is for host/ files, moving counts moves of the memory, residency belongs to
 * inode_hooks.h. */
#ifndef FS_TREE_INODE_STATE_H
#define FS_TREE_INODE_STATE_H

struct inode;

/* In builds with a sanitizer, asserts that the inode is in a state of the table. lock is held. */
void inode_state_check(const struct inode *inode);

#endif
