package run

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/knarr-project/knarr/internal/store/etcd"
)

// A panic of a goroutine, or a fault of memory, ends the whole process; the service starts it
// again, and pods go on meanwhile. The Go runtime also writes the cause to a file, because the next
// start can explain it and the end of a crashed process cannot.

const (
	// crashFile in the data folder receives the cause if this process crashes. It is empty while
	// the process runs, and missing after an orderly end.
	crashFile = "crash.log"
	// lastCrashFile is the record of the last crash.
	lastCrashFile = "crash.last.log"
	// mostCrash is the most that is read of a record, in bytes. The cause stands at its beginning.
	mostCrash = 1 << 20
)

// recordCrashes explains how the last process of the data folder crashed, if it did, and lets the
// runtime record a crash of this one. done ends the recording.
func recordCrashes(dataDir string, log *slog.Logger) (done func()) {
	path := filepath.Join(dataDir, crashFile)
	if c, ok := lastCrash(path); ok {
		kept := filepath.Join(dataDir, lastCrashFile)
		if err := os.Rename(path, kept); err != nil {
			kept = path
		}
		log.Error("the last run of knarr crashed", "cause", c.cause, "in", c.part, "record", kept, "remedy", c.remedy(dataDir))
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(debug.SetCrashOutput(f, debug.CrashOptions{}), f.Close())
	}
	if err != nil {
		log.Warn("a crash of this process would leave no record", "error", err)
		return func() {}
	}
	return func() {
		_ = debug.SetCrashOutput(nil, debug.CrashOptions{})
		_ = os.Remove(path)
	}
}

func lastCrash(path string) (crash, bool) {
	f, err := os.Open(path)
	if err != nil {
		return crash{}, false
	}
	defer f.Close()
	record, err := io.ReadAll(io.LimitReader(f, mostCrash))
	if err != nil || len(bytes.TrimSpace(record)) == 0 {
		return crash{}, false // it was killed, or the machine went down
	}
	return parseCrash(string(record)), true
}

// crash is the end of a process by its own fault.
type crash struct {
	// cause is the runtime's message.
	cause string
	// part is the part of knarr whose goroutine crashed.
	part string
}

// storeModules are the modules of the embedded store.
var storeModules = []string{"go.etcd.io/bbolt", "go.etcd.io/etcd", "go.etcd.io/raft"}

const storePart, unknownPart = "the store", "an unknown part"

// parseCrash reads what the Go runtime writes when it ends a process: the message, then the stack
// of the goroutine that crashed, then those of the others.
func parseCrash(record string) crash {
	c := crash{part: unknownPart}
	var message []string
	stack := false
	for line := range strings.Lines(record) {
		line = strings.TrimSpace(line)
		switch {
		case !stack && strings.HasPrefix(line, "goroutine "):
			stack = true
		case !stack:
			if line != "" {
				message = append(message, line)
			}
		case line == "": // the next goroutine
			c.cause = cut(strings.Join(message, "; "))
			return c
		case c.part == unknownPart:
			if function, _, ok := strings.Cut(line, "("); ok {
				c.part = partOf(function)
			}
		}
	}
	c.cause = cut(strings.Join(message, "; "))
	return c
}

// partOf names the part of knarr that a function belongs to.
func partOf(function string) string {
	for _, module := range storeModules {
		if strings.HasPrefix(function, module) {
			return storePart
		}
	}
	if rest, ok := strings.CutPrefix(function, "github.com/knarr-project/knarr/internal/"); ok {
		name, _, _ := strings.Cut(rest, ".")
		return "package " + cut(name)
	}
	return unknownPart
}

// cut bounds a text from a file for the log.
func cut(text string) string {
	const most = 500
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

func (c crash) remedy(dataDir string) string {
	if c.part != storePart {
		return "please report it with the record"
	}
	return fmt.Sprintf("this start checks the database and refuses to go on if it is damaged; if it is not and this happens again, look for errors of disk and memory in the kernel's log. A damaged store: %s",
		etcd.WayBack(filepath.Join(dataDir, "etcd")))
}
