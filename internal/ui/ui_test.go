package ui

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxBytes limits the size of all files of the page together, before compression.
const maxBytes = 300 << 10

// maxLines limits a module of the page.
const maxLines = 300

func get(t *testing.T, method, path string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func TestFilesAreServed(t *testing.T) {
	for path, want := range map[string]string{
		"/ui/": "text/html; charset=utf-8", "/ui/style.css": "text/css; charset=utf-8", "/ui/js/main.js": "text/javascript; charset=utf-8",
		"/ui/i18n/en.json": "application/json", "/ui/icon.svg": "image/svg+xml",
	} {
		plain, small := get(t, "GET", path), get(t, "GET", path, "Accept-Encoding", "br, gzip")
		if plain.StatusCode != http.StatusOK || plain.Header.Get("Content-Type") != want {
			t.Errorf("%s: %d, %s; want %s", path, plain.StatusCode, plain.Header.Get("Content-Type"), want)
		}
		z, err := gzip.NewReader(small.Body)
		if err != nil {
			t.Fatal(path, err)
		}
		one, _ := io.ReadAll(plain.Body)
		two, err := io.ReadAll(z)
		if err != nil || string(one) != string(two) || len(one) == 0 {
			t.Errorf("%s: the compressed file differs: %v", path, err)
		}
		if again := get(t, "GET", path, "If-None-Match", plain.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s with its ETag: %d", path, again.StatusCode)
		}
		if head := get(t, "HEAD", path); head.StatusCode != http.StatusOK || head.ContentLength != int64(len(one)) {
			t.Errorf("HEAD %s: %d, %d bytes", path, head.StatusCode, head.ContentLength)
		}
	}
	for path, want := range map[string]int{"/ui": http.StatusPermanentRedirect, "/ui/none": http.StatusNotFound, "/ui/js": http.StatusNotFound, "/ui/js/../index.html": http.StatusNotFound} {
		if got := get(t, "GET", path).StatusCode; got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	if got := get(t, "POST", "/ui/").StatusCode; got != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", got)
	}
}

func TestEveryAnswerLimitsWhatThePageMayDo(t *testing.T) {
	for _, path := range []string{"/ui/", "/ui/js/main.js", "/ui/none", "/ui"} {
		h := get(t, "GET", path).Header
		rules := map[string]string{}
		for rule := range strings.SplitSeq(h.Get("Content-Security-Policy"), "; ") {
			name, value, _ := strings.Cut(rule, " ")
			rules[name] = value
		}
		for name, want := range map[string]string{
			"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'", "img-src": "'self' data:",
			"frame-ancestors": "'none'", "base-uri": "'none'", "form-action": "'self'", "trusted-types": "'none'",
		} {
			if rules[name] != want {
				t.Errorf("%s: %s is %q, want %q", path, name, rules[name], want)
			}
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin"} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
}

// eachFile calls fn with the files of the page.
func eachFile(t *testing.T, fn func(name string, data []byte)) {
	t.Helper()
	err := fs.WalkDir(embedded, "files", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := embedded.ReadFile(name)
		fn(name, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestThePageIsSmall(t *testing.T) {
	total := 0
	eachFile(t, func(name string, data []byte) {
		total += len(data)
		if lines := strings.Count(string(data), "\n"); strings.HasSuffix(name, ".js") && lines > maxLines {
			t.Errorf("%s has %d lines, more than %d", name, lines, maxLines)
		}
	})
	if total == 0 || total > maxBytes {
		t.Errorf("the page has %d bytes, want at most %d", total, maxBytes)
	}
}

// The policy forbids these too; here the error names the file.
func TestThePageRunsOnlyItsOwnFiles(t *testing.T) {
	unsafe := regexp.MustCompile(`\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|new Function|setHTMLUnsafe|createContextualFragment)\b`)
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son\w+=|<script(?:[^>]*)>[^<]`)
	remote := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.-]+\.[a-z]{2,}`)
	eachFile(t, func(name string, data []byte) {
		text := string(data)
		if found := unsafe.FindString(text); found != "" {
			t.Errorf("%s uses %s: build elements by h, from texts", name, found)
		}
		if found := inline.FindString(text); strings.HasSuffix(name, ".html") && found != "" {
			t.Errorf("%s has an inline script or style: %s", name, found)
		}
		if found := remote.FindString(text); found != "" && found != "http://www.w3.org" {
			t.Errorf("%s names another host: %s", name, found)
		}
		if media[name[strings.LastIndex(name, "."):]] == "" {
			t.Errorf("%s has no media type", name)
		}
	})
}

// Without this the browser asks for the modules of each level after it has read the level before.
func TestAllModulesAreAskedForAtOnce(t *testing.T) {
	index, err := embedded.ReadFile("files/index.html")
	if err != nil {
		t.Fatal(err)
	}
	eachFile(t, func(name string, _ []byte) {
		module := strings.TrimPrefix(name, "files/")
		if strings.HasSuffix(name, ".js") && module != "js/main.js" && !strings.Contains(string(index), `<link rel="modulepreload" href="`+module+`">`) {
			t.Errorf("index.html does not preload %s", module)
		}
	})
}

func TestDictionariesAreComplete(t *testing.T) {
	dictionaries := map[string]map[string]string{}
	var code strings.Builder
	eachFile(t, func(name string, data []byte) {
		if strings.HasSuffix(name, ".js") {
			code.Write(data)
		}
		if strings.HasPrefix(name, "files/i18n/") {
			texts := map[string]string{}
			if err := json.Unmarshal(data, &texts); err != nil {
				t.Fatal(name, err)
			}
			dictionaries[name] = texts
		}
	})
	english := dictionaries["files/i18n/en.json"]
	if len(dictionaries) < 2 || len(english) == 0 {
		t.Fatal("there are no dictionaries")
	}
	values := regexp.MustCompile(`\{\w+\}`)
	for name, texts := range dictionaries {
		if a, b := slices.Sorted(maps.Keys(english)), slices.Sorted(maps.Keys(texts)); !slices.Equal(a, b) {
			t.Errorf("%s has other keys than the English dictionary: %v, %v", name, a, b)
		}
		for key, text := range texts {
			want, got := values.FindAllString(english[key], -1), values.FindAllString(text, -1)
			if slices.Sort(want); text == "" || !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("%s: %s has the values %v, in English %v", name, key, got, want)
			}
		}
	}
	for _, m := range regexp.MustCompile(`\bt\('([\w.]+)'`).FindAllStringSubmatch(code.String(), -1) {
		if english[m[1]] == "" {
			t.Errorf("the dictionaries lack %s", m[1])
		}
	}
}
