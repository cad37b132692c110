package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/service"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
)

const (
	// livingPrefix is upstream's prefix of the keys of living API servers: ADDRESS, with an
	// Endpoints object that has the address. Each key has a lease of the store.
	livingPrefix = "/registry/masterleases"
	// livingTTL is how long a dead server stays in the endpoints, as upstream. A server renews its
	// lease every reconcileEvery. That writes nothing to the disk, unlike upstream's renewal.
	livingTTL = 15 * time.Second
	// leaveTimeout limits how long a stopping server tries to leave the endpoints.
	leaveTimeout = 3 * time.Second
)

var livingCodec = &wire.StoredCodec{Hub: corev1.SchemeGroupVersion.WithKind("Endpoints"), Stored: corev1.SchemeGroupVersion.WithKind("Endpoints")}

// endpointKeeper keeps the endpoints of the Service "kubernetes": the addresses of all living API
// servers of the store. Each server announces itself by a key with a lease, and each follows the
// keys of all. So a server that stops leaves at once, and a dead one when its lease expires.
type endpointKeeper struct {
	boot  *bootstrapper
	place *registry.Place
	self  netip.AddrPort
	alone func() bool
	log   *slog.Logger
	kept  milestone // reached when the endpoints have this server
	// end ends run; nil before it begins.
	end atomic.Pointer[context.CancelFunc]
	// leads is set while this server is the first of the living ones.
	leads atomic.Bool

	mu    sync.Mutex // guards the following fields
	lease store.LeaseID
	key   string // under which this server is announced
	left  bool   // the server stops and is no endpoint any more
}

// wanted reports whether this server keeps endpoints.
func (k *endpointKeeper) wanted() bool {
	cfg := k.boot.cfg
	return !cfg.ExternalEndpoints && isEndpoint(k.self.Addr()) && len(cfg.ServiceCIDRs) > 0
}

// first reports whether this server does what one of the living servers has to do. A server that
// does not know the others does it, too.
func (k *endpointKeeper) first() bool {
	return !k.wanted() || k.alone() || k.leads.Load()
}

