/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* frame_producer FILE SOCKET FRAMES [FPS]: fills frames in the memory of FILE and passes them, one
 * at a time, to the consumer that connects to SOCKET; see frames.h. FILE is on a mount of gpumemfs,
 * below gpuN/ or host/. With FPS, a frame is dropped if no slot is free, as a camera must; without
 * FPS, the consumer sets the pace.
 *
 *   gcc -O2 -o frame_producer frame_producer.c $(pkg-config --cflags --libs gpumem) */
#include <errno.h>
#include <fcntl.h>
#include <gpumem.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "frames.h"

#define SECOND 1000000000

struct producer {
	gpumem *file;
	uint8_t *memory;
	unsigned mine; /* a bit for each slot that the consumer does not have */
	uint64_t sequence, last, dropped;
	uint64_t period, next; /* in nanoseconds; 0: at the consumer's pace */
};

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, "frame_producer: %s: %s\n", what, why);
	exit(1);
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

/* Through the BAR where the file is on a GPU. */
static void map(struct producer *p, const char *path)
{
	void *memory;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

	if (fd < 0 || ftruncate(fd, (off_t)FRAME_SLOT * FRAME_SLOTS))
		die(path, strerror(errno));
	p->file = gpumem_open_fd(fd);
	if (!p->file || gpumem_map_host(p->file, &memory, NULL))
		die(path, gpumem_error());
	close(fd);
	p->memory = memory;
}

static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0 || strlen(path) >= sizeof(address.sun_path))
		die(path, fd < 0 ? strerror(errno) : "too long a path for a socket");
	strcpy(address.sun_path, path);
	unlink(path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 1))
		die(path, strerror(errno));
	return fd;
}

/* Takes back the slots that the consumer has finished with; waits if there is nothing else to do.
 * False: the consumer is gone. */
static bool take_back(struct producer *p, int consumer)
{
	struct frame_notice back;

	for (;;) {
		int flags = p->mine || p->period ? MSG_DONTWAIT : 0;
		ssize_t n = recv(consumer, &back, sizeof(back), flags);
		if (n < 0 && errno == EAGAIN)
			return true;
		uint64_t slot = back.offset / FRAME_SLOT;
		if (n != sizeof(back) || slot >= FRAME_SLOTS)
			return false;
		p->mine |= 1U << slot;
	}
}

static void wait_for_time(struct producer *p)
{
	struct timespec until = {.tv_sec = (time_t)(p->next / SECOND),
				 .tv_nsec = (long)(p->next % SECOND)};

	if (p->period)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	p->next += p->period;
}

/* A grey that changes with every frame, so that a torn frame has two greys. */
static void draw(uint8_t *slot, uint64_t sequence)
{
	struct frame_header header = {
	    .sequence = sequence, .time = now(), .width = FRAME_WIDTH, .height = FRAME_HEIGHT};

	memset(slot + FRAME_PIXELS_AT, (int)(sequence & 0xff), FRAME_WIDTH * FRAME_HEIGHT);
	memcpy(slot, &header, sizeof(header));
}

static bool hand_over(struct producer *p, int consumer)
{
	unsigned slot = (unsigned)__builtin_ctz(p->mine);
	struct frame_notice notice = {.sequence = p->sequence,
				      .offset = (uint64_t)slot * FRAME_SLOT};

	draw(p->memory + notice.offset, p->sequence);
	if (gpumem_flush(p->file))
		die("flush", gpumem_error());
	p->mine &= ~(1U << slot);
	return send(consumer, &notice, sizeof(notice), MSG_NOSIGNAL) == sizeof(notice);
}

/* Until the last frame, or until the consumer is gone. */
static void serve(struct producer *p, int consumer)
{
	struct frame_notice done = {0};

	p->mine = (1U << FRAME_SLOTS) - 1;
	p->next = now();
	while (p->sequence < p->last) {
		wait_for_time(p);
		if (!take_back(p, consumer))
			return;
		p->sequence++;
		if (!p->mine)
			p->dropped++;
		else if (!hand_over(p, consumer))
			return;
	}
	send(consumer, &done, sizeof(done), MSG_NOSIGNAL);
	/* Closing the connection now would lose the notices that the consumer has not read yet. */
	while (recv(consumer, &done, sizeof(done), 0) > 0)
		;
}

int main(int argc, char **argv)
{
	struct producer p = {0};

	if (argc < 4 || argc > 5) {
		fprintf(stderr, "usage: frame_producer FILE SOCKET FRAMES [FPS]\n");
		return 2;
	}
	p.last = strtoull(argv[3], NULL, 10);
	if (argc == 5 && strtoul(argv[4], NULL, 10))
		p.period = SECOND / strtoul(argv[4], NULL, 10);
	map(&p, argv[1]);
	int listening = listen_at(argv[2]);
	while (p.sequence < p.last) {
		int consumer = accept(listening, NULL, NULL);
		if (consumer < 0)
			die(argv[2], strerror(errno));
		serve(&p, consumer);
		close(consumer);
	}
	unlink(argv[2]);
	printf("%llu frames, %llu dropped\n", (unsigned long long)p.sequence,
	       (unsigned long long)p.dropped);
	return gpumem_close(p.file) ? 1 : 0;
}
