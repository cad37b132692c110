package proxy

import (
	"cmp"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/network/nft"
)

// state holds all Services as this node treats them: their plans and the owner of each frontend. It
// writes elements into the ruleset; commit sends them. It is not safe for concurrent use.
type state struct {
	rules    *ruleset
	services map[types.NamespacedName]*service
	// owners maps each frontend to its Service. If two Services claim the same one, such as an
	// external IP, the first keeps it. contenders are planned again when the owner gives it up.
	owners     map[frontend]types.NamespacedName
	contenders map[frontend]map[types.NamespacedName]bool
	hairpins   map[netip.Addr]int
	lastID     uint32
	// stale collects the flows to check after the next commit.
	stale staleFlows
}

// service is the installed state of one Service.
type service struct {
	plan   servicePlan
	groups map[groupName]*group
	held   map[frontend]bool
}

// group is the installed state of one group.
type group struct {
	id      uint32
	slots   []backend
	members map[backend]uint32 // with session affinity
}

func newState(r *ruleset) *state {
	return &state{
		rules: r, services: map[types.NamespacedName]*service{}, owners: map[frontend]types.NamespacedName{},
		contenders: map[frontend]map[types.NamespacedName]bool{}, hairpins: map[netip.Addr]int{}, stale: staleFlows{},
	}
}

// apply installs the plan for the Service. It returns the Services that may now take over frontends
// that this one gave up.
func (s *state) apply(name types.NamespacedName, p servicePlan) (again []types.NamespacedName) {
	svc := s.services[name]
	if svc == nil {
		if len(p.frontends) == 0 {
			return nil
		}
		svc = &service{groups: map[groupName]*group{}, held: map[frontend]bool{}}
		s.services[name] = svc
	}
	s.applyGroups(svc, p)
	again = s.applyFrontends(name, svc, p)
	for _, ip := range p.local {
		s.hairpin(ip, +1)
	}
	for _, ip := range svc.plan.local {
		s.hairpin(ip, -1)
	}
	svc.plan = p
	if len(p.frontends) == 0 {
		delete(s.services, name)
	}
	return again
}

// applyGroups writes the elements of changed groups and deletes those of removed groups.
func (s *state) applyGroups(svc *service, p servicePlan) {
	for name, wanted := range p.groups {
		g := svc.groups[name]
		if g == nil || (g.members != nil) != p.affine[name] {
			if g != nil {
				s.setSlots(name, g, nil)
			}
			s.lastID++
			g = &group{id: s.lastID}
			if p.affine[name] {
				g.members = map[backend]uint32{}
			}
			svc.groups[name] = g
		}
		s.setSlots(name, g, stableSlots(g.slots, wanted))
	}
	for name, g := range svc.groups {
		if _, keep := p.groups[name]; !keep {
			s.setSlots(name, g, nil)
			delete(svc.groups, name)
		}
	}
}

// setSlots changes a group's elements from its old slots to the new ones.
func (s *state) setSlots(name groupName, g *group, slots []backend) {
	f := familyOf(name.v4)
	id := nft.Number(g.id)
	target := func(b backend) []byte { return nft.Key(b.addr.AsSlice(), nft.Port(b.port)) }
	if g.members != nil {
		for _, b := range slots {
			if g.members[b] == 0 {
				s.lastID++
				g.members[b] = s.lastID
				s.rules.put("members"+f.Name, nft.Key(id, nft.Number(s.lastID)), target(b))
			}
		}
		for b, member := range g.members {
			if !slices.Contains(slots, b) {
				s.rules.delete("members"+f.Name, nft.Key(id, nft.Number(member)))
				delete(g.members, b)
			}
		}
	}
	for i := range max(len(slots), len(g.slots)) {
		key := nft.Key(id, nft.Number(uint32(i)))
		switch {
		case i >= len(slots):
			s.rules.delete(g.slotMap(f), key)
		case i < len(g.slots) && g.slots[i] == slots[i] && g.members == nil:
		case g.members != nil:
			s.rules.put(g.slotMap(f), key, nft.Number(g.members[slots[i]]))
		default:
			s.rules.put(g.slotMap(f), key, target(slots[i]))
		}
	}
	g.slots = slots
}

