//go:build inprocess

package runc

import (
	"path/filepath"
	"testing"

	"github.com/opencontainers/runc/libcontainer"
)

func TestContainersOfThisProcessAreNotReadAgain(t *testing.T) {
	r, mine := &Runc{Root: t.TempDir()}, &libcontainer.Container{}
	created.Store(filepath.Join(r.Root, "mine"), mine)
	defer created.Delete(filepath.Join(r.Root, "mine"))
	if got, err := r.find("mine"); err != nil || got != mine {
		t.Errorf("find: %p, %v; want %p", got, err, mine)
	}
	if _, err := r.find("another"); err == nil {
		t.Error("a missing container was found")
	}
}
