package main

// extern int detached;
import "C"

// detached reports whether this process is the second half of one that was started with the
// argument "start" (detach.c).
func detached() bool { return C.detached == 1 }
