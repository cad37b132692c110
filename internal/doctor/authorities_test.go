package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/config"
)

func TestAnAuthorityNearItsEndIsRemarkedOn(t *testing.T) {
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	now := time.Now()
	if f := checkAuthorities(&cfg, now); f.What != "" {
		t.Errorf("before the first start: %+v", f)
	}
	if _, err := pki.Open(pki.Config{Dir: cfg.Path("pki")}); err != nil {
		t.Fatal(err)
	}
	if f := checkAuthorities(&cfg, now); f.Level != Fine {
		t.Errorf("a new one: %+v", f)
	}
	if f := checkAuthorities(&cfg, now.AddDate(9, 1, 0)); f.Level != Degraded || !strings.Contains(f.Remedy, "knarr certificates rotate-ca") {
		t.Errorf("eleven months before its end: %+v", f)
	}
}
