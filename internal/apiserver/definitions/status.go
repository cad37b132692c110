package definitions

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/custom"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/insight/because"
)

// secondAfter is how long a server that is not the first leaves a change of a definition to it.
const secondAfter = 2 * time.Second

// Run keeps the status of definitions up to date, ends what changed definitions served, and removes
// the objects of deleted ones.
func (c *Kinds) Run(ctx context.Context) {
	names := newNameQueue()
	var workers sync.WaitGroup
	workers.Go(func() {
		c.followDefinitions(ctx, func(name string) {
			if c.First() {
				names.add(name)
			} else {
				names.addAfter(ctx, name, secondAfter)
			}
		})
	})
	cleaning := map[string]bool{}
	cleaned := make(chan string)
	for {
		var name string
		select {
		case <-ctx.Done():
			workers.Wait()
			return
		case name = <-cleaned:
			delete(cleaning, name)
			names.add(name) // in case more is left to do
			continue
		case <-names.ready:
			var ok bool
			if name, ok = names.take(); !ok {
				continue
			}
		}
		crd, err := c.reconcile(ctx, name, names)
		if err != nil {
			c.Shared.Log.Debug("the status of a custom resource definition was not written, trying again", "name", name, "err", err)
			names.addAfter(ctx, name, time.Second)
			continue
		}
		if crd == nil || !custom.Cleans(crd) || cleaning[name] {
			continue
		}
		cleaning[name] = true
		workers.Go(func() {
			if err := c.clean(ctx, crd); err != nil && ctx.Err() == nil {
				c.Shared.Log.Warn("the objects of a custom resource definition are not removed yet", "name", name, "err", err)
				wait(ctx, time.Second)
			}
			select {
			case cleaned <- name:
			case <-ctx.Done():
			}
		})
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// nameQueue is a queue that holds each name at most once.
type nameQueue struct {
	ready chan struct{} // has a value while there may be names

	mu     sync.Mutex
	names  []string
	queued map[string]bool
}

func newNameQueue() *nameQueue {
	return &nameQueue{ready: make(chan struct{}, 1), queued: map[string]bool{}}
}

func (q *nameQueue) add(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.queued[name] {
		q.queued[name] = true
		q.names = append(q.names, name)
	}
	q.signal()
}

func (q *nameQueue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *nameQueue) addAfter(ctx context.Context, name string, d time.Duration) {
	time.AfterFunc(d, func() {
		if ctx.Err() == nil {
			q.add(name)
		}
	})
}

func (q *nameQueue) take() (string, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.names) == 0 {
		return "", false
	}
	name := q.names[0]
	q.names = q.names[1:]
	delete(q.queued, name)
	if len(q.names) > 0 {
		q.signal()
	}
	return name, true
}

// reconcile brings the status of one definition up to date. It returns the definition, nil if it is
// gone.
func (c *Kinds) reconcile(ctx context.Context, name string, names *nameQueue) (*apiextensionsv1.CustomResourceDefinition, error) {
	reader, err := c.definitions(ctx)
	if err != nil {
		return nil, err
	}
	_, group, _ := custom.SplitName(name)
	others, waiting := c.ofGroup(reader, group)
	for _, other := range waiting {
		if other != name {
			names.addIfChanged(other, others)
		}
	}
	entry, ok := reader.Snapshot().Get(definitionsPrefix + name)
	if !ok {
		return nil, nil
	}
	crd, err := registry.DefinitionOutline(entry)
	if err != nil {
		return nil, err
	}
	want := crd.DeepCopy()
	custom.Reconcile(want, others, c.Shared.Now())
	if crd.DeletionTimestamp != nil || apiequality.Semantic.DeepEqual(want.Status, crd.Status) && !crd.Spec.PreserveUnknownFields {
		return crd, nil
	}
	return c.updateDefinition(ctx, name, func(crd *apiextensionsv1.CustomResourceDefinition) {
		custom.Reconcile(crd, others, c.Shared.Now())
	})
}

// definitionsPrefix is the key prefix of the definitions in the store.
const definitionsPrefix = "/registry/apiextensions.k8s.io/customresourcedefinitions/"

// ofGroup returns the definitions of a group, and the names of those whose accepted names wait for
// others to be released.
func (c *Kinds) ofGroup(reader cache.Reader, group string) (all []*apiextensionsv1.CustomResourceDefinition, waiting []string) {
	reader.Snapshot().Ascend("", "", func(e *cache.Entry) bool {
		if _, g, _ := custom.SplitName(e.Name); g != group {
			return true
		}
		if crd, err := registry.DefinitionOutline(e); err == nil {
			all = append(all, crd)
			if custom.WaitsForNames(crd) {
				waiting = append(waiting, e.Name)
			}
		}
		return true
	})
	return all, waiting
}

// addIfChanged adds a definition that waits for names if it would now get some.
func (q *nameQueue) addIfChanged(name string, others []*apiextensionsv1.CustomResourceDefinition) {
	for _, crd := range others {
		if crd.Name != name {
			continue
		}
		want := crd.DeepCopy()
		custom.Reconcile(want, others, metav1.Now())
		if !apiequality.Semantic.DeepEqual(want.Status.AcceptedNames, crd.Status.AcceptedNames) || !custom.WaitsForNames(want) {
			q.add(name)
		}
	}
}

// updateDefinition changes the status and the finalizers of a definition.
func (c *Kinds) updateDefinition(ctx context.Context, name string, change func(*apiextensionsv1.CustomResourceDefinition)) (*apiextensionsv1.CustomResourceDefinition, error) {
	e, ok := c.Engine.Kinds.Hub(apiextensionsv1.GroupName, "customresourcedefinitions")
	if !ok {
		return nil, wire.ErrPathNotFound
	}
	op := c.Engine.InternalOperation(e, "", name)
	op.Raw, op.Subresource, op.FieldManager = true, "status", registry.ComponentManager(op.User.Name)
	var version because.Revisions
	if entry, err := op.Get(ctx, ""); err == nil {
		version.Add(entry.Revision)
	}
	out, _, err := op.Update(because.With(ctx, version), false, func(_ context.Context, old runtime.Object) (runtime.Object, error) {
		crd := old.DeepCopyObject().(*apiextensionsv1.CustomResourceDefinition)
		change(crd)
		return op.TrackFields(old, crd), nil
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return out.(*apiextensionsv1.CustomResourceDefinition), nil
}

// clean removes all objects of a definition that is being deleted, and then the definition's
// finalizer.
func (c *Kinds) clean(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	say := func(status apiextensionsv1.ConditionStatus, reason, message string) error {
		_, err := c.updateDefinition(ctx, crd.Name, func(crd *apiextensionsv1.CustomResourceDefinition) {
			custom.Deleting(crd, c.Shared.Now(), status, reason, message)
		})
		return err
	}
	done, message := "InstanceDeletionCompleted", "removed all instances"
	if custom.Established(crd) {
		if err := say(apiextensionsv1.ConditionTrue, "InstanceDeletionInProgress", "CustomResource deletion is in progress"); err != nil {
			return err
		}
		if err := c.removeObjects(ctx, crd); err != nil {
			// The error of removeObjects matters more than a failure to report it.
			_ = say(apiextensionsv1.ConditionTrue, "InstanceDeletionFailed", fmt.Sprintf("could not list instances: %v", err))
			return err
		}
	} else {
		done, message = "NeverEstablished", "resource was never established"
	}
	_, err := c.updateDefinition(ctx, crd.Name, func(crd *apiextensionsv1.CustomResourceDefinition) {
		custom.Deleting(crd, c.Shared.Now(), apiextensionsv1.ConditionFalse, done, message)
		custom.Deleted(crd)
	})
	return err
}

// removeObjects deletes all objects and waits until their finalizers are removed.
func (c *Kinds) removeObjects(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	e, err := c.storageEndpoint(ctx, crd.Name)
	if err != nil || e == nil {
		return err
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		op := c.Engine.InternalOperation(e, "", "")
		op.Verb = "deletecollection"
		req, err := op.Endpoint.NewListRequest(metav1.ListOptions{})
		if err != nil {
			return err
		}
		p, err := op.DeleteCollection(ctx, &metav1.DeleteOptions{}, req)
		if err != nil {
			return err
		}
		if len(p.Entries) == 0 {
			return nil
		}
		wait(ctx, pause)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// storageEndpoint returns an endpoint of the version in which a definition's objects are stored,
// served or not; nil if the definition is gone.
func (c *Kinds) storageEndpoint(ctx context.Context, name string) (*registry.Endpoint, error) {
	reader, err := c.definitions(ctx)
	if err != nil {
		return nil, err
	}
	plural, group, _ := custom.SplitName(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.lookUp(reader, schema.GroupResource{Group: group, Resource: plural})
	if k == nil {
		return nil, nil
	}
	v, ok := k.def.Any(k.def.StorageKind().Version)
	if !ok {
		return nil, fmt.Errorf("%s has no storage version", name)
	}
	return registry.NewCustomEndpoint(c.Shared, v), nil
}
