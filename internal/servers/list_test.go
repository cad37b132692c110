package servers

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var day = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func TestTheListRemembersServersThatAreGone(t *testing.T) {
	l := List{}.learn([]string{"10.0.0.2:6443", "10.0.0.1:6443", "10.0.0.2:6443", "nonsense"}, day)
	if got := l.Living(); !slices.Equal(got, []string{"10.0.0.1:6443", "10.0.0.2:6443"}) {
		t.Fatalf("living: %v", got)
	}
	l = l.learn([]string{"10.0.0.3:6443"}, day.Add(time.Hour))
	if got := l.Living(); !slices.Equal(got, []string{"10.0.0.3:6443"}) {
		t.Errorf("living: %v", got)
	}
	if len(l.Servers) != 3 || l.Servers[1].Living || !l.Servers[1].Seen.Equal(day) {
		t.Errorf("past servers: %+v", l.Servers)
	}
	if next := l.learn(nil, day.Add(2*time.Hour)); !reflect.DeepEqual(next, l) {
		t.Errorf("no endpoints changed the list: %+v", next)
	}
	if next := l.learn([]string{"10.0.0.3:6443"}, day.Add(remembered+time.Minute)); len(next.Servers) != 1 {
		t.Errorf("old servers are not forgotten: %+v", next.Servers)
	}
}

func TestTheListIsBounded(t *testing.T) {
	var l List
	for i := range 3 * maxServers {
		l = l.learn([]string{fmt.Sprintf("10.0.0.%d:6443", i+1)}, day.Add(time.Duration(i)*time.Minute))
	}
	if len(l.Servers) != maxServers || !l.has(fmt.Sprintf("10.0.0.%d:6443", 3*maxServers)) || l.has("10.0.0.1:6443") {
		t.Errorf("%d servers: %+v", len(l.Servers), l.Servers)
	}
	data, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseList(data); err != nil {
		t.Error(err)
	}
}

func TestAStoredListIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	if l, err := Load(path); err != nil || len(l.Servers) != 0 {
		t.Errorf("without a file: %+v, %v", l, err)
	}
	want := List{}.learn([]string{"10.0.0.1:6443", "[2001:db8::1]:6443"}, day)
	if err := want.Store(path); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(path); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode: %v, %v", info, err)
	}
}

func TestAnUnusableListIsRefused(t *testing.T) {
	entry := func(address string) string { return fmt.Sprintf(`{"servers":[{"address":%q}]}`, address) }
	for name, text := range map[string]string{
		"no JSON":                 "x",
		"an unknown field":        `{"servers":[],"more":1}`,
		"text after it":           `{"servers":[]} {}`,
		"no port":                 entry("10.0.0.1"),
		"port 0":                  entry("10.0.0.1:0"),
		"a port with a zero":      entry("10.0.0.1:06443"),
		"no host":                 entry(":6443"),
		"the unspecified address": entry("0.0.0.0:6443"),
		"a mapped address":        entry("[::ffff:10.0.0.1]:6443"),
		"a path":                  entry("host/path:6443"),
		"a user":                  entry("user@host:6443"),
		"the same twice":          `{"servers":[{"address":"a:1"},{"address":"a:1"}]}`,
		"too many":                `{"servers":[` + strings.Repeat(`{"address":"a:1"},`, maxServers) + `{"address":"b:1"}]}`,
		"too long":                `{"servers":[]` + strings.Repeat(" ", maxFile) + `}`,
	} {
		if l, err := ParseList([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

func FuzzParseList(f *testing.F) {
	for _, seed := range []string{
		`{"servers":[{"address":"10.0.0.1:6443","living":true,"seen":"2026-05-04T03:02:01Z"}]}`,
		`{"servers":[{"address":"[2001:db8::1]:6443"},{"address":"server.example:7443"}]}`, `{}`, `[]`, `{"servers":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := ParseList(data)
		if err != nil {
			return
		}
		if len(l.Servers) > maxServers {
			t.Fatalf("%d servers", len(l.Servers))
		}
		for _, e := range l.Servers {
			if err := CheckAddress(e.Address); err != nil {
				t.Fatal(err)
			}
		}
		out, err := json.Marshal(l)
		if err != nil {
			t.Skip(err) // a year that JSON cannot express
		}
		if again, err := ParseList(out); err != nil || !again.same(l) {
			t.Fatalf("%s: %+v, %v", out, again, err)
		}
		if next := l.learn([]string{"192.0.2.1:6443"}, day); len(next.Servers) > maxServers || !next.has("192.0.2.1:6443") {
			t.Fatalf("learned: %+v", next)
		}
	})
}
