package doctor

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/config"
)

// authorityNotice is how long before its end a CA is remarked on. Replacing it takes minutes, but
// clients outside of the cluster must learn the new one.
const authorityNotice = 365 * 24 * time.Hour

// checkAuthorities looks at the CAs in the data folder. All certificates are renewed by themselves,
// but no longer than their CA lives.
func checkAuthorities(cfg *config.Config, now time.Time) Finding {
	const what = "authorities"
	entries, err := pki.Inventory(cfg.Path("pki"))
	if err != nil {
		return Finding{Degraded, what, err.Error(), "make " + cfg.Path("pki") + " readable"}
	}
	var first pki.Entry
	for _, e := range entries {
		if e.Kind == pki.KindCA && e.Signs && (first.Name == "" || e.Expires.Before(first.Expires)) {
			first = e
		}
	}
	if first.Name == "" {
		return Finding{} // the first start makes them
	}
	found := fmt.Sprintf("%s.crt is the first to expire, on %s", filepath.Join(cfg.Path("pki"), first.Name), first.Expires.UTC().Format(time.DateOnly))
	if first.Expires.Sub(now) < authorityNotice {
		return Finding{Degraded, what, found, "replace it while the cluster works: knarr certificates rotate-ca --ca " + authorityName(first.Name)}
	}
	return Finding{Fine, what, found, ""}
}

// authorityName is the name in `knarr certificates rotate-ca` of a CA's file.
func authorityName(file string) string {
	switch file {
	case "front-proxy-ca":
		return "front-proxy"
	case "etcd/ca":
		return "etcd"
	}
	return "kubernetes"
}
