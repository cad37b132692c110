package proxy

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/network/nft"
)

// queueClass queues the class's chain and the rule that leads to it.
func (r *ruleset) queueClass(c class) error {
	f, number := familyOf(c.v4), r.classes[c]
	target := chainRefuse
	switch {
	case c.drop:
		target = chainDrop
	case !c.refuse:
		target = fmt.Sprintf("%sclass-%d-%s%s-%d", chainPrefix, number, c.lookupMap, f.Name, c.slots)
		r.chain(target)
		r.queueSourceRanges(f, c, target)
		r.queueMasquerade(f, c, target)
		if c.affinity > 0 {
			r.queueAffinePick(f, c, target)
		} else {
			r.queuePick(f, c, target)
		}
	}
	verdict := &expr.Verdict{Kind: expr.VerdictGoto, Chain: target}
	return r.Conn.SetAddElements(r.maps["classes"+f.Name], []nftables.SetElement{{Key: nft.Number(number), VerdictData: verdict}})
}

// queueSourceRanges queues the rules that drop clients outside of loadBalancerSourceRanges.
func (r *ruleset) queueSourceRanges(f nft.Family, c class, chain string) {
	if c.ranges == "" {
		return
	}
	allowed := chain + "-allowed"
	r.chain(allowed)
	// The chain "allowed" returns for each range and then drops. A chain that is jumped to returns
	// into ours.
	for text := range strings.SplitSeq(strings.TrimSuffix(c.ranges, ","), ",") {
		if p, err := netip.ParsePrefix(text); err == nil {
			r.rule(allowed, f.SourceIn(p), nft.Return())
		}
	}
	r.rule(allowed, nft.Drop())
	r.rule(chain, nft.Jump(allowed))
}

func (r *ruleset) queueMasquerade(f nft.Family, c class, chain string) {
	switch c.masquerade {
	case masqueradeAll:
		r.rule(chain, nft.SetMark(masqueradeMark))
	case masqueradeOutside:
		var stranger []expr.Any
		for _, p := range r.clusterCIDRs {
			if nft.Of(p.Addr()) == f {
				stranger = nft.Rule(stranger, f.SourceNotIn(p))
			}
		}
		if stranger != nil { // without pod ranges, outside clients cannot be recognized
			r.rule(chain, stranger, nft.SetMark(masqueradeMark))
		}
	}
}

// queuePick queues: dnat to the endpoint at a random slot of the frontend's group.
func (r *ruleset) queuePick(f nft.Family, c class, chain string) {
	load, entry := r.loadEntry(c.lookupMap, f)
	group, slot := entry+1, entry+2
	r.rule(chain, load, nft.Random(slot, uint32(c.slots)), nft.Map(r.maps["endpoints"+f.Name], group, nft.R0), f.DNAT(nft.R0, nft.R0+f.AddrRegs))
}

// queueAffinePick queues two rules. The first sends the connection to the client's previous member
// if that still exists. The second picks a random member and remembers it. The first rule does not
// find a removed member, so remembered clients need no clean-up when endpoints are removed.
func (r *ruleset) queueAffinePick(f nft.Family, c class, chain string) {
	affinity, slots, members := r.maps["affinity"+f.Name], r.maps["slots"+f.Name], r.maps["members"+f.Name]
	load, entry := r.loadEntry(c.lookupMap, f)
	// client . group . member in consecutive registers: two keys that overlap in the group.
	group, member := entry+1, entry+2
	client := group - f.AddrRegs
	addr := member + 1
	timeout := time.Duration(c.affinity) * time.Second
	remember := func(op uint32) []expr.Any {
		// The kernel requires a data register for maps, even for deletion.
		d := &expr.Dynset{SrcRegKey: client, SrcRegData: member, SetName: affinity.Name, SetID: affinity.ID, Operation: op}
		if op != dynsetDelete {
			d.Timeout = timeout
		}
		return []expr.Any{d}
	}
	found := nft.Rule(nft.Map(members, group, addr))
	to := f.DNAT(addr, addr+f.AddrRegs)
	r.rule(chain, load, f.SourceAddr(client), nft.Map(affinity, client, member), found, remember(unix.NFT_DYNSET_OP_UPDATE), to)
	// An update does not change the value of an existing entry, so delete it first.
	r.rule(chain, load, nft.Random(member, uint32(c.slots)), nft.Map(slots, group, member), found,
		f.SourceAddr(client), remember(dynsetDelete), remember(unix.NFT_DYNSET_OP_UPDATE), to)
}

// dynsetDelete is NFT_DYNSET_OP_DELETE.
const dynsetDelete = 2
