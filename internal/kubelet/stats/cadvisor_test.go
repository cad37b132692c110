package stats

import (
	"compress/gzip"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

const netDev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0:    2000      20    1    2    0     0          0         0     3000      30    3    4    0     0       0          0
`

func TestInterfacesAreReadFromTheKernel(t *testing.T) {
	links := interfaces(netDev)
	if len(links) != 2 || links[1].name != "eth0" || links[1].counts[0] != 2000 || links[1].counts[3] != 2 || links[1].counts[8] != 3000 || links[1].counts[11] != 4 {
		t.Errorf("%+v", links)
	}
}

func FuzzInterfaces(f *testing.F) {
	f.Add(netDev)
	f.Add(":")
	f.Fuzz(func(_ *testing.T, content string) { interfaces(content) })
}

func TestLabelsAreEscaped(t *testing.T) {
	p := &page{}
	p.add("m", "gauge", "help", 1, 0, "l", "a\"b\\c\nd")
	w := httptest.NewRecorder()
	p.write(w, httptest.NewRequest("GET", "/", nil))
	if !strings.Contains(w.Body.String(), `m{l="a\"b\\c\nd"} 1`) {
		t.Error(w.Body.String())
	}
}

func TestPagesAreCompressedForClientsThatAcceptIt(t *testing.T) {
	for header, want := range map[string]string{
		"": "", "gzip": "gzip", "deflate, gzip;q=0.5": "gzip", "gzip;q=0": "", "gzip;q=x": "", "identity": "", "br,  gzip": "gzip",
	} {
		p := &page{}
		p.add("m", "gauge", "help", 1, 0)
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept-Encoding", header)
		w := httptest.NewRecorder()
		p.write(w, r)
		if got := w.Header().Get("Content-Encoding"); got != want {
			t.Errorf("Accept-Encoding: %q is answered with %q", header, got)
		}
		var text io.Reader = w.Body
		if want == "gzip" {
			var err error
			if text, err = gzip.NewReader(w.Body); err != nil {
				t.Fatal(err)
			}
		}
		if body, err := io.ReadAll(text); err != nil || string(body) != "# HELP m help\n# TYPE m gauge\nm 1\n" {
			t.Errorf("Accept-Encoding: %q: %q %v", header, body, err)
		}
	}
}
