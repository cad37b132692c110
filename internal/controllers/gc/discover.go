package gc

import (
	"context"
	"errors"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/knarr-project/knarr/internal/client"
)

// ignored lists the kinds that take no part in ownership: events are many and expire anyway.
var ignored = map[schema.GroupResource]bool{
	{Resource: "events"}:                         true,
	{Group: "events.k8s.io", Resource: "events"}: true,
}

// recheckDelays lists the delays before discovery is read again. A definition is served a moment
// after its status says so.
var recheckDelays = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second}

// followDefinitions watches CustomResourceDefinitions and APIServices, and refreshes the kinds when
// one changes.
func (c *collector) followDefinitions(ctx context.Context) {
	changed := make(chan struct{}, 1)
	wake := func(client.Event) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	var ended []<-chan struct{}
	follow := func(view client.View) {
		_, done := view.Subscribe(ctx, wake)
		ended = append(ended, done)
	}
	follow(c.services.View)
	definitions, err := client.Open[*apiextensionsv1.CustomResourceDefinition](ctx, c.env.Client, client.Scope{})
	switch {
	case err == nil:
		follow(definitions.View)
	case ctx.Err() == nil:
		c.env.Logger().Warn("garbage collector cannot watch definitions of new kinds", "error", err)
	}
	next := time.NewTimer(0)
	defer next.Stop()
	attempt := 0
	for {
		select {
		case <-ctx.Done():
			for _, d := range ended {
				<-d
			}
			return
		case <-changed:
			attempt = 0
			next.Reset(recheckDelays[0])
		case <-next.C:
			err := c.refresh(ctx)
			attempt++
			switch {
			case attempt < len(recheckDelays):
				next.Reset(recheckDelays[attempt])
			case err != nil && ctx.Err() == nil:
				c.env.Logger().Warn("garbage collector cannot discover all kinds", "error", err)
				next.Reset(30 * time.Second)
			}
		}
	}
}

// refresh opens Views of the kinds that discovery newly lists and closes the Views of kinds that
// are gone. A kind stays while the discovery of its group fails.
func (c *collector) refresh(ctx context.Context) error {
	lists, failed := c.env.Client.Discovery(ctx)
	mapped := map[schema.GroupKind]*watched{}
	var order []*watched
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		for _, r := range list.APIResources {
			k := c.watchedOf(gv, r)
			if k == nil || mapped[k.gvk.GroupKind()] != nil {
				continue
			}
			mapped[k.gvk.GroupKind()] = k
			if slices.Contains(r.Verbs, "delete") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") && !ignored[k.gvr.GroupResource()] {
				order = append(order, k)
			}
		}
	}
	c.mu.Lock()
	var fresh, gone []*watched
	for _, k := range order {
		if have, ok := c.kinds[k.gvk.GroupKind()]; ok && have.gvr == k.gvr {
			mapped[k.gvk.GroupKind()] = have
			continue
		}
		fresh = append(fresh, k)
	}
	for gk, k := range c.kinds {
		switch now := mapped[gk]; {
		case now == k:
		case now == nil && failed != nil:
			mapped[gk] = k
		default:
			gone = append(gone, k)
			delete(c.kinds, gk)
		}
	}
	c.mapped = mapped
	for _, k := range fresh {
		c.follow(ctx, k)
		c.kinds[k.gvk.GroupKind()] = k
	}
	c.mu.Unlock()
	for _, k := range gone {
		k.close()
	}
	return failed
}

// watchedOf builds the record of a resource; nil for subresources.
func (c *collector) watchedOf(gv schema.GroupVersion, r metav1.APIResource) *watched {
	if slices.Contains([]byte(r.Name), '/') {
		return nil
	}
	gvk := gv.WithKind(r.Kind)
	if r.Group != "" {
		gvk.Group = r.Group
	}
	if r.Version != "" {
		gvk.Version = r.Version
	}
	return &watched{gvr: gvk.GroupVersion().WithResource(r.Name), gvk: gvk, namespaced: r.Namespaced}
}

// follow opens the kind's View in the background, as soon as the kind can be listed.
func (c *collector) follow(ctx context.Context, k *watched) {
	ctx, k.stop = context.WithCancel(ctx)
	k.opened = make(chan struct{})
	go func() {
		defer close(k.opened)
		late := time.AfterFunc(c.patience, func() {
			c.env.Logger().Warn("garbage collector continues without a kind that cannot be listed", "resource", k.gvr.GroupResource().String())
		})
		defer late.Stop()
		view, err := c.open(ctx, k)
		if err != nil {
			return // the kind is gone, or the collector stops
		}
		k.view.Store(&view)
		k.synced, k.ended = view.Subscribe(ctx, func(e client.Event) { c.onEvent(k, e) })
	}()
}

// open returns the kind's View, indexed by owner. It retries until ctx ends, then returns ctx's
// error.
func (c *collector) open(ctx context.Context, k *watched) (client.View, error) {
	var view client.View
	backoff := wait.Backoff{Duration: recheckDelays[0], Factor: 2, Steps: 9, Cap: 30 * time.Second}
	err := backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		v, err := c.env.Client.View(ctx, k.gvr, client.Scope{MetadataOnly: true})
		if err != nil && ctx.Err() == nil {
			c.env.Logger().Warn("garbage collector cannot watch a kind yet", "resource", k.gvr.GroupResource().String(), "error", err)
		}
		view = v
		return err == nil, nil
	})
	if err != nil {
		return nil, err
	}
	view.AddIndex(byOwner, func(obj runtime.Object) []string {
		var uids []string
		for _, ref := range accessor(obj).GetOwnerReferences() {
			uids = append(uids, string(ref.UID))
		}
		return uids
	})
	return view, nil
}