func (g *group) slotMap(f nft.Family) string {
	if g.members != nil {
		return "slots" + f.Name
	}
	return "endpoints" + f.Name
}

// applyFrontends writes the frontends that the Service may have, and gives up those that it no
// longer wants.
func (s *state) applyFrontends(name types.NamespacedName, svc *service, p servicePlan) (again []types.NamespacedName) {
	for f, t := range p.frontends {
		if owner, taken := s.owners[f]; taken && owner != name {
			if s.contenders[f] == nil {
				s.contenders[f] = map[types.NamespacedName]bool{}
			}
			s.contenders[f][name] = true
			continue
		}
		s.owners[f] = name
		svc.held[f] = true
		s.rules.put(string(f.lookupMap)+f.family().Name, f.key(), s.entry(f, t, svc))
		s.noteFlows(f, t, svc)
	}
	for f := range svc.held {
		if _, keep := p.frontends[f]; keep {
			continue
		}
		delete(svc.held, f)
		delete(s.owners, f)
		s.rules.delete(string(f.lookupMap)+f.family().Name, f.key())
		s.noteFlows(f, treatment{refuse: true}, svc)
		for c := range s.contenders[f] {
			again = append(again, c)
		}
		delete(s.contenders, f)
	}
	slices.SortFunc(again, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return again
}

func (f frontend) family() nft.Family { return familyOf(f.addr.Is4()) }

func (f frontend) key() []byte {
	if f.lookupMap == nodePortsMap || f.lookupMap == externalNodePortsMap {
		return nft.Key([]byte{f.proto}, nft.Port(f.port))
	}
	return nft.Key(f.addr.AsSlice(), []byte{f.proto}, nft.Port(f.port))
}

// entry encodes a frontend's value: its class and its group.
func (s *state) entry(f frontend, t treatment, svc *service) []byte {
	c := class{lookupMap: f.lookupMap, v4: f.addr.Is4(), refuse: t.refuse, drop: t.drop}
	var id uint32
	if !t.refuse && !t.drop {
		g := svc.groups[t.group]
		id = g.id
		c.slots, c.masquerade, c.affinity, c.ranges = len(g.slots), t.masquerade, t.affinity, t.ranges
	} else {
		c.lookupMap = "" // all maps share this class
	}
	return nft.Key(nft.Number(s.rules.classNumber(c)), nft.Number(id))
}

// hairpin counts the Services that have the local address as a backend.
func (s *state) hairpin(ip netip.Addr, delta int) {
	f, key := nft.Of(ip), nft.Key(ip.AsSlice(), ip.AsSlice())
	s.hairpins[ip] += delta
	switch {
	case s.hairpins[ip] <= 0:
		delete(s.hairpins, ip)
		s.rules.delete("hairpin"+f.Name, key)
	case s.hairpins[ip] == delta:
		s.rules.put("hairpin"+f.Name, key, nil)
	}
}

// noteFlows records the backends that flows of a frontend may have from now on. It is called before
// the Service's plan is replaced. TCP attempts matter only if the frontend has lost a backend, and
// UDP flows also if it has a new one.
func (s *state) noteFlows(f frontend, t treatment, svc *service) {
	if f.proto != unix.IPPROTO_UDP && f.proto != unix.IPPROTO_TCP {
		return
	}
	allowed := map[backend]bool{}
	if g := svc.groups[t.group]; g != nil && !t.refuse && !t.drop {
		for _, b := range g.slots {
			allowed[b] = true
		}
	}
	gone := func(b backend) bool { return !allowed[b] }
	if f.proto == unix.IPPROTO_TCP && !slices.ContainsFunc(svc.plan.groups[svc.plan.frontends[f].group], gone) {
		return
	}
	// The inside and outside views may differ. A flow is valid if either allows it.
	key := flowKey{f.proto, f.addr, f.port}
	if s.stale[key] == nil {
		s.stale[key] = allowed
		return
	}
	for b := range allowed {
		s.stale[key][b] = true
	}
}
