// Package deliver writes to many connections from a few goroutines.
//
// A Task is the delivery to one reader: run by a worker when it was woken, one worker at a time. An idle task costs no goroutine. A Pool has as many
// workers as there are CPUs, and none when nothing is to be done. A Conn is a TCP connection whose writes can be held, so that the records of a TLS
// connection above it leave in one system call, which does not wait: what the socket has no room for is somebody else's to wait for (Drain), so that a slow
// reader does not keep a worker. Ears hear clients hang up. A Pace says how long a busy task rests before its next turn, so that there is more to write then.
//
// In: wake-ups. Out: bytes on sockets. What the bytes are is for the tasks to know.
package deliver
