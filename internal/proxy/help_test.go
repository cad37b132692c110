package proxy

import (
	"os"

	"github.com/google/nftables"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/network/nft"
)

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0) }

func deleteTable() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.DelTable(nft.Table())
	return c.Flush()
}

// synced counts the endpoints of a default Service's largest group. Racy against the proxy's goroutine by
// design of the caller, which asks until it is quiet.
func synced(p *Proxy, name string) int {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	n := 0
	if svc := p.state.services[types.NamespacedName{Namespace: "default", Name: name}]; svc != nil {
		for _, g := range svc.groups {
			n = max(n, len(g.slots))
		}
	}
	return n
}