// run keeps the endpoints until ctx ends or the server leaves.
func (k *endpointKeeper) run(ctx context.Context) {
	if !k.wanted() {
		if at := k.self.Addr(); at.IsValid() && !isEndpoint(at) && !k.boot.cfg.ExternalEndpoints {
			k.log.Warn("the Service kubernetes has no endpoint of this server: pods cannot reach its advertised address", "address", at)
		}
		_ = k.kept.complete(nil)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.end.Store(&cancel)
	var changes *cache.Cursor
	defer func() { closeCursor(changes) }()
	for ctx.Err() == nil {
		pause := reconcileEvery
		if changes == nil {
			changes = k.follow(ctx)
		}
		if err := k.step(ctx); err != nil && ctx.Err() == nil {
			pause = time.Second
			k.log.Warn("the endpoints of the Service kubernetes were not kept, trying again", "err", err)
		}
		if !k.wait(ctx, changes, pause) {
			closeCursor(changes)
			changes = nil
		}
	}
}

func closeCursor(c *cache.Cursor) {
	if c != nil {
		c.Close()
	}
}

// wait waits until a server has come or gone, or the pause is over. It returns false if the cursor
// has ended.
func (k *endpointKeeper) wait(ctx context.Context, changes *cache.Cursor, pause time.Duration) bool {
	bounded, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	if changes == nil {
		<-bounded.Done()
		return false
	}
	_, _, err := changes.Next(bounded)
	return err == nil || ctx.Err() != nil
}

// step brings the endpoints up to date and renews this server's lease.
func (k *endpointKeeper) step(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left {
		return nil
	}
	// The endpoints first: the server is not ready without them.
	return errors.Join(k.kept.complete(k.reconcile(ctx)), k.announce(ctx))
}

// leave removes this server from the endpoints. The last server's endpoint stays, as upstream; the
// key of a server that is alone stays for its next start.
func (k *endpointKeeper) leave(ctx context.Context) {
	if !k.wanted() {
		return
	}
	if end := k.end.Load(); end != nil {
		(*end)() // it may be waiting for a store that does not answer
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left = true
	k.leads.Store(false)
	if k.lease == 0 || k.alone() {
		return
	}
	err := k.place.Store.Revoke(ctx, k.lease)
	if k.lease = 0; err == nil || errors.Is(err, store.ErrLeaseNotFound) {
		err = k.reconcile(ctx)
	}
	if err != nil {
		k.log.Warn("this server was not removed from the endpoints of the Service kubernetes", "err", err)
	}
}

// announce renews the lease of this server's key, and writes the key if it has none. mu is held.
func (k *endpointKeeper) announce(ctx context.Context) error {
	if k.lease != 0 {
		err := k.place.Store.KeepAlive(ctx, k.lease)
		if !errors.Is(err, store.ErrLeaseNotFound) {
			return err
		}
		k.lease = 0 // it has expired while this server, or the store, did not run
	}
	lease, err := k.place.Store.Grant(ctx, livingTTL)
	if err != nil {
		return err
	}
	if err := k.writeKey(ctx, lease); err != nil {
		_ = k.place.Store.Revoke(ctx, lease) // it expires in any case
		return err
	}
	k.lease = lease
	return nil
}

// writeKey writes this server's key: its address, or its address and port if another server of the
// same address has that key.
func (k *endpointKeeper) writeKey(ctx context.Context, lease store.LeaseID) error {
	value, err := livingCodec.Encode(&corev1.Endpoints{Subsets: subsetsOf([]netip.AddrPort{k.self})})
	if err != nil {
		return err
	}
	for _, name := range []string{k.self.Addr().String(), k.self.String()} {
		key := livingPrefix + "/" + name
		for revision := int64(0); ; {
			res, err := k.place.Store.Commit(ctx, []store.Condition{{Key: key, ModRevision: revision}}, store.Op{Key: key, Value: value, Lease: lease})
			if err != nil {
				return err
			}
			if res.Succeeded {
				k.key = key
				return nil
			}
			revision = 0
			if have := res.Current[0]; have != nil {
				if at, ok := k.announced(have.Value); ok && at != k.self {
					break // a living server
				}
				revision = have.ModRevision // of an earlier run of this server
			}
		}
	}
	return fmt.Errorf("the keys below %s for %s belong to other servers", livingPrefix, k.self)
}

// announced reads a key's value. Upstream's servers do not write their port, which is the same on
// all of them.
func (k *endpointKeeper) announced(value []byte) (netip.AddrPort, bool) {
	obj, err := livingCodec.Decode(value, 0)
	if err != nil {
		return netip.AddrPort{}, false
	}
	subsets := obj.(*corev1.Endpoints).Subsets
	if len(subsets) == 0 || len(subsets[0].Addresses) == 0 {
		return netip.AddrPort{}, false
	}
	at, err := netip.ParseAddr(subsets[0].Addresses[0].IP)
	if err != nil || !isEndpoint(at) {
		return netip.AddrPort{}, false
	}
	port := k.self.Port()
	if ports := subsets[0].Ports; len(ports) > 0 {
		port = uint16(ports[0].Port)
	}
	return netip.AddrPortFrom(at, port), true
}

// kind returns the cache of the keys.
func (k *endpointKeeper) kind(ctx context.Context) (*cache.Kind, error) {
	return k.place.Cache.OpenKind(ctx, cache.Schema{Prefix: livingPrefix, Decode: livingCodec.Decode, Header: func(runtime.Object) cache.Header { return cache.Header{} }})
}

// follow opens a cursor on the keys; nil if it cannot.
func (k *endpointKeeper) follow(ctx context.Context) *cache.Cursor {
	kind, err := k.kind(ctx)
	if err != nil {
		return nil // the next step reports it
	}
	cursor, err := kind.WatchLight(kind.Revision(), cache.Interest{})
	if err != nil {
		return nil
	}
	return cursor
}

// living returns the addresses of the living servers in order. Only this server can be living if it
// is alone on the store; other keys are left from before.
func (k *endpointKeeper) living(ctx context.Context) ([]netip.AddrPort, error) {
	found := map[netip.AddrPort]bool{}
	if !k.left {
		found[k.self] = true
	}
	if !k.alone() {
		kind, err := k.kind(ctx)
		if err != nil {
			return nil, err
		}
		newest, err := k.place.Store.Revision(ctx)
		if err != nil {
			return nil, err
		}
		if err := kind.WaitFor(ctx, newest); err != nil {
			return nil, err
		}
		kind.Snapshot().Ascend("", "", func(e *cache.Entry) bool {
			if at, ok := k.announced(e.Stored()); ok && (at != k.self || !k.left) {
				found[at] = true
			}
			return true
		})
	}
	all := slices.SortedFunc(maps.Keys(found), netip.AddrPort.Compare)
	k.leads.Store(len(all) > 0 && all[0] == k.self)
	return all, nil
}

// reconcile writes the endpoints if they differ. mu is held.
func (k *endpointKeeper) reconcile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileEvery)
	defer cancel()
	all, err := k.living(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	if err := k.write(ctx, func(all []netip.AddrPort) runtime.Object { return kubernetesEndpoints(all) }, func(obj, want runtime.Object) {
		obj.(*corev1.Endpoints).Subsets = want.(*corev1.Endpoints).Subsets
	}); err != nil {
		return err
	}
	return k.reconcileSlices(ctx, all)
}

// write creates or updates an object that the living servers determine. It finds the servers after
// the object's state was read. So a server that knows fewer servers than the object's last writer
// does not undo its write.
func (k *endpointKeeper) write(ctx context.Context, of func([]netip.AddrPort) runtime.Object, take func(obj, want runtime.Object)) error {
	var failed error
	current := func() runtime.Object {
		all, err := k.living(ctx)
		if failed = err; err != nil || len(all) == 0 {
			return nil
		}
		return of(all)
	}
	want := current()
	if want == nil {
		return failed
	}
	err := k.boot.createOrUpdate(ctx, want, func(obj, _ runtime.Object) {
		if want := current(); want != nil {
			take(obj, want)
		}
	})
	return cmp.Or(err, failed)
}

// reconcileSlices writes the EndpointSlices: one for each port that servers listen on.
func (k *endpointKeeper) reconcileSlices(ctx context.Context, all []netip.AddrPort) error {
	wanted := map[string]bool{}
	for _, slice := range kubernetesSlices(all) {
		wanted[slice.Name] = true
		have, err := client.Get[*discoveryv1.EndpointSlice](ctx, k.boot.client, slice.Namespace, slice.Name)
		if err == nil && have.AddressType != slice.AddressType { // which cannot be updated
			err = client.Delete[*discoveryv1.EndpointSlice](ctx, k.boot.client, slice.Namespace, slice.Name, metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		same := func(all []netip.AddrPort) runtime.Object {
			for _, s := range kubernetesSlices(all) {
				if s.Name == slice.Name && s.AddressType == slice.AddressType {
					return s
				}
			}
			return nil // the servers have changed meanwhile
		}
		if err := k.write(ctx, same, func(obj, want runtime.Object) {
			slice, wanted := obj.(*discoveryv1.EndpointSlice), want.(*discoveryv1.EndpointSlice)
			slice.Endpoints, slice.Ports = wanted.Endpoints, wanted.Ports
		}); err != nil {
			return err
		}
	}
	return k.removeSlices(ctx, wanted)
}

// removeSlices deletes the slices of ports that no server listens on any more.
func (k *endpointKeeper) removeSlices(ctx context.Context, wanted map[string]bool) error {
	selector := labels.SelectorFromSet(extraSliceLabels())
	e, ok := k.boot.kinds.Find(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"))
	if !ok {
		return nil
	}
	reader, err := e.Cache(ctx)
	if err != nil {
		return err
	}
	var stale []string
	prefix := e.Prefix(metav1.NamespaceDefault)
	reader.Snapshot().Ascend(prefix, prefix+service.KubernetesServiceName+"-", func(entry *cache.Entry) bool {
		if !strings.HasPrefix(entry.Name, service.KubernetesServiceName+"-") {
			return false
		}
		if !wanted[entry.Name] && selector.Matches(&entry.Labels) {
			stale = append(stale, entry.Name)
		}
		return true
	})
	for _, name := range stale {
		if err := client.Delete[*discoveryv1.EndpointSlice](ctx, k.boot.client, metav1.NamespaceDefault, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// isEndpoint reports whether the API accepts the address in endpoints. Other machines cannot reach
// a loopback or link-local address.
func isEndpoint(at netip.Addr) bool {
	return at.IsValid() && !at.IsLoopback() && !at.IsUnspecified() && !at.IsLinkLocalUnicast() && !at.IsLinkLocalMulticast()
}

// byPort groups servers by their port. The largest group comes first.
func byPort(all []netip.AddrPort) [][]netip.AddrPort {
	groups := map[uint16][]netip.AddrPort{}
	for _, at := range all {
		groups[at.Port()] = append(groups[at.Port()], at)
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b []netip.AddrPort) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0].Port(), b[0].Port()))
	})
}

func subsetsOf(all []netip.AddrPort) (subsets []corev1.EndpointSubset) {
	for _, group := range byPort(all) {
		subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "https", Port: int32(group[0].Port()), Protocol: corev1.ProtocolTCP}}}
		for _, at := range group {
			subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: at.Addr().String()})
		}
		subsets = append(subsets, subset)
	}
	return subsets
}

