// Deckhand is the container of the page's tests.
//
//	deckhand count  prints a line ten times a second
//	deckhand fall   says so, and exits with 3
//	deckhand shell  prints the size of its terminal, at first and at each change; echoes lines
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	switch os.Args[len(os.Args)-1] {
	case "fall":
		fmt.Fprintln(os.Stderr, "the mast is broken")
		os.Exit(3)
	case "shell":
		shell()
	default:
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		for i := 1; ; i++ {
			fmt.Println("line", i)
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

func shell() {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	go func() {
		for {
			var size struct{ rows, columns, x, y uint16 }
			_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, 0, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
			fmt.Printf("terminal %dx%d\n", size.columns, size.rows)
			<-changed
		}
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println("aye,", lines.Text())
	}
}
