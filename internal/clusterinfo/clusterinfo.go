// Package clusterinfo tells nodes what their cluster decides: the ranges of pods and Services, the
// domain, the address of the DNS server, and the cluster's CAs. They are in ConfigMap
// kube-system/knarr-cluster. In return, nodes tell their certificates in an annotation.
//
// In: the server's configuration. Out: the ConfigMap, which nodes may read (internal/auth/rbac).
package clusterinfo

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// Name is the ConfigMap's name in kube-system.
const Name = "knarr-cluster"

// Info is what a cluster decides for all of its nodes.
type Info struct {
	ServiceCIDR   string `json:"serviceCIDR"`
	PodCIDR       string `json:"podCIDR"`
	ClusterDomain string `json:"clusterDomain"`
	ClusterDNS    string `json:"clusterDNS"`
}

// Validate returns an error if the content cannot be used.
func (i Info) Validate() error {
	for field, value := range map[string]string{"serviceCIDR": i.ServiceCIDR, "podCIDR": i.PodCIDR} {
		for _, one := range strings.Split(value, ",") {
			if _, err := netip.ParsePrefix(one); err != nil {
				return fmt.Errorf("%s: %q is not usable: a range such as 10.43.0.0/16", field, value)
			}
		}
	}
	if _, err := netip.ParseAddr(i.ClusterDNS); err != nil {
		return fmt.Errorf("clusterDNS: %q is not usable: an address", i.ClusterDNS)
	}
	if i.ClusterDomain == "" || len(i.ClusterDomain) > 253 {
		return fmt.Errorf("clusterDomain: %q is not usable: a DNS name such as cluster.local", i.ClusterDomain)
	}
	return nil
}

func (i Info) data() map[string]string {
	return map[string]string{"serviceCIDR": i.ServiceCIDR, "podCIDR": i.PodCIDR, "clusterDomain": i.ClusterDomain, "clusterDNS": i.ClusterDNS}
}

// publishPause is the time between two attempts to write to a store that is late.
const publishPause = 500 * time.Millisecond

// Publish writes the information unless it is there already. It waits for a store that is late:
// without the information, a server does not start.
func Publish(ctx context.Context, c client.Interface, info Info) error {
	for {
		err := publish(ctx, c, info)
		switch {
		case err == nil:
			return nil
		case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
			continue
		case !late(err):
			return fmt.Errorf("publish the cluster's ranges: %w", err)
		}
		select {
		case <-time.After(publishPause):
		case <-ctx.Done():
			return fmt.Errorf("publish the cluster's ranges: %w", err)
		}
	}
}

// late reports whether the store may answer later. Publish reads first, so a write that was made
// after all is no harm.
func late(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err)
}

func publish(ctx context.Context, c client.Interface, info Info) error {
	have, err := client.Get[*corev1.ConfigMap](ctx, c, metav1.NamespaceSystem, Name)
	switch {
	case apierrors.IsNotFound(err):
		_, err = client.Create(ctx, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: Name}, Data: info.data()})
	case err == nil && read(have) != info:
		update := have.DeepCopy()
		if update.Data == nil {
			update.Data = map[string]string{}
		}
		maps.Copy(update.Data, info.data()) // the rest is the cluster's CAs
		_, err = client.Update(ctx, c, update)
	}
	return err
}

// Read returns the information, or a NotFound error from a cluster that publishes none.
func Read(ctx context.Context, c client.Interface) (Info, error) {
	have, err := client.Get[*corev1.ConfigMap](ctx, c, metav1.NamespaceSystem, Name)
	if err != nil {
		return Info{}, err
	}
	info := read(have)
	if err := info.Validate(); err != nil {
		return Info{}, fmt.Errorf("ConfigMap %s/%s: %w", metav1.NamespaceSystem, Name, err)
	}
	return info, nil
}

func read(m *corev1.ConfigMap) Info {
	return Info{ServiceCIDR: m.Data["serviceCIDR"], PodCIDR: m.Data["podCIDR"], ClusterDomain: m.Data["clusterDomain"], ClusterDNS: m.Data["clusterDNS"]}
}