func kubernetesEndpoints(all []netip.AddrPort) *corev1.Endpoints {
	return &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: service.KubernetesServiceName, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
		Subsets:    subsetsOf(all),
	}
}

// extraSliceLabels mark the slices beside the one that upstream has.
func extraSliceLabels() map[string]string {
	return map[string]string{discoveryv1.LabelServiceName: service.KubernetesServiceName, discoveryv1.LabelManagedBy: "kube-apiserver"}
}

// kubernetesSlices returns a slice for each port. The first has upstream's name. As upstream, a
// slice has the IPv6 servers only if there is no IPv4 server.
func kubernetesSlices(all []netip.AddrPort) (out []*discoveryv1.EndpointSlice) {
	for i, group := range byPort(all) {
		ready, name, port, protocol := true, "https", int32(group[0].Port()), corev1.ProtocolTCP
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: service.KubernetesServiceName, Labels: map[string]string{discoveryv1.LabelServiceName: service.KubernetesServiceName}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
		}
		if i > 0 {
			slice.Name, slice.Labels = fmt.Sprintf("%s-%d", slice.Name, port), extraSliceLabels()
		}
		six := !slices.ContainsFunc(group, func(at netip.AddrPort) bool { return at.Addr().Is4() })
		if six {
			slice.AddressType = discoveryv1.AddressTypeIPv6
		}
		for _, at := range group {
			if at.Addr().Is6() == six {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{at.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
			}
		}
		out = append(out, slice)
	}
	return out
}
