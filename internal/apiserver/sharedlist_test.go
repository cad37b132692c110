package apiserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

func TestListsOfAllObjectsShareItemsUntilAChange(t *testing.T) {
	s := newTestServer(t)
	c := s.Client(auth.Component("tester"))
	add := func(name string) {
		t.Helper()
		if _, err := client.Create(context.Background(), c, configMap(name)); err != nil {
			t.Fatal(err)
		}
	}
	list := func(query string) corev1.ConfigMapList {
		t.Helper()
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/configmaps"+query, nil))
		var out corev1.ConfigMapList
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return out
	}
	add("one")
	add("two")
	for range 2 {
		for query, want := range map[string]int{"": 2, "?limit=1": 1, "?fieldSelector=metadata.name%3Dtwo": 1, "?resourceVersion=0": 2} {
			if got := list(query); len(got.Items) != want || got.ResourceVersion == "" {
				t.Errorf("%q: %d items at %q, want %d", query, len(got.Items), got.ResourceVersion, want)
			}
		}
	}
	before := list("").ResourceVersion
	add("three")
	if got := list(""); len(got.Items) != 3 || got.ResourceVersion == before {
		t.Errorf("after a change: %d items at %s (before: %s)", len(got.Items), got.ResourceVersion, before)
	}
}

func TestLargeListIsTheSameHoweverItIsBuilt(t *testing.T) {
	s := newTestServer(t)
	c := s.Client(auth.Component("tester"))
	for i := range 40 {
		obj := configMap(fmt.Sprintf("n-%02d", i))
		obj.Data["padding"] = strings.Repeat("x", 10<<10)
		if _, err := client.Create(t.Context(), c, obj); err != nil {
			t.Fatal(err)
		}
	}
	for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		for _, encoding := range []string{"", "gzip"} {
			var first []byte
			for i := range 3 { // from the entries, built, shared
				w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, defaultMaps, nil)
				r.Header.Set("Accept", accept)
				r.Header.Set("Accept-Encoding", encoding)
				s.Handler().ServeHTTP(w, r)
				body := w.Body.Bytes()
				if w.Header().Get("Content-Encoding") != encoding {
					t.Fatalf("%s: encoding %q", accept, w.Header().Get("Content-Encoding"))
				}
				if encoding == "gzip" {
					unzip, err := gzip.NewReader(w.Body)
					if err != nil {
						t.Fatal(err)
					}
					if body, err = io.ReadAll(unzip); err != nil {
						t.Fatal(err)
					}
				} else if w.Header().Get("Content-Length") != strconv.Itoa(len(body)) {
					t.Errorf("%s: %d bytes, announced %s", accept, len(body), w.Header().Get("Content-Length"))
				}
				if i == 0 {
					first = body
				}
				if !bytes.Equal(body, first) {
					t.Errorf("%s: list %d is another one", accept, i)
				}
				list, _, err := wire.WireSerializer.Decode(body, nil, nil)
				if accept == "application/json" {
					list = &corev1.ConfigMapList{}
					err = json.Unmarshal(body, list)
				}
				if err != nil || len(list.(*corev1.ConfigMapList).Items) != 40 {
					t.Errorf("%s: %v", accept, err)
				}
			}
		}
	}
}

var listRevision = regexp.MustCompile(`^(.{0,80}"metadata":\{"resourceVersion":")\d+`)

func TestLargeListIsTheSameOverEveryProtocol(t *testing.T) {
	onEachTransport(t, func(t *testing.T, s *Server) {
		c := s.Client(auth.Component("tester"))
		for i := range 30 {
			obj := configMap(fmt.Sprintf("n-%02d", i))
			obj.Data["padding"] = strings.Repeat("x", 10<<10)
			mustCreate(t, c, obj)
		}
		url, one, two := secure(t, s)
		var want []byte
		for range 3 { // from the entries, built, shared
			for _, client := range []*http.Client{one, two} {
				for _, encoding := range []string{"identity", "gzip"} {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+defaultMaps, nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("Accept-Encoding", encoding)
					resp, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					var body io.Reader = resp.Body
					if resp.Header.Get("Content-Encoding") == "gzip" {
						if body, err = gzip.NewReader(body); err != nil {
							t.Fatal(err)
						}
					}
					got, err := io.ReadAll(body)
					_ = resp.Body.Close()
					if err != nil {
						t.Fatalf("%s %s: %v", resp.Proto, encoding, err)
					}
					// The server still writes objects of other kinds, and the list has the newest
					// revision.
					got = listRevision.ReplaceAll(got, []byte("$1"))
					if want == nil {
						want = got
					}
					if !bytes.Equal(got, want) {
						t.Errorf("%s %s: %d bytes, the first had %d", resp.Proto, encoding, len(got), len(want))
					}
				}
			}
		}
	})
}
