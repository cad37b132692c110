package dns

import (
	"net/netip"
	"slices"
	"strings"

	mdns "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// ttl of the cluster's own records in seconds: the maximum staleness of a client's copy.
const ttl = 5

// specVersion is the version of the Kubernetes DNS specification. It is served at dns-version.
const specVersion = "1.1.0"

// zone reads the records of the cluster domain from Views.
type zone struct {
	origin     string // "cluster.local."
	services   client.ViewOf[*corev1.Service]
	slices     client.ViewOf[*discoveryv1.EndpointSlice]
	namespaces client.ViewOf[*corev1.Namespace]
}

// Names of the indexes.
const (
	sliceByService  = "dns/service"
	sliceByAddress  = "dns/address"
	serviceByIP     = "dns/ip"
	dnsServiceName  = "kube-dns"
	systemNamespace = "kube-system"
)

func newZone(domain string, services client.ViewOf[*corev1.Service], slicesView client.ViewOf[*discoveryv1.EndpointSlice], namespaces client.ViewOf[*corev1.Namespace]) *zone {
	services.AddIndex(serviceByIP, func(s *corev1.Service) []string { return clusterIPs(s) })
	slicesView.AddIndex(sliceByService, func(s *discoveryv1.EndpointSlice) []string {
		if name := s.Labels[discoveryv1.LabelServiceName]; name != "" {
			return []string{s.Namespace + "/" + name}
		}
		return nil
	})
	slicesView.AddIndex(sliceByAddress, func(s *discoveryv1.EndpointSlice) []string {
		var out []string
		for i := range s.Endpoints {
			out = append(out, s.Endpoints[i].Addresses...)
		}
		return out
	})
	return &zone{origin: mdns.CanonicalName(domain), services: services, slices: slicesView, namespaces: namespaces}
}

// answer is the result for a name. rcode is NXDOMAIN if the name does not exist; otherwise records
// holds the records of the requested type, possibly none.
type answer struct {
	rcode   int
	records []mdns.RR
	extra   []mdns.RR
	// follow is the target of a CNAME that leads out of the zone.
	follow string
}

var nxdomain = answer{rcode: mdns.RcodeNameError}

// lookup answers for a lower-case name in the zone.
func (z *zone) lookup(name string, qtype uint16) answer {
	rest := strings.TrimSuffix(strings.TrimSuffix(name, z.origin), ".")
	if rest == "" {
		return z.apex(name, qtype)
	}
	labels := strings.Split(rest, ".")
	n := len(labels)
	switch labels[n-1] {
	case "svc":
		return z.lookupService(name, labels[:n-1], qtype)
	case "pod":
		return z.lookupPod(name, labels[:n-1], qtype)
	case "dns-version":
		if n == 1 {
			return answer{records: ofType(qtype, &mdns.TXT{Hdr: header(name, mdns.TypeTXT), Txt: []string{specVersion}})}
		}
	case "dns": // the name server's own name
		if n == 1 {
			return answer{}
		}
		if n == 2 && labels[0] == "ns" {
			if svc, ok := z.services.Get(systemNamespace, dnsServiceName); ok {
				return answer{records: addresses(name, clusterIPs(svc), qtype)}
			}
		}
	}
	return nxdomain
}

func (z *zone) apex(name string, qtype uint16) answer {
	return answer{records: ofType(qtype, z.soa(), &mdns.NS{Hdr: header(name, mdns.TypeNS), Ns: "ns.dns." + z.origin})}
}

// soa returns the record for negative answers. Its last field is their maximum cache time (RFC
// 2308).
func (z *zone) soa() mdns.RR {
	return &mdns.SOA{Hdr: header(z.origin, mdns.TypeSOA), Ns: "ns.dns." + z.origin, Mbox: "hostmaster." + z.origin,
		Serial: uint32(z.slices.Revision()), Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl}
}

// lookupService answers names below "svc". labels end with the namespace.
func (z *zone) lookupService(name string, labels []string, qtype uint16) answer {
	n := len(labels)
	if n == 0 {
		return answer{}
	}
	namespace := labels[n-1]
	if _, ok := z.namespaces.Get("", namespace); !ok {
		return nxdomain
	}
	if n == 1 {
		return answer{}
	}
	svc, ok := z.services.Get(namespace, labels[n-2])
	if !ok {
		return nxdomain
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		if n > 2 || svc.Spec.ExternalName == "" {
			return nxdomain
		}
		return z.externalName(name, svc, qtype)
	}
	switch n {
	case 2:
		return z.service(name, svc, qtype)
	case 3:
		if proto, isProto := strings.CutPrefix(labels[0], "_"); isProto {
			if len(z.ports(svc, "", proto)) > 0 {
				return answer{} // only names below it have records
			}
			return nxdomain
		}
		return z.endpoint(name, svc, labels[0], qtype)
	case 4:
		port, ok1 := strings.CutPrefix(labels[0], "_")
		proto, ok2 := strings.CutPrefix(labels[1], "_")
		if !ok1 || !ok2 {
			return nxdomain
		}
		return z.srv(name, svc, port, proto, qtype)
	}
	return nxdomain
}

// externalName answers with a CNAME, which is followed inside the zone.
func (z *zone) externalName(name string, svc *corev1.Service, qtype uint16) answer {
	target := mdns.CanonicalName(svc.Spec.ExternalName)
	cname := &mdns.CNAME{Hdr: header(name, mdns.TypeCNAME), Target: target}
	a := answer{records: []mdns.RR{cname}}
	if qtype == mdns.TypeCNAME || qtype == mdns.TypeANY {
		return a
	}
	if !mdns.IsSubDomain(z.origin, target) {
		a.follow = target
		return a
	}
	// Follow one step only: a chain of ExternalNames could be a cycle.
	if svc, ok := z.serviceAt(target); !ok || svc.Spec.Type != corev1.ServiceTypeExternalName {
		a.records = append(a.records, z.lookup(target, qtype).records...)
	}
	return a
}

// serviceAt returns the Service of the name.
func (z *zone) serviceAt(name string) (*corev1.Service, bool) {
	labels := strings.Split(strings.TrimSuffix(name, ".svc."+z.origin), ".")
	if len(labels) != 2 {
		return nil, false
	}
	return z.services.Get(labels[1], labels[0])
}

// service answers for the Service's own name.
func (z *zone) service(name string, svc *corev1.Service, qtype uint16) answer {
	if qtype == mdns.TypeSRV {
		return z.srv(name, svc, "", "", qtype)
	}
	if !headless(svc) {
		return answer{records: addresses(name, clusterIPs(svc), qtype)}
	}
	var ips []string
	z.eachEndpoint(svc, func(_ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) { ips = append(ips, e.Addresses[0]) })
	return answer{records: addresses(name, ips, qtype)}
}

// endpoint answers for one endpoint of a headless Service, given by its hostname or by its address
// with dashes.
func (z *zone) endpoint(name string, svc *corev1.Service, host string, qtype uint16) answer {
	var ips []string
	if headless(svc) {
		z.eachEndpoint(svc, func(_ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			if endpointHost(e) == host {
				ips = append(ips, e.Addresses[0])
			}
		})
	}
	if len(ips) == 0 {
		return nxdomain
	}
	return answer{records: addresses(name, ips, qtype)}
}

// servicePort is a port with the data for SRV records.
type servicePort struct {
	name, proto string
	port        uint16
}

// ports lists the Service's ports that match. An empty name or protocol matches all.
func (z *zone) ports(svc *corev1.Service, name, proto string) []servicePort {
	var out []servicePort
	for _, p := range svc.Spec.Ports {
		protocol := strings.ToLower(string(p.Protocol))
		if protocol == "" {
			protocol = "tcp"
		}
		if (name == "" || strings.EqualFold(p.Name, name)) && (proto == "" || protocol == proto) {
			out = append(out, servicePort{p.Name, protocol, uint16(p.Port)})
		}
	}
	return out
}

// srv answers with one record per port; for headless Services, per port and endpoint.
func (z *zone) srv(name string, svc *corev1.Service, port, proto string, qtype uint16) answer {
	ports := z.ports(svc, port, proto)
	self := svc.Name + "." + svc.Namespace + ".svc." + z.origin
	var a answer
	add := func(target string, number uint16, ips []string) {
		rr := &mdns.SRV{Hdr: header(name, mdns.TypeSRV), Priority: 0, Weight: 100, Port: number, Target: target}
		for _, have := range a.records {
			if mdns.IsDuplicate(have, rr) {
				return
			}
		}
		a.records = append(a.records, rr)
		a.extra = append(a.extra, addresses(target, ips, mdns.TypeANY)...)
	}
	exists := len(ports) > 0
	if !headless(svc) {
		for _, p := range ports {
			add(self, p.port, clusterIPs(svc))
		}
	} else {
		z.eachEndpoint(svc, func(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) {
			for _, p := range s.Ports {
				if p.Port == nil || port != "" && (p.Name == nil || !strings.EqualFold(*p.Name, port)) ||
					proto != "" && !strings.EqualFold(proto, sliceProtocol(p)) {
					continue
				}
				exists = true
				add(endpointHost(e)+"."+self, uint16(*p.Port), e.Addresses[:1])
			}
		})
	}
	if port != "" && !exists {
		return nxdomain
	}
	if qtype != mdns.TypeSRV && qtype != mdns.TypeANY {
		return answer{}
	}
	return a
}

func sliceProtocol(p discoveryv1.EndpointPort) string {
	if p.Protocol == nil {
		return "TCP"
	}
	return string(*p.Protocol)
}

// eachEndpoint visits the ready endpoints, each address once.
func (z *zone) eachEndpoint(svc *corev1.Service, visit func(*discoveryv1.EndpointSlice, *discoveryv1.Endpoint)) {
	type seenKey struct{ addr, host, slice string }
	seen := map[seenKey]bool{}
	for _, s := range z.slices.ByIndex(sliceByService, svc.Namespace+"/"+svc.Name) {
		if s.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if len(e.Addresses) == 0 || e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			key := seenKey{e.Addresses[0], endpointHost(e), portsOf(s)}
			if !seen[key] {
				seen[key] = true
				visit(s, e)
			}
		}
	}
}

