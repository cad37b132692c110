package member

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRequestsAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":"b","peerURL":"https://10.0.0.5:2380","id":"ff"}`: "",
		`{"name":"b.example"}`:                             "",
		`{"name":"b","peerURL":"https://[2001:db8::1]:1"}`: "",
		``:                                      "not usable",
		`[]`:                                    "not usable",
		`{"name":"b"} {}`:                       "more than one",
		`{"name":"b","x":1}`:                    "unknown field",
		`{"name":""}`:                           "name:",
		`{"name":"../b"}`:                       "name:",
		`{"name":"B"}`:                          "name:",
		`{"name":"b\u0000"}`:                    "name:",
		`{"name":"b","id":"0"}`:                 "id:",
		`{"name":"b","id":"11112222333344445"}`: "id:",
		`{"name":"b","peerURL":"http://10.0.0.5:2380"}`:        "peerURL:",
		`{"name":"b","peerURL":"https://10.0.0.5"}`:            "peerURL:",
		`{"name":"b","peerURL":"https://10.0.0.5:2380/x"}`:     "peerURL:",
		`{"name":"b","peerURL":"https://me@10.0.0.5:2380"}`:    "peerURL:",
		`{"name":"` + strings.Repeat("b", 300) + `"}`:          "name:",
		`{"name":"b","peerURL":"https://10.0.0.5:2380,https"}`: "peerURL:",
	} {
		_, err := ParseRequest([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestServersAreAtMostOneMinorVersionApart(t *testing.T) {
	for version, want := range map[string]string{"v1.36.3": "", "v1.35.0": "", "v1.37.1-alpha": "", "v1.34.9": "one minor", "v1.38.0": "one minor", "": "a version such as", "v2.36.0": "a version such as", "v1.9999.0": "a version such as"} {
		_, err := ParseJoinRequest(fmt.Appendf(nil, `{"name":"b","kubernetes":%q}`, version))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", version, err, want)
		}
	}
}

func TestAnAnswerHasAllKeysAndNoOthers(t *testing.T) {
	whole := func() JoinAnswer {
		a := JoinAnswer{Embedded: true, Files: map[string][]byte{}}
		for _, name := range append(append([]string{EncryptionFile}, SharedFiles...), PeerFiles...) {
			a.Files[name] = []byte("x")
		}
		return a
	}
	if err := whole().Check(); err != nil {
		t.Error(err)
	}
	missing, foreign, outside := whole(), whole(), whole()
	delete(missing.Files, "etcd/ca.key")
	foreign.Files["../../etc/passwd"] = []byte("x")
	outside.Embedded = false
	for _, a := range []JoinAnswer{missing, foreign, outside, {}} {
		if err := a.Check(); err == nil {
			t.Errorf("%d files are accepted", len(a.Files))
		}
	}
}

func TestErrorsOfAServerKeepItsText(t *testing.T) {
	bodies := map[int]string{401: `{"kind":"Status","message":"Unauthorized"}`, 409: "b runs\n", 500: ""}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := 200
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, bodies[status])
	}))
	defer server.Close()
	for status, want := range map[int]string{401: "Unauthorized", 409: "b runs", 500: "the server answers 500"} {
		err := Ask(t.Context(), server.Client(), http.MethodPost, fmt.Sprint(server.URL, "/", status), Request{Name: "b"}, &List{})
		if StatusOf(err) != status || err.Error() != want {
			t.Errorf("%d: %v", status, err)
		}
	}
	if err := Ask(t.Context(), server.Client(), http.MethodGet, server.URL+"/200", nil, &List{}); err == nil || StatusOf(err) != 0 {
		t.Errorf("an empty answer: %v", err)
	}
}

func FuzzRequests(f *testing.F) {
	f.Add([]byte(`{"name":"b","peerURL":"https://10.0.0.5:2380","id":"ff"}`))
	f.Add([]byte(`{"name":"b","kubernetes":"v1.36.3"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := ParseRequest(data); err == nil {
			again, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := ParseRequest(again); err != nil || back != r {
				t.Errorf("%+v becomes %+v, %v", r, back, err)
			}
			if strings.ContainsAny(r.Name, "/\\\x00 ") || len(r.Name) > 253 {
				t.Errorf("name %q", r.Name)
			}
		}
		if r, err := ParseJoinRequest(data); err == nil && (strings.ContainsAny(r.Name, "/\\\x00 ") || len(r.Name) > 253) {
			t.Errorf("name %q", r.Name)
		}
	})
}
