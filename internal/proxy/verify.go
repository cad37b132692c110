package proxy

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/knarr-project/knarr/internal/network/nft"
)

// verify compares the kernel's content with the desired one and describes the first difference, or
// returns "".
func (r *ruleset) verify() (string, error) {
	var own nft.Socket
	if err := own.Open(); err != nil {
		return "", err
	}
	defer own.Close()
	if different, err := own.Difference(r.rules); different != "" || err != nil {
		return different, err
	}
	c := own.Conn
	present := map[string]bool{}
	sets, err := c.GetSets(nft.Table())
	if err != nil {
		return "", fmt.Errorf("nftables: maps: %w", err)
	}
	for _, s := range sets {
		present[s.Name] = true
	}
	for name, want := range r.content {
		set := r.maps[name]
		if !present[set.Name] {
			return "map " + set.Name + " does not exist", nil
		}
		if set.Dynamic || set.DataType.Name == nftables.TypeVerdict.Name {
			continue
		}
		have, err := c.GetSetElements(set)
		if err != nil {
			return "", fmt.Errorf("nftables: map %s: %w", set.Name, err)
		}
		if len(have) != len(want) {
			return fmt.Sprintf("map %s has %d elements instead of %d", set.Name, len(have), len(want)), nil
		}
		for _, e := range have {
			if value, ok := want[string(e.Key)]; !ok || value != string(e.Val) {
				return fmt.Sprintf("map %s has %x: %x", set.Name, e.Key, e.Val), nil
			}
		}
	}
	return "", nil
}

// rulesChanged reports whether any program has changed any nftables rules since the last check. It
// reads the kernel's change counter, which costs one small message. A subscription would also
// report each of our own changes.
func (r *ruleset) rulesChanged() bool {
	generation, err := r.generations.Now()
	if err != nil || generation == r.seen {
		return false
	}
	r.seen = generation
	return true
}

// diagnose tries the required expressions one by one and names those that the kernel refuses. It
// uses a table that is never attached to packets.
func diagnose() error {
	f := nft.IPv4
	needs := []struct {
		module, what string
		exprs        []expr.Any
	}{
		{"nft_numgen", "numgen (random choice of an endpoint)", nft.Random(nft.R0, 2)},
		{"nft_fib_inet", "fib (node ports)", nft.DestIsLocal()},
		{"nft_ct", "ct status", nft.WasDNAT()},
		{"nft_nat", "dnat", nft.Rule(nft.Immediate(nft.R0, make([]byte, 4)), nft.Immediate(nft.R0+1, make([]byte, 2)), f.DNAT(nft.R0, nft.R0+1))},
		{"nft_reject_inet", "reject", nft.Refuse()},
	}
	var missing []string
	for _, n := range needs {
		if err := tryRule(n.exprs); err != nil {
			missing = append(missing, fmt.Sprintf("%s (module %s): %v", n.what, n.module, err))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the kernel's nftables lacks %q; load the modules named, or use a kernel that has them", missing)
}

func tryRule(exprs []expr.Any) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: nft.TableName + "-probe", Family: nftables.TableFamilyINet}
	chain := &nftables.Chain{Name: "probe", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest}
	c.AddTable(table)
	c.AddChain(chain)
	// A first rule that leaves the chain keeps packets away from the tried rule.
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: nft.Return()})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs})
	c.DelTable(table)
	return c.Flush()
}
