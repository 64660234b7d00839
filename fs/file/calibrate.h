/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* The crossovers of each device (backend/copy.h), measured in a thread of its own when the device
 * is first written to: before that there is no context, and no request waits for it. */
#ifndef FS_FILE_CALIBRATE_H
#define FS_FILE_CALIBRATE_H

struct fs;
struct volume;

/* After the volumes are open: 0 or -ENOMEM. */
int calibrate_open(struct fs *fs);
/* Starts the measurement if it is the first call for a GPU's volume. Cheap after that. */
void calibrate_start(struct fs *fs, struct volume *volume);
/* Waits for calibrations that are running. */
void calibrate_close(struct fs *fs);

#endif
