package aggregation

import (
	"context"
	"log/slog"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/discovery"
	"github.com/knarr-project/knarr/internal/client"
)

// The label that upstream's registration writes. APIServices of built-in groups are created and
// corrected at the start of the server, those of custom resources at any time. Users own the
// APIServices without it.
const (
	managedLabel  = "kube-aggregator.kubernetes.io/automanaged"
	managedStart  = "onstart"
	managedAlways = "true"
)

// Local returns the APIServices of the built-in group versions that are turned on.
func Local(on *api.Switches) []*apiregistrationv1.APIService {
	var list []*apiregistrationv1.APIService
	for _, gv := range discovery.BuiltIn(on) {
		switch gv.Group {
		case apiregistrationv1.GroupName:
			continue // the aggregation layer's own group is not registered
		case metricsv1beta1.GroupName:
			// An extension server may register its own APIService for this group at any time.
			continue
		}
		list = append(list, newLocal(gv.Group, gv.Version, gv.GroupPriority, gv.VersionPriority, managedStart))
	}
	return list
}

func newLocal(group, version string, groupPriority, versionPriority int32, managed string) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version + "." + group, Labels: map[string]string{managedLabel: managed}},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: version, GroupPriorityMinimum: groupPriority, VersionPriority: versionPriority,
		},
	}
}

// registrar keeps the local APIServices: those of built-in groups at the start, those of custom
// resources all the time.
type registrar struct {
	client   client.Interface
	services client.ViewOf[*apiregistrationv1.APIService]
	log      *slog.Logger
	changed  chan struct{}
	switches *api.Switches
}

func newRegistrar(c client.Interface, services client.ViewOf[*apiregistrationv1.APIService], log *slog.Logger, on *api.Switches) *registrar {
	return &registrar{client: c, services: services, log: log, switches: on, changed: make(chan struct{}, 1)}
}

func (g *registrar) wake() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

func (g *registrar) run(ctx context.Context) {
	definitions, err := client.Open[*apiextensionsv1.CustomResourceDefinition](ctx, g.client, client.Scope{})
	if err != nil {
		if ctx.Err() == nil {
			g.log.Error("custom resources will have no APIServices", "err", err)
		}
		return
	}
	synced, done := definitions.Subscribe(ctx, func(client.TypedEvent[*apiextensionsv1.CustomResourceDefinition]) { g.wake() })
	defer func() { <-done }()
	select {
	case <-synced:
	case <-ctx.Done():
		return
	}
	starting := true
	for {
		wanted := customServices(definitions.List("", nil))
		if starting {
			wanted = append(wanted, Local(g.switches)...)
		}
		retry := make(<-chan time.Time)
		if err := g.apply(ctx, plan(g.services.List("", nil), wanted, starting)); err != nil {
			if ctx.Err() == nil {
				g.log.Warn("APIServices were not registered, trying again", "err", err)
			}
			retry = time.After(time.Second)
		} else {
			starting = false
		}
		select {
		case <-ctx.Done():
			return
		case <-g.changed:
		case <-retry:
		}
	}
}

// customServices returns the APIServices of custom resources' served versions.
func customServices(definitions []*apiextensionsv1.CustomResourceDefinition) []*apiregistrationv1.APIService {
	var list []*apiregistrationv1.APIService
	seen := map[string]bool{}
	for _, d := range definitions {
		for i := range d.Spec.Versions {
			s := newLocal(d.Spec.Group, d.Spec.Versions[i].Name, discovery.CustomGroupPriority, discovery.CustomVersionPriority, managedAlways)
			if d.Spec.Versions[i].Served && !seen[s.Name] {
				seen[s.Name] = true
				list = append(list, s)
			}
		}
	}
	return list
}

// steps are the writes to make.
type steps struct {
	create, update, remove []*apiregistrationv1.APIService
}

// plan compares the existing APIServices with the wanted ones. It ignores those without the label
// and, after the start, those of built-in groups.
func plan(have, wanted []*apiregistrationv1.APIService, starting bool) (s steps) {
	missing := make(map[string]*apiregistrationv1.APIService, len(wanted))
	for _, w := range wanted {
		missing[w.Name] = w
	}
	for _, h := range have {
		w := missing[h.Name]
		delete(missing, h.Name)
		managed := h.Labels[managedLabel]
		if managed != managedAlways && !(managed == managedStart && starting) {
			continue
		}
		if w == nil {
			s.remove = append(s.remove, h)
			continue
		}
		if managed == w.Labels[managedLabel] && equality.Semantic.DeepEqual(h.Spec, w.Spec) {
			continue
		}
		next := h.DeepCopy()
		next.Labels[managedLabel], next.Spec = w.Labels[managedLabel], w.Spec
		s.update = append(s.update, next)
	}
	for _, w := range wanted {
		if missing[w.Name] != nil {
			s.create = append(s.create, w)
		}
	}
	return s
}

func (g *registrar) apply(ctx context.Context, s steps) error {
	for _, o := range s.create {
		if _, err := client.Create(ctx, g.client, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	for _, o := range s.update {
		if _, err := client.Update(ctx, g.client, o); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	for _, o := range s.remove {
		uid := o.UID
		err := client.Delete[*apiregistrationv1.APIService](ctx, g.client, "", o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}
