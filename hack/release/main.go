// Command release describes binaries. `release -out DIR [flags] BINARY...` writes two files.
// DIR/knarr.spdx.json is a software bill of materials (SPDX 2.3, JSON). DIR/NOTICE has the licences
// of every Go module in the binaries. Both depend only on the binaries and the flags, so two runs
// give the same files.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// options hold the facts that are not in the binaries.
type options struct {
	out     string
	version string // of the release
	commit  string
	date    time.Time // of the commit
	libs    libraries
}

func main() {
	var o options
	var date string
	flag.StringVar(&o.out, "out", "", "folder for knarr.spdx.json and NOTICE")
	flag.StringVar(&o.version, "version", "", "the release, such as v1.36.3+knarr0")
	flag.StringVar(&o.commit, "commit", "", "full hash of the source")
	flag.StringVar(&date, "date", "", "time of the commit, RFC 3339")
	flag.Var(&o.libs, "library", "NAME@VERSION=LICENCE=FILE: a C library that is linked statically, and its licence's text; may be repeated")
	flag.Parse()
	var err error
	if o.date, err = time.Parse(time.RFC3339, date); err != nil {
		fail(fmt.Errorf("-date %q: wanted RFC 3339, such as 2030-01-02T03:04:05Z", date))
	}
	if o.out == "" || o.version == "" || o.commit == "" || flag.NArg() == 0 {
		fail(fmt.Errorf("usage: release -out DIR -version V -commit HASH -date TIME [-library ...] BINARY..."))
	}
	if err := describe(o, flag.Args()); err != nil {
		fail(err)
	}
}

func describe(o options, binaries []string) error {
	modules, err := modulesOf(binaries)
	if err != nil {
		return err
	}
	licences, err := newLicences()
	if err != nil {
		return err
	}
	for i := range modules {
		if err := licences.find(&modules[i]); err != nil {
			return err
		}
	}
	if err := writeNotice(filepath.Join(o.out, "NOTICE"), o, modules); err != nil {
		return err
	}
	return writeSBOM(filepath.Join(o.out, "knarr.spdx.json"), o, modules)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "release:", err)
	os.Exit(1)
}
