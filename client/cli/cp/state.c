/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * SPDX-FileCopyrightText: The gpumemfs authors */
/* gpumem cp: the state that every thread looks at: signals, the exit status, and the reports of
 * finished names. */
#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/cli/cp/cp.h"
#include "client/cli/output/output.h"
#include "common/cleanup.h"

atomic_int cp_signal;
int cp_signal_fd = -1;

/* Catches the first signal only: a second signal ends the program by its default action. */
static void signal_handle(int number)
{
	uint64_t increment = 1;
	int saved = errno;

	atomic_store(&cp_signal, number);
	if (write(cp_signal_fd, &increment, sizeof(increment)) < 0)
		errno = saved;
	errno = saved;
}

int cp_signals_catch(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = signal_handle, .sa_flags = (int)SA_RESETHAND},
			 old_action;

	cp_signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (cp_signal_fd < 0)
		return -errno;
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		/* A signal that nohup(1) ignores stays ignored. */
		if (sigaction(numbers[i], NULL, &old_action) == 0 &&
		    old_action.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	return 0;
}

bool cp_stopped(const struct cp *cp)
{
	return atomic_load(&cp_signal) || atomic_load(&cp->halted);
}

void cp_failed(struct cp *cp, int status)
{
	scoped_lock(&cp->lock);
	if (!cp->status)
		cp->status = status;
	/* All later files would fail in the same way. */
	if (status == CLI_FULL || status == CLI_DEAD)
		atomic_store(&cp->halted, true);
}

void cp_tell(const struct cp *cp, const char *from, const char *to)
{
	AUTO_FREE char *shown_from = NULL, *shown_to = NULL;

	if (!cp->options.verbose)
		return;
	shown_from = output_escape(from);
	shown_to = output_escape(to);
	if (!shown_from || !shown_to)
		return;
	if (atomic_exchange(&cli_line_open, false))
		fputs("\r\033[K", stderr);
	/* With --json, standard output has JSON only. */
	fprintf(cp->options.json ? stderr : stdout, "'%s' -> '%s'\n", shown_from, shown_to);
}
