package nft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
)

// Socket is a connection to the kernel that is kept open; see Generations.
type Socket struct{ Conn *nftables.Conn }

// Open opens the connection unless it is open.
func (s *Socket) Open() (err error) {
	if s.Conn == nil {
		if s.Conn, err = Open(); err != nil {
			s.Conn = nil
			return fmt.Errorf("nftables: %w", err)
		}
	}
	return nil
}

// Close closes the connection; the rules stay.
func (s *Socket) Close() {
	if s.Conn != nil {
		_ = s.Conn.CloseLasting()
		s.Conn = nil
	}
}

// Installed are chains and sets of knarr's table, also those of an earlier process.
type Installed struct {
	Chains []*nftables.Chain
	Sets   []*nftables.Set
}

// Find lists the chains and sets whose names have the prefixes.
func (s *Socket) Find(chainPrefix, setPrefix string) (found Installed, err error) {
	tables, err := s.Conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return found, fmt.Errorf("nftables: tables: %w", err)
	}
	if !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == TableName }) {
		return found, nil // listing its sets would fail
	}
	chains, err := s.Conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return found, fmt.Errorf("nftables: chains: %w", err)
	}
	for _, c := range chains {
		if c.Table.Name == TableName && strings.HasPrefix(c.Name, chainPrefix) {
			found.Chains = append(found.Chains, &nftables.Chain{Name: c.Name, Table: Table()})
		}
	}
	sets, err := s.Conn.GetSets(Table())
	if err != nil {
		return found, fmt.Errorf("nftables: sets: %w", err)
	}
	for _, set := range sets {
		if strings.HasPrefix(set.Name, setPrefix) {
			found.Sets = append(found.Sets, &nftables.Set{Name: set.Name, Table: Table()})
		}
	}
	return found, nil
}

// Delete queues the deletion of chains and sets, which may refer to each other. Nothing else may
// refer to them when the transaction ends.
func (s *Socket) Delete(l Installed) {
	for _, c := range l.Chains {
		s.Conn.FlushChain(c)
	}
	for _, set := range l.Sets {
		s.Conn.FlushSet(set)
		s.Conn.DelSet(set)
	}
	for _, c := range l.Chains {
		s.Conn.DelChain(c)
	}
}

// Difference describes the first chain whose number of rules differs from the expected one; "" if
// there is none. A chain that does not exist has no rules.
func (s *Socket) Difference(rules map[string]int) (string, error) {
	for name, want := range rules {
		have, err := s.Conn.GetRules(Table(), &nftables.Chain{Name: name, Table: Table()})
		if err != nil {
			return "", fmt.Errorf("nftables: chain %s: %w", name, err)
		}
		if len(have) != want {
			return fmt.Sprintf("chain %s has %d rules instead of %d", name, len(have), want), nil
		}
	}
	return "", nil
}

// Intact reports whether the chains have the expected numbers of rules, as far as the kernel tells.
func (s *Socket) Intact(rules map[string]int) bool {
	different, err := s.Difference(rules)
	return different == "" && err == nil
}
