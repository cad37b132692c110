// Sailor is the container of the tests: a server that answers with its name, and a client.
//
//	sailor serve          HTTP on :8080: / answers with $POD_NAME (or the host's name)
//	sailor fetch URL [N]  requests the URL N times on new connections, and prints the answers
//	sailor lookup NAME    prints the name's addresses, one a line
//	sailor say WORDS…     prints the words; a word @FILE stands for the text of a file
//	sailor env NAME       prints an environment variable
//	sailor put FILE WORDS… writes the words to a file
//	sailor fill FILE N    writes N MiB to a file, down to the disk
//	sailor head FILE N    prints the first N bytes of a file
//	sailor link TO NAME   makes a symbolic link
//	sailor echo           prints its input
//	sailor await COMMAND  waits for the end of its input, then runs COMMAND
//	sailor count          prints 1, 2, 3, ... ten a second
//	sailor fall           says so, and exits with 3
//	sailor need NAME      serves, or fails if the environment variable is not set
//	sailor hold N         fills N MiB of memory, and keeps them
//
// Under the name tar, it packs and unpacks files for kubectl cp.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if filepath.Base(os.Args[0]) == "tar" {
		os.Args = append([]string{"sailor", "tar"}, os.Args[1:]...)
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sailor:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	switch args[0] {
	case "serve":
		return serve()
	case "fetch":
		return fetch(args[1:])
	case "lookup":
		return lookup(args[1])
	case "env":
		fmt.Println(os.Getenv(args[1]))
		return nil
	case "say":
		return say(args[1:])
	case "put":
		return os.WriteFile(args[1], []byte(strings.Join(args[2:], " ")+"\n"), 0o644)
	case "fill":
		return fill(args[1], args[2])
	case "head":
		f, err := os.Open(args[1])
		if err != nil {
			return err
		}
		defer f.Close()
		n, err := strconv.ParseInt(args[2], 10, 64)
		if err != nil {
			return err
		}
		_, err = io.CopyN(os.Stdout, f, n)
		return err
	case "link":
		return os.Symlink(args[1], args[2])
	case "echo":
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	case "await":
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			return err
		}
		return run(args[1:])
	case "count":
		for i := 1; ; i++ {
			fmt.Println(i)
			time.Sleep(100 * time.Millisecond)
		}
	case "fall":
		fmt.Println("falling")
		os.Exit(3)
	case "need":
		if os.Getenv(args[1]) == "" {
			return fmt.Errorf("the variable %s is not set", args[1])
		}
		return serve()
	case "hold":
		return hold(args[1])
	case "tar":
		return tarball(args[1:])
	}
	return fmt.Errorf("no command %s", args[0])
}

func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	name := os.Getenv("POD_NAME")
	if name == "" {
		name, _ = os.Hostname()
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) })
	server := &http.Server{Addr: ":8080", Handler: hello, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	fmt.Println("listening on :8080 as", name)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func fetch(args []string) error {
	times := 1
	if len(args) > 1 {
		var err error
		if times, err = strconv.Atoi(args[1]); err != nil {
			return err
		}
	}
	for range times {
		if err := get(args[0]); err != nil {
			return err
		}
	}
	return nil
}

func get(url string) error {
	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}

func lookup(name string) error {
	addresses, err := net.LookupHost(name)
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(addresses, "\n"))
	return nil
}

func say(words []string) error {
	for i, word := range words {
		if path, ok := strings.CutPrefix(word, "@"); ok {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			words[i] = strings.TrimSpace(string(text))
		}
	}
	fmt.Println(strings.Join(words, " "))
	return nil
}

func fill(name, mebibytes string) error {
	n, err := strconv.Atoi(mebibytes)
	if err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for range n {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return f.Sync()
}

// hold writes to each page of memory, so that the kernel gives it.
func hold(mebibytes string) error {
	n, err := strconv.Atoi(mebibytes)
	if err != nil {
		return err
	}
	var held [][]byte
	for range n {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		held = append(held, block)
	}
	fmt.Println("holding", len(held), "MiB")
	return serve()
}
