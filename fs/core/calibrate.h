/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* Measures the crossovers of each device, the sizes from which on DMA is faster than a copy by the
 * CPU (backend/copy.h): once, in a background thread that starts with the first write to the
 * device, because before the first write there is no context. Requests do not wait for the
 * measurement. */
#ifndef FS_CORE_CALIBRATE_H
#define FS_CORE_CALIBRATE_H

struct device;
struct fs;

/* Called after the backend is open: 0 or -ENOMEM. */
int calibrate_open(struct fs *fs);
/* Starts the measurement at the first call for a device. Later calls are cheap. NULL: host/, which
 * has none. */
void calibrate_start(struct fs *fs, struct device *device);
/* Waits for calibrations that are running. */
void calibrate_close(struct fs *fs);

#endif
