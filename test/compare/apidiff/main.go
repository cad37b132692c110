// Apidiff sends the same requests to upstream's kube-apiserver and to knarr's, and prints how the
// answers differ: status code, reason, message, causes and body. Values that must differ (uids,
// times, revisions, random names) are removed first. Differences of the same shape are counted
// together, the most frequent first.
//
// The requests are made from a small corpus of valid objects, at least one per kind, edited field
// by field with upstream's OpenAPI schemas. They cover valid and broken bodies, all verbs, all
// patch types, selectors and versions.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

type options struct {
	knarr    string
	upstream string
	state    string
	out      string
	n        int
	seed     uint64
	only     string
	bodies   bool
	workers  int
	first    int64
	examples int
	limit    time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.knarr, "knarr", "bin/knarr", "knarr's binary")
	flag.StringVar(&o.upstream, "upstream", "", "folder with upstream's kube-apiserver and etcd")
	flag.StringVar(&o.state, "state", "", "folder for data")
	flag.StringVar(&o.out, "out", "", "file for every difference with its request")
	flag.IntVar(&o.n, "n", 2000, "number of requests")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the requests; the same seed makes the same requests")
	flag.StringVar(&o.only, "only", "", "comma-separated kinds to send")
	flag.BoolVar(&o.bodies, "bodies", false, "send only requests with an object: creates, updates, patches")
	flag.DurationVar(&o.limit, "limit", 3*time.Hour, "time after which to stop and report the results so far")
	flag.IntVar(&o.workers, "workers", 4, "number of concurrent requests")
	flag.Int64Var(&o.first, "first", 1, "number of the first case, the suffix of its objects' names: repeats that case")
	flag.IntVar(&o.examples, "examples", 1, "requests shown for each shape of difference in the file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	differ, err := run(ctx, &o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "apidiff:", err)
		os.Exit(2)
	}
	if differ {
		os.Exit(1)
	}
}

// run starts both servers, sends the requests and prints the report. differ reports an unexplained
// difference.
func run(ctx context.Context, o *options) (differ bool, err error) {
	corpus, err := readCorpus(o.only)
	if err != nil {
		return false, err
	}
	var sides pair
	for i, start := range []starter{startUpstream, startKnarr} {
		s, err := start(ctx, o, filepath.Join(o.state, fmt.Sprint(i)))
		if err != nil {
			return false, err
		}
		defer s.stop()
		sides[i] = s
	}
	report := newReport()
	if err := prepare(ctx, sides, o.workers); err != nil {
		return false, err
	}
	if err := define(ctx, sides); err != nil {
		return false, err
	}
	if o.only == "" {
		if err := compareDocuments(ctx, sides, report); err != nil {
			return false, err
		}
	}
	schemas, err := readSchemas(ctx, sides[0], corpus)
	if err != nil {
		return false, err
	}
	g := &generator{bodies: o.bodies, corpus: corpus, schemas: schemas, report: report, sides: sides}
	stop := g.printProgress(o.n)
	failed := g.run(ctx, o) // report the findings so far even after an interruption or a failure
	stop()
	if ctx.Err() != nil {
		failed = fmt.Errorf("not all requests were sent: %w", context.Cause(ctx))
	}
	var out strings.Builder
	differ = report.print(&out, o.examples)
	fmt.Print(report.summary())
	if o.out != "" {
		failed = errors.Join(failed, os.WriteFile(o.out, []byte(out.String()), 0o644))
	}
	return differ, failed
}
