package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestProgressOfATestRun(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := newReader(&log)
	shows := func(want string) {
		t.Helper()
		if got := r.String(); got != want {
			t.Errorf("shows %q, not %q", got, want)
		}
	}
	r.line("progress: packages 2")
	r.line("progress: compiling")
	shows("compiling")
	r.line("k8s.io/api/core/v1")
	shows("1 packages compiled: k8s.io/api/core/v1")
	r.line(`{"Action":"start","Package":"github.com/knarr-project/knarr/internal/dns"}`)
	shows("package 1 of 2: internal/dns")
	r.line(`{"Action":"run","Package":"github.com/knarr-project/knarr/internal/dns","Test":"TestA"}`)
	shows("package 1 of 2: internal/dns.TestA")
	r.line(`{"Action":"pass","Package":"github.com/knarr-project/knarr/internal/dns","Test":"TestA","Elapsed":2}`)
	r.line(`{"Action":"pass","Package":"github.com/knarr-project/knarr/internal/dns","Elapsed":3}`)
	r.line(`{"Action":"start","Package":"github.com/knarr-project/knarr/internal/api"}`)
	shows("package 2 of 2: internal/api")
	r.line("progress: tests 16")
	shows("test 2 of 16: internal/api")
	if r.slow[0].name != "internal/dns.TestA" || r.slow[0].seconds != 2 {
		t.Errorf("times: %v", r.slow)
	}
}

func TestTheLogHasWhatGoTestPrints(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := newReader(&log)
	r.read(strings.NewReader(`# knarr/bad
bad.go:1:1: a compiler's complaint
{"Action":"build-output","ImportPath":"knarr/worse","Output":"worse.go:1:1: another\n"}
{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"    a_test.go:1: chatter\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"--- PASS: TestGood (0.00s)\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"run","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"    a_test.go:2: wrong\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
{"Action":"output","Package":"q","Output":"ok  \tq\t0.1s\n"}
{"Action":"pass","Package":"q"}
{"Action":"run","Package":"hung","Test":"TestHangs"}
{"Action":"output","Package":"hung","Test":"TestHangs","Output":"    last words\n"}
`))
	r.finish()
	const want = `# knarr/bad
bad.go:1:1: a compiler's complaint
worse.go:1:1: another
    a_test.go:2: wrong
--- FAIL: TestBad (0.00s)
FAIL	p	0.1s
ok  	q	0.1s
FAIL	hung	did not end
    last words
`
	if log.String() != want {
		t.Errorf("the log is\n%s", log.String())
	}
	if causes := brief(log.String(), 10); strings.Join(causes, "\n") != "bad.go:1:1: a compiler's complaint\nworse.go:1:1: another\n--- FAIL: TestBad (0.00s)\nFAIL\tp\t0.1s\nFAIL\thung\tdid not end" {
		t.Errorf("the causes are\n%s", strings.Join(causes, "\n"))
	}
}
