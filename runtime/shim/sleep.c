// The first half of a sleeping shim, which runs before Go starts: see sleep.go.

#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

// The state that the shim has left. Its first line lists the file descriptors to watch.
#define STATE 4

// A shim that watches more does not sleep (sleep.go).
#define MOST 64

extern char **environ;

int action(const char *wanted); // detach.c
char **arguments(void);

// watched reads the first line of the state.
static int watched(struct pollfd *files) {
	char line[MOST * 12];
	int count = 0;
	ssize_t length = pread(STATE, line, sizeof line - 1, 0);
	if (length <= 0)
		return 0;
	line[length] = 0;
	for (char *at = line; count < MOST; count++) {
		char *end;
		long fd = strtol(at, &end, 10);
		if (end == at)
			break;
		files[count] = (struct pollfd){.fd = fd, .events = POLLIN};
		at = end;
		if (*at == '\n')
			return count + 1;
	}
	return 0;
}

// doze waits until the shim has something to do: a request, a connection, a dead child or a signal.
// Then it executes the shim's program again. Here the process has no Go runtime and hardly any
// memory of its own.
__attribute__((constructor)) static void doze(void) {
	struct pollfd files[MOST + 1];
	siginfo_t dead;
	sigset_t signals, before;
	if (action("wake") || action("end"))
		prctl(PR_SET_NAME, "containerd-shim");
	if (!action("sleep"))
		return;
	prctl(PR_SET_NAME, "containerd-shim");
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, &before);
	int count = watched(files), received = signalfd(-1, &signals, SFD_CLOEXEC);
	files[count] = (struct pollfd){.fd = received, .events = POLLIN};
	dead.si_pid = 0;
	// A child that died before the signals were blocked stays a zombie.
	if (count > 0 && received >= 0 && waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) == 0 && dead.si_pid == 0)
		poll(files, count + 1, -1);

	// Go's handlers are not there yet: a request to end goes on as the action "end".
	sigset_t pending;
	sigpending(&pending);
	int end = sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT);
	while (received >= 0 && poll(&files[count], 1, 0) == 1) {
		struct signalfd_siginfo taken;
		if (read(received, &taken, sizeof taken) != sizeof taken)
			break;
	}
	char **args = arguments();
	if (args) {
		int last = 0;
		while (args[last + 1])
			last++;
		args[last] = end ? "end" : "wake";
		sigprocmask(SIG_SETMASK, &before, 0);
		execve("/proc/self/exe", args, environ);
	}
	_exit(1); // containerd cleans up as after any end of a shim
}
