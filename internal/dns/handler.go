package dns

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	mdns "github.com/miekg/dns"
)

// udpSize is the maximum size of UDP messages that we send or request. Messages of this size pass
// every network unfragmented (DNS Flag Day 2020).
const udpSize = 1232

// handler answers queries. It is safe for concurrent use.
type handler struct {
	zone      *zone
	forwarder *forwarder
	metrics   *metrics
	// clusterRanges contain the pods' and Services' addresses. Their reverse names are never
	// forwarded.
	clusterRanges []netip.Prefix
}

// ServeDNS implements the dns library's interface.
func (h *handler) ServeDNS(w mdns.ResponseWriter, req *mdns.Msg) {
	start := time.Now()
	_, tcp := w.RemoteAddr().(*net.TCPAddr)
	reply := h.reply(context.Background(), req, tcp)
	h.metrics.observe(req, reply, tcp, time.Since(start))
	if err := w.WriteMsg(reply); err != nil {
		slog.Debug("DNS answer was not sent", "client", w.RemoteAddr(), "error", err)
	}
}

// reply answers any message within the client's message size.
func (h *handler) reply(ctx context.Context, req *mdns.Msg, tcp bool) *mdns.Msg {
	reply := h.resolve(ctx, req, tcp)
	reply.Id = req.Id
	reply.Compress = true
	size := mdns.MinMsgSize
	if opt := req.IsEdns0(); opt != nil {
		size = min(max(int(opt.UDPSize()), mdns.MinMsgSize), udpSize)
		withEDNS(reply, opt)
	} else {
		withoutEDNS(reply)
	}
	if tcp {
		size = mdns.MaxMsgSize
	}
	reply.Truncate(size)
	return reply
}

// withEDNS gives the reply exactly one OPT record, our own.
func withEDNS(reply *mdns.Msg, asked *mdns.OPT) {
	withoutEDNS(reply)
	reply.SetEdns0(udpSize, asked.Do())
	if asked.Version() != 0 {
		reply.Rcode = mdns.RcodeBadVers
		reply.Answer, reply.Ns = nil, nil
	}
}

func withoutEDNS(reply *mdns.Msg) {
	extra := reply.Extra[:0]
	for _, rr := range reply.Extra {
		if rr.Header().Rrtype != mdns.TypeOPT {
			extra = append(extra, rr)
		}
	}
	reply.Extra = extra
	if reply.Rcode > 15 { // such codes need EDNS
		reply.Rcode = mdns.RcodeServerFailure
	}
}

func (h *handler) resolve(ctx context.Context, req *mdns.Msg, tcp bool) *mdns.Msg {
	reply := new(mdns.Msg).SetReply(req)
	reply.RecursionAvailable = true
	switch {
	case req.Opcode != mdns.OpcodeQuery:
		reply.Rcode = mdns.RcodeNotImplemented
		return reply
	case len(req.Question) != 1:
		reply.Rcode = mdns.RcodeFormatError
		return reply
	}
	q := req.Question[0]
	if q.Qclass != mdns.ClassINET || q.Qtype == mdns.TypeAXFR || q.Qtype == mdns.TypeIXFR || h.forwarder.isProbe(q) {
		reply.Rcode = mdns.RcodeRefused
		return reply
	}
	name := mdns.CanonicalName(q.Name)
	if mdns.IsSubDomain(h.zone.origin, name) {
		return h.fromZone(ctx, req, reply, name, tcp)
	}
	if ip, ok := reverseAddr(name); ok {
		records, known := h.zone.reverse(q.Name, ip)
		if known || h.inCluster(ip) {
			reply.Authoritative = true
			if reply.Answer = ofType(q.Qtype, records...); len(reply.Answer) == 0 {
				reply.Ns = []mdns.RR{h.zone.soa()}
				if !known {
					reply.Rcode = mdns.RcodeNameError
				}
			}
			return reply
		}
	}
	return h.fromUpstream(ctx, req, reply, tcp)
}

func (h *handler) inCluster(ip netip.Addr) bool {
	for _, r := range h.clusterRanges {
		if r.Contains(ip) {
			return true
		}
	}
	return false
}

// fromZone answers names in the cluster domain.
func (h *handler) fromZone(ctx context.Context, req, reply *mdns.Msg, name string, tcp bool) *mdns.Msg {
	q := req.Question[0]
	a := h.zone.lookup(name, q.Qtype)
	reply.Authoritative, reply.Rcode = true, a.rcode
	reply.Answer, reply.Extra = a.records, a.extra
	// Restore the client's spelling; some clients mix case on purpose.
	for _, rr := range reply.Answer {
		if rr.Header().Name == name {
			rr.Header().Name = q.Name
		}
	}
	rand.Shuffle(len(reply.Answer), func(i, j int) {
		// A CNAME stays in front.
		if reply.Answer[i].Header().Rrtype == reply.Answer[j].Header().Rrtype {
			reply.Answer[i], reply.Answer[j] = reply.Answer[j], reply.Answer[i]
		}
	})
	if a.follow != "" {
		sub := new(mdns.Msg).SetQuestion(a.follow, q.Qtype)
		if m, _, err := h.forwarder.forward(ctx, sub, tcp); err == nil {
			reply.Answer = append(reply.Answer, m.Answer...)
		}
	}
	if len(reply.Answer) == 0 {
		reply.Ns = []mdns.RR{h.zone.soa()}
	}
	return reply
}

// fromUpstream forwards a query. The answer is REFUSED if no resolver is configured, and SERVFAIL
// if the resolvers fail.
func (h *handler) fromUpstream(ctx context.Context, req, reply *mdns.Msg, tcp bool) *mdns.Msg {
	m, hit, err := h.forwarder.forward(ctx, req, tcp)
	h.metrics.forwarded(hit, err)
	switch {
	case errors.Is(err, errNoUpstream):
		reply.Rcode = mdns.RcodeRefused
		return reply
	case err != nil:
		slog.Debug("DNS query was not answered upstream", "name", req.Question[0].Name, "error", err)
		reply.Rcode = mdns.RcodeServerFailure
		return reply
	}
	m.Response, m.Question = true, req.Question
	m.RecursionDesired, m.RecursionAvailable, m.Authoritative = req.RecursionDesired, true, false
	return m
}

// reverseAddr extracts the address from a name below in-addr.arpa or ip6.arpa.
func reverseAddr(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		labels := strings.Split(rest, ".")
		if len(labels) != 4 {
			return netip.Addr{}, false
		}
		ip, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
		return ip, err == nil
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	labels := strings.Split(rest, ".")
	if !ok || len(labels) != 32 {
		return netip.Addr{}, false
	}
	var b strings.Builder
	for i := 31; i >= 0; i-- {
		if len(labels[i]) != 1 {
			return netip.Addr{}, false
		}
		b.WriteString(labels[i])
		if i%4 == 0 && i > 0 {
			b.WriteByte(':')
		}
	}
	ip, err := netip.ParseAddr(b.String())
	return ip, err == nil
}
