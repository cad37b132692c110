package proxy

import (
	"reflect"
	"testing"

	"github.com/google/nftables"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/network/nft"
)

func deleteTable() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.DelTable(nft.Table())
	return c.Flush()
}

// upToDate reports whether the kernel has the plan of the Service in namespace default. It holds
// the state's lock, which the loop holds from planning to the end of the commit.
func upToDate(p *Proxy, name string) bool {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	key := types.NamespacedName{Namespace: "default", Name: name}
	if p.services.View == nil || !p.state.rules.ready {
		return false
	}
	svc, _ := p.services.Get("default", name)
	want := plan(svc, p.slices.ByIndex(sliceIndex, key.String()), p.me)
	have := p.state.services[key]
	if have == nil {
		return len(want.frontends) == 0
	}
	return reflect.DeepEqual(have.plan, want)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
