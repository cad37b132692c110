// Load is the container of the test's pods. It serves HTTP on :8080 (/healthz answers ok), and in
// the background it does what its arguments name:
//
//	burn           uses as much CPU as it gets
//	fetch URL      requests the URL again and again
//	write FILE     writes the file, down to the disk
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	for args := os.Args[1:]; len(args) > 0; {
		switch args[0] {
		case "burn":
			go burn()
			args = args[1:]
		case "fetch":
			go fetch(args[1])
			args = args[2:]
		case "write":
			go write(args[1])
			args = args[2:]
		default:
			fmt.Fprintf(os.Stderr, "load: %q is not known\n", args[0])
			os.Exit(2)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":8080", mux)) //nolint:gosec // a test's server
	os.Exit(1)
}

func burn() {
	for n := uint64(0); ; n++ {
		if n%1_000_000 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

func fetch(url string) {
	for {
		if resp, err := http.Get(url); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func write(path string) {
	block := bytes.Repeat([]byte("x"), 1<<20)
	for {
		f, err := os.Create(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, _ = f.Write(block)
		_ = f.Sync()
		_ = f.Close()
		time.Sleep(200 * time.Millisecond)
	}
}
