package proxy

import (
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/spans"
)

// maxAwaited bounds the EndpointSlices whose rules are awaited for traces.
const maxAwaited = 500

// awaited is a change of an EndpointSlice whose rules are not in the kernel yet.
type awaited struct {
	namespace, name string
	revision        int64
	since           time.Time
}

// await notes that the rules of an EndpointSlice are due, for traces. The slices of the start are
// left out: their changes are old.
func (p *Proxy) await(e client.TypedEvent[*discoveryv1.EndpointSlice]) {
	select {
	case <-p.ready:
	default:
		return
	}
	if p.cfg.Spans == nil || e.Revision == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.awaited) < maxAwaited {
		p.awaited = append(p.awaited, awaited{e.Object.Namespace, e.Object.Name, e.Revision, time.Now()})
	}
}

// inKernel keeps a span for each change whose rules were committed.
func (p *Proxy) inKernel(list []awaited) {
	now := time.Now()
	for _, a := range list {
		p.cfg.Spans.Note(spans.Span{Name: spans.Rules, Namespace: a.namespace, Object: a.name, Revisions: []int64{a.revision}, Begin: a.since, End: now})
	}
}
