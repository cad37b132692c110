package main

import (
	"io"
	"os"
	"strings"
	"testing"
)

// TestMain, when started as the process of readers, ends successfully without output.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "--stage" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestReadersWithoutAResultAreAnError(t *testing.T) {
	stop, err := startReaders(readersOrder{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stop(); err == nil || !strings.Contains(err.Error(), "read their result: EOF") {
		t.Errorf("error %v, want one that says so", err)
	}
}
