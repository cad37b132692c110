package apiserver

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
)

const (
	// identityLabel marks the Leases of API servers, and identityComponent those of this kind
	// (KEP-1965).
	identityLabel     = "apiserver.kubernetes.io/identity"
	identityComponent = "kube-apiserver"
	// identityDuration is how long a Lease outlives its last renewal, as upstream.
	identityDuration = time.Hour
	// identityRenewEvery is the interval of renewals. Upstream renews every 10 s. Each renewal is a
	// write to the disk, and a Lease is removed only after an hour without one. The endpoints of
	// the Service kubernetes show within seconds that a server is dead.
	identityRenewEvery = time.Minute
)

// identity keeps the Lease by which clients see that this API server exists, and removes expired
// Leases of other servers.
type identity struct {
	boot   *bootstrapper
	name   string // of the Lease
	host   string
	holder string
	log    *slog.Logger
}

func newIdentity(boot *bootstrapper, host string, at netip.AddrPort, log *slog.Logger) *identity {
	name := identityName(host, at)
	return &identity{boot: boot, name: name, host: host, holder: name + "_" + uuid.NewString(), log: log}
}

// identityName returns the name of a server's Lease. As upstream's it is a hash of the host's name
// and the component, each after its length in two bytes. Unlike upstream's it depends on the
// server's address, too: a host may have several servers.
func identityName(host string, at netip.AddrPort) string {
	var data []byte
	for _, part := range []string{host, at.String(), identityComponent} {
		data = append(binary.BigEndian.AppendUint16(data, uint16(len(part))), part...)
	}
	sum := sha256.Sum256(data)
	return "apiserver-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

// run keeps the Lease until ctx ends, from when the server is an endpoint.
func (i *identity) run(ctx context.Context, endpoint milestone) {
	select {
	case <-ctx.Done():
		return
	case <-endpoint.ch:
	}
	for {
		pause := identityRenewEvery
		if err := errors.Join(i.renew(ctx), i.removeExpired(ctx)); err != nil && ctx.Err() == nil {
			pause = 5 * time.Second
			i.log.Warn("the identity Lease of this server was not kept, trying again", "lease", i.name, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// renew creates or renews the Lease.
func (i *identity) renew(ctx context.Context) error {
	now, seconds := metav1.NewMicroTime(i.boot.clock()), int32(identityDuration/time.Second)
	want := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: i.name, Labels: map[string]string{identityLabel: identityComponent}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &i.holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}
	if len(validation.IsValidLabelValue(i.host)) == 0 {
		want.Labels[corev1.LabelHostname] = i.host
	}
	return i.boot.createOrUpdate(ctx, want, func(obj, _ runtime.Object) {
		lease := obj.(*coordinationv1.Lease)
		if held := lease.Spec.HolderIdentity; held != nil && *held == i.holder && lease.Spec.AcquireTime != nil {
			want.Spec.AcquireTime = lease.Spec.AcquireTime
		}
		lease.Labels, lease.Spec = want.Labels, want.Spec
	})
}

// removeExpired deletes the Leases of servers that have not renewed them. It reads the store, so
// that the cache of Leases is not opened for it.
func (i *identity) removeExpired(ctx context.Context) error {
	e, ok := i.boot.kinds.Find(api.ResourceOf(&coordinationv1.Lease{}))
	if !ok {
		return nil
	}
	found, err := e.Place.Store.Range(ctx, e.Prefix(metav1.NamespaceSystem)+"apiserver-", store.RangeOptions{})
	if err != nil {
		return wire.StoreError(err)
	}
	var errs []error
	for n := range found.KVs {
		state, err := e.FromStore(&found.KVs[n])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		lease := state.Obj.(*coordinationv1.Lease)
		if lease.Labels[identityLabel] != identityComponent || lease.Name == i.name || !i.expired(lease) {
			continue
		}
		opts := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}}
		err = client.Delete[*coordinationv1.Lease](ctx, i.boot.client, lease.Namespace, lease.Name, opts)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// expired reports whether a Lease was not renewed in time. A Lease without its times counts as
// expired, as upstream.
func (i *identity) expired(lease *coordinationv1.Lease) bool {
	renewed, seconds := lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds
	if renewed == nil || seconds == nil {
		return true
	}
	return renewed.Add(time.Duration(*seconds) * time.Second).Before(i.boot.clock())
}
