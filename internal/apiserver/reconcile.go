package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// reconcileEvery is the interval of checks of the objects that every cluster has, and of the
// endpoints of the Service "kubernetes", as upstream.
const reconcileEvery = 10 * time.Second

// keep restores the objects that every cluster has when they are changed or deleted.
func (b *bootstrapper) keep(ctx context.Context) {
	for {
		again := reconcileEvery
		if err := b.reconcile(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("the objects that every cluster has were not reconciled", "err", err)
		}
		if !b.trustPublished.reached() || !b.tokensTracked.reached() {
			again = time.Second // the server is not ready without them
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

func (b *bootstrapper) reconcile(ctx context.Context) error {
	if err := b.create(ctx, b.objects()); err != nil {
		return err
	}
	return errors.Join(
		b.widenServiceCIDR(ctx),
		b.trustPublished.complete(b.publishTrust(ctx)),
		b.tokensTracked.complete(b.trackTokens(ctx)))
}

// widenServiceCIDR adds the second family to the default ranges if the cluster has gained one. All
// other changes are left to administrators, because Services have addresses of the existing ranges.
func (b *bootstrapper) widenServiceCIDR(ctx context.Context) error {
	if len(b.cfg.ServiceCIDRs) < 2 {
		return nil
	}
	return b.createOrUpdate(ctx, b.defaultServiceCIDR(), func(obj, want runtime.Object) {
		cidr, wanted := obj.(*networkingv1.ServiceCIDR), want.(*networkingv1.ServiceCIDR)
		if len(cidr.Spec.CIDRs) == 1 && cidr.Spec.CIDRs[0] == wanted.Spec.CIDRs[0] && cidr.DeletionTimestamp == nil {
			cidr.Spec.CIDRs = wanted.Spec.CIDRs
		}
	})
}

// The ConfigMap with the date since which the use of tokens in Secrets is tracked
// (internal/auth/token tracks it).
const (
	trackingMapName = "kube-apiserver-legacy-service-account-token-tracking"
	trackingSince   = "since"
)

// trackTokens keeps that ConfigMap. The cleaner of unused tokens counts from its date at the
// earliest (KEP-2799), and does not begin without it.
func (b *bootstrapper) trackTokens(ctx context.Context) error {
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: trackingMapName},
		Data:       map[string]string{trackingSince: b.clock().UTC().Format(time.DateOnly)},
	}
	return b.createOrUpdate(ctx, want, func(obj, want runtime.Object) {
		m := obj.(*corev1.ConfigMap)
		if _, err := time.Parse(time.DateOnly, m.Data[trackingSince]); err != nil {
			if m.Data == nil {
				m.Data = map[string]string{}
			}
			m.Data[trackingSince] = want.(*corev1.ConfigMap).Data[trackingSince]
		}
	})
}

// createOrUpdate creates the object, or lets take copy the wanted state into the existing one.
func (b *bootstrapper) createOrUpdate(ctx context.Context, want runtime.Object, take func(obj, want runtime.Object)) error {
	e, ok := b.kinds.Find(api.ResourceOf(want))
	if !ok {
		return fmt.Errorf("%T is not served", want)
	}
	meta := wire.Accessor(want)
	op := b.engine.InternalOperation(e, meta.GetNamespace(), meta.GetName())
	op.FieldManager = registry.ComponentManager(op.User.Name)
	e.ApplyDefaults(want)
	_, _, err := op.Update(ctx, true, func(_ context.Context, old runtime.Object) (runtime.Object, error) {
		if old == nil {
			return op.TrackFields(nil, want.DeepCopyObject()), nil
		}
		obj := old.DeepCopyObject()
		take(obj, want)
		return op.TrackFields(old, obj), nil
	})
	if apierrors.IsConflict(err) {
		return nil // another server was faster
	}
	return err
}

// publishTrust writes the ConfigMap.
func (b *bootstrapper) publishTrust(ctx context.Context) error {
	t := b.cfg.Trust
	if t.ClientCA == nil && t.FrontProxyCA == nil {
		return nil
	}
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: trustMapName}, Data: map[string]string{}}
	if t.ClientCA != nil {
		want.Data["client-ca-file"] = string(t.ClientCA())
	}
	if t.FrontProxyCA != nil {
		want.Data["requestheader-client-ca-file"] = string(t.FrontProxyCA())
		for key, list := range map[string][]string{
			"requestheader-allowed-names": t.FrontProxyNames, "requestheader-username-headers": t.Headers.User, "requestheader-uid-headers": t.Headers.UID,
			"requestheader-group-headers": t.Headers.Group, "requestheader-extra-headers-prefix": t.Headers.ExtraPrefix,
		} {
			text, err := json.Marshal(append([]string{}, list...))
			if err != nil {
				return err
			}
			want.Data[key] = string(text)
		}
	}
	return b.createOrUpdate(ctx, want, func(obj, want runtime.Object) {
		mergeTrust(obj.(*corev1.ConfigMap), want.(*corev1.ConfigMap), b.clock().Unix(), t.Removed)
	})
}