// portsOf distinguishes slices with different ports, because an address may be in several slices.
func portsOf(s *discoveryv1.EndpointSlice) string {
	var b strings.Builder
	for _, p := range s.Ports {
		b.WriteString(p.String())
	}
	return b.String()
}

func endpointHost(e *discoveryv1.Endpoint) string {
	if e.Hostname != nil && *e.Hostname != "" {
		return *e.Hostname
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(e.Addresses[0])
}

// lookupPod answers "1-2-3-4.NAMESPACE.pod" for any address if the namespace exists.
func (z *zone) lookupPod(name string, labels []string, qtype uint16) answer {
	n := len(labels)
	if n == 0 {
		return answer{}
	}
	if _, ok := z.namespaces.Get("", labels[n-1]); !ok || n > 2 {
		return nxdomain
	}
	if n == 1 {
		return answer{}
	}
	ip, err := netip.ParseAddr(strings.ReplaceAll(labels[0], "-", "."))
	if err != nil {
		ip, err = netip.ParseAddr(strings.ReplaceAll(labels[0], "-", ":"))
	}
	if err != nil || ip.Zone() != "" {
		return nxdomain
	}
	return answer{records: addresses(name, []string{ip.String()}, qtype)}
}

// reverse answers a PTR query for the address of a Service or of an endpoint with its own name. It
// returns false for unknown addresses.
func (z *zone) reverse(name string, ip netip.Addr) ([]mdns.RR, bool) {
	ptr := func(target string) mdns.RR {
		return &mdns.PTR{Hdr: header(name, mdns.TypePTR), Ptr: target + ".svc." + z.origin}
	}
	var out []mdns.RR
	for _, svc := range z.services.ByIndex(serviceByIP, ip.String()) {
		out = append(out, ptr(svc.Name+"."+svc.Namespace))
	}
	if len(out) > 0 {
		return out, true
	}
	for _, s := range z.slices.ByIndex(sliceByAddress, ip.String()) {
		svc, ok := z.services.Get(s.Namespace, s.Labels[discoveryv1.LabelServiceName])
		if !ok || !headless(svc) {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if (e.Conditions.Ready == nil || *e.Conditions.Ready) && slices.Contains(e.Addresses, ip.String()) {
				out = append(out, ptr(endpointHost(e)+"."+svc.Name+"."+svc.Namespace))
			}
		}
	}
	return mdns.Dedup(out, nil), len(out) > 0
}

func headless(svc *corev1.Service) bool { return svc.Spec.ClusterIP == corev1.ClusterIPNone }

// clusterIPs is empty for headless Services and those without an address yet.
func clusterIPs(svc *corev1.Service) []string {
	switch {
	case headless(svc) || svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == "":
		return nil
	case len(svc.Spec.ClusterIPs) > 0:
		return svc.Spec.ClusterIPs
	}
	return []string{svc.Spec.ClusterIP}
}

func header(name string, rrtype uint16) mdns.RR_Header {
	return mdns.RR_Header{Name: name, Rrtype: rrtype, Class: mdns.ClassINET, Ttl: ttl}
}

// addresses returns A and AAAA records of the requested types.
func addresses(name string, ips []string, qtype uint16) []mdns.RR {
	var out []mdns.RR
	for _, text := range ips {
		ip, err := netip.ParseAddr(text)
		switch {
		case err != nil:
		case ip.Is4() && (qtype == mdns.TypeA || qtype == mdns.TypeANY):
			out = append(out, &mdns.A{Hdr: header(name, mdns.TypeA), A: ip.AsSlice()})
		case ip.Is6() && (qtype == mdns.TypeAAAA || qtype == mdns.TypeANY):
			out = append(out, &mdns.AAAA{Hdr: header(name, mdns.TypeAAAA), AAAA: ip.AsSlice()})
		}
	}
	return out
}

func ofType(qtype uint16, rrs ...mdns.RR) []mdns.RR {
	var out []mdns.RR
	for _, rr := range rrs {
		if qtype == mdns.TypeANY || rr.Header().Rrtype == qtype {
			out = append(out, rr)
		}
	}
	return out
}
