package cli

import (
	"strings"
	"testing"
)

func TestATokenThatNeverExpiresIsRefused(t *testing.T) {
	for _, ttl := range []string{"0", "-1h", "30s", "8761h"} {
		_, err := typed(t, "token", "create", "--data-dir", t.TempDir(), "--ttl="+ttl)
		if err == nil || !strings.Contains(err.Error(), "between 1m and 8760h") {
			t.Errorf("--ttl=%s: %v", ttl, err)
		}
	}
	if _, err := typed(t, "token", "create", "--data-dir", t.TempDir(), "--server"); err == nil || strings.Contains(err.Error(), "--ttl") {
		t.Errorf("the default: %v", err)
	}
}

func TestATokenFileIsForOneSource(t *testing.T) {
	_, err := typed(t, "server", "--data-dir", t.TempDir(), "--join", "https://127.0.0.1:1", "--token", "a", "--token-file", "b")
	if err == nil || !strings.Contains(err.Error(), "only one of --token and --token-file") {
		t.Errorf("got %v", err)
	}
}
