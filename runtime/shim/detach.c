#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// File descriptors of the future API socket, and of the pipe on which the first process waits. Both
// are reserved before Go opens any file.
#define SOCKET 3
#define READY 4

int detached; // 1 in the second half

static char line[16384]; // the arguments, each with a terminating zero
static ssize_t length = 0;

// action reports whether the last argument is wanted.
int action(const char *wanted) {
	if (length == 0) {
		int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return 0;
		ssize_t n;
		while (length < (ssize_t)sizeof line && (n = read(fd, line + length, sizeof line - length)) > 0)
			length += n;
		close(fd);
	}
	ssize_t size = strlen(wanted) + 1;
	return length > size && line[length - size - 1] == 0 && memcmp(line + length - size, wanted, size) == 0;
}

// arguments returns the arguments, or null if they are too many.
char **arguments(void) {
	static char *all[64];
	int count = 0;
	for (ssize_t at = 0; at < length; at += strlen(line + at) + 1) {
		if (count == sizeof all / sizeof *all - 1 || line[length - 1] != 0)
			return 0;
		all[count++] = line + at;
	}
	return count > 1 ? all : 0;
}

// forget answers containerd's request to clean up after a container that the shim has deleted. The
// answer is a file that the shim has left in the bundle (delete.go), which is the working directory.
// If work remains, forget returns and Go does it.
static void forget(void) {
	struct stat bundle, rootfs;
	char answer[256];
	int fd = open("deleted", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	ssize_t length = read(fd, answer, sizeof answer);
	close(fd);
	if (length <= 0 || length == sizeof answer || stat(".", &bundle) < 0)
		return;
	if (stat("rootfs", &rootfs) == 0 && rootfs.st_dev != bundle.st_dev)
		return; // still mounted
	if (write(STDOUT_FILENO, answer, length) == length)
		_exit(0);
}

// detach forks before Go starts. The caller waits for the first process; the second one becomes the
// shim.
__attribute__((constructor)) static void detach(void) {
	int ready[2];
	if (action("delete"))
		forget();
	if (!action("start") || pipe2(ready, O_CLOEXEC) < 0)
		return;
	pid_t child = fork();
	if (child < 0)
		return;
	if (child == 0) {
		int end = fcntl(ready[1], F_DUPFD_CLOEXEC, 10), null = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (end < 0 || null < 0 || dup3(null, SOCKET, O_CLOEXEC) < 0 || dup3(end, READY, O_CLOEXEC) < 0)
			_exit(1);
		if (null != SOCKET && null != READY)
			close(null);
		close(end);
		if (ready[0] > READY)
			close(ready[0]);
		if (ready[1] > READY)
			close(ready[1]);
		setpgid(0, 0);
		detached = 1;
		return;
	}
	close(ready[1]);
	char status;
	if (read(ready[0], &status, 1) == 1)
		_exit(0);
	int how;
	waitpid(child, &how, 0);
	_exit(WIFEXITED(how) && WEXITSTATUS(how) ? WEXITSTATUS(how) : 1);
}
