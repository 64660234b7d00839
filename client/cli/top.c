#include "client/cli/cli.h"
static int run(struct cli_args *a)
{
	(void)a;
	return 0;
}
const struct command command_top = {.name = "top", .words = "[MOUNT]", .summary = "s", .run = run};
