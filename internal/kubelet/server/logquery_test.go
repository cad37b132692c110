package server

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// journalOf writes a stand-in for journalctl. It knows the unit shop.service, and prints its
// arguments.
func journalOf(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journalctl")
	script := "#!/bin/sh\nif [ \"$2\" = --field=_SYSTEMD_UNIT ]; then echo init.scope; echo shop.service; exit; fi\nif [ -n \"$BROKEN\" ]; then echo no journal >&2; exit 1; fi\necho \"journal: $*\"\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func logsOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestQueriesOfTheNodesLogs(t *testing.T) {
	dir := logsOf(t, map[string]string{"bakery.log": "one\ntwo\nthree\n", "mill/mill.log": "flour\n", "deep/file.txt": "deep"})
	c := Config{SystemLogs: dir, Journalctl: journalOf(t), Switches: Switches{LogQueries: true}}
	for query, want := range map[string]string{
		"query=shop": "journal: --utc --no-pager --output=short-precise --unit=shop.service\n",
		"query=shop&tailLines=7&boot=-1&pattern=a+b&sinceTime=2026-01-02T03:04:05%2B01:00&untilTime=2026-01-03T00:00:00Z": "journal: --utc --no-pager --output=short-precise --unit=shop.service" +
			" --since=2026-01-02 02:04:05 UTC --until=2026-01-03 00:00:00 UTC --lines=7 --boot=-1 --grep=a b\n",
		"query=bakery":                              "one\ntwo\nthree\n",
		"query=bakery&tailLines=2":                  "two\nthree\n",
		"query=bakery&tailLines=0":                  "",
		"query=bakery&pattern=^t":                   "two\nthree\n",
		"query=mill&query=bakery&tailLines=1":       "flour\nthree\n",
		"query=none":                                "\nerror: logs of none: neither the journal nor " + dir + " has them\n",
		"query=bakery&boot=0":                       "\nerror: logs of bakery: the journal does not have the service, and in a file sinceTime, untilTime and boot cannot be applied\n",
		"query=/deep/file.txt":                      "deep",
		`query=\deep\file.txt`:                      "deep",
		"query=/deep/none":                          "404 page not found\n",
		"query=/../../../../../../../../etc/passwd": "404 page not found\n",
	} {
		if w := ask(t, c, "GET", "/logs/?"+query); w.Body.String() != want {
			t.Errorf("%s: %d %q, want %q", query, w.Code, w.Body, want)
		}
	}
	if w := ask(t, c, "GET", "/logs/bakery.log"); w.Body.String() != "one\ntwo\nthree\n" {
		t.Errorf("a file without a query: %q", w.Body)
	}
	c.Switches.LogQueries = false
	if w := ask(t, c, "GET", "/logs/bakery.log?query=shop"); w.Body.String() != "one\ntwo\nthree\n" {
		t.Errorf("with queries off: %q", w.Body)
	}
}

func TestAJournalThatCannotBeReadIsTold(t *testing.T) {
	t.Setenv("BROKEN", "1")
	w := ask(t, Config{SystemLogs: t.TempDir(), Journalctl: journalOf(t), Switches: Switches{LogQueries: true}}, "GET", "/logs/?query=shop")
	if want := "error: logs of shop: exit status 1: no journal"; !strings.Contains(w.Body.String(), want) {
		t.Errorf("%q", w.Body)
	}
}

func TestFaultsOfAQuery(t *testing.T) {
	for query, want := range map[string]string{
		"tailLines=3":                 "query: Required value",
		"query=":                      "query: Invalid value",
		"query=a;rm":                  "letters, digits",
		"query=--output=json":         "letters, digits",
		"query=a&query=/b.log":        "services and files at the same time",
		"query=/a.log&query=/b.log":   "several files",
		"query=/a.log&tailLines=3":    "takes no other parameters",
		"query=a&tailLines=-1":        `tailLines: Invalid value: "-1"`,
		"query=a&tailLines=100001":    "0 to 100000",
		"query=a&boot=1":              "boot: Invalid value",
		"query=a&sinceTime=yesterday": "RFC 3339",
		"query=a&pattern=(":           "regular expression",
		"query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z": "must be after sinceTime",
	} {
		v, err := url.ParseQuery(strings.ReplaceAll(query, ";", "%3B"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseLogQuery(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
	if w := ask(t, Config{SystemLogs: t.TempDir(), Switches: Switches{LogQueries: true}}, "GET", "/logs/?query=a&boot=1"); w.Code != 406 {
		t.Errorf("the code is %d", w.Code)
	}
}

func FuzzLogQuery(f *testing.F) {
	f.Add("query=a&tailLines=3&pattern=x")
	f.Add("query=/a/b.log")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, err := parseLogQuery(v)
		if err != nil || q == nil {
			return
		}
		for _, name := range q.services {
			if strings.HasPrefix(name, "-") || strings.ContainsAny(name, "/\\ \x00") {
				t.Errorf("service %q", name)
			}
		}
	})
}
