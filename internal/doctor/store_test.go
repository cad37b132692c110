package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/config"
)

func TestJudgeSyncs(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		took  []time.Duration
		level Level
	}{
		"fast":               {[]time.Duration{ms, 2 * ms, ms}, Fine},
		"one slow sync":      {[]time.Duration{ms, 300 * ms, ms}, Fine},
		"mostly slow":        {[]time.Duration{150 * ms, 300 * ms, ms}, Degraded},
		"one that was stuck": {[]time.Duration{ms, ms, ms, 1200 * ms}, Degraded},
	} {
		f := judgeSyncs("/dev/sda1 (ext4, mounted on /)", c.took)
		if f.Level != c.level || !strings.HasPrefix(f.Found, "/dev/sda1 (ext4, mounted on /) syncs a write in ") {
			t.Errorf("%s: got %+v, want %s", name, f, c.level)
		}
	}
}

func TestCheckStoreAndItsDisk(t *testing.T) {
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	if f := checkStore(&cfg); f.Level != Fine || !strings.Contains(f.Found, "none yet") {
		t.Errorf("no store: %+v", f)
	}
	if f := checkStoreDisk(&cfg); f.Level == Broken || !strings.Contains(f.Found, "syncs a write in") {
		t.Errorf("disk: %+v", f)
	}
	if entries, err := os.ReadDir(cfg.DataDir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	db := filepath.Join(cfg.DataDir, "etcd", "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(db, []byte(strings.Repeat("damaged", 10000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := checkStore(&cfg); f.Level != Broken || !strings.Contains(f.Found, db) {
		t.Errorf("a damaged store: %+v", f)
	}
	cfg.StoreEndpoints = []string{"https://192.0.2.1:2379"}
	if f := checkStore(&cfg); f.Level != Fine {
		t.Errorf("an outside etcd: %+v", f)
	}
}
