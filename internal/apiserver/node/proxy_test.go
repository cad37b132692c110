package node

import "testing"

func TestProxiedPathIsCleaned(t *testing.T) {
	for given, want := range map[string]string{"/": "/", "/a/../b": "/b", "/../../x": "/x", "/a/": "/a/", "//x": "/x", "/a/./b//": "/a/b/", "/..": "/"} {
		if got := cleanPath(given); got != want {
			t.Errorf("%s became %s, want %s", given, got, want)
		}
	}
}
