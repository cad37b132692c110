/* pause holds a pod's namespaces open. It sleeps, reaps the zombies of its PID namespace, and ends on
 * SIGTERM or SIGINT. It is in C, because a static C program has a few hundred kilobytes and hardly
 * uses memory. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) {
	(void)signal;
	_exit(0);
}

static void reap(int signal) {
	(void)signal;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

int main(void) {
	struct sigaction ends = {.sa_handler = end}, reaps = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};

	if (sigaction(SIGINT, &ends, NULL) != 0 || sigaction(SIGTERM, &ends, NULL) != 0 || sigaction(SIGCHLD, &reaps, NULL) != 0)
		return 1;
	for (;;)
		pause();
}
