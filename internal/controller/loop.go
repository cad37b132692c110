package controller

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"

	"github.com/knarr-project/knarr/internal/client"
)

// Run subscribes to the inputs, waits for the initial state of each, and reconciles keys until ctx
// ends. All its goroutines have ended when it returns. It returns an error only for an invalid
// Loop.
func (l *Loop) Run(ctx context.Context) error {
	if l.Reconcile == nil {
		return fmt.Errorf("controller loop %s has no Reconcile", l.Name)
	}
	work := NewWorkOf(Env{Clock: l.Clock, Log: l.Log, Queues: l.Queues}, l.Name, l.Reconcile)
	work.causes.track(ctx)
	var ended, synced []<-chan struct{}
	for _, in := range l.Inputs {
		s, d := in.View.Subscribe(ctx, func(e client.Event) {
			for _, k := range in.Keys(e) {
				work.AddBecause(k, e.Revision)
			}
		})
		synced, ended = append(synced, s), append(ended, d)
	}
	for _, s := range synced {
		select {
		case <-s:
		case <-ctx.Done():
		}
	}
	var group sync.WaitGroup
	for _, source := range l.Sources {
		group.Go(func() { source(ctx, work.AddAfter) })
	}
	if l.Resync > 0 && len(l.Inputs) > 0 {
		group.Go(func() { l.resync(ctx, work) })
	}
	work.Run(ctx, l.Workers)
	group.Wait()
	for _, d := range ended {
		<-d
	}
	return nil
}

func (l *Loop) resync(ctx context.Context, work *Work[Key]) {
	var of clock.WithTicker = clock.RealClock{}
	if l.Clock != nil {
		of = l.Clock
	}
	ticker := of.NewTicker(l.Resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			first := l.Inputs[0]
			for _, obj := range first.View.List("", nil) {
				for _, k := range first.Keys(client.Event{Type: client.Modified, Old: obj, Object: obj}) {
					work.Add(k)
				}
			}
		}
	}
}

// KeyOf returns the key of an object.
func KeyOf(obj any) Key {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(fmt.Sprintf("controller: %T has no metadata: %v", obj, err))
	}
	return Key{Namespace: m.GetNamespace(), Name: m.GetName()}
}

// Self is the input whose keys are the View's own objects.
func Self[T client.Object](view client.ViewOf[T]) Input {
	return Input{View: view.View, Keys: func(e client.Event) []Key { return []Key{KeyOf(e.Object)} }}
}

// On is an input with typed events.
func On[T client.Object](view client.ViewOf[T], keys func(client.TypedEvent[T]) []Key) Input {
	return Input{View: view.View, Keys: func(e client.Event) []Key {
		t := client.TypedEvent[T]{Type: e.Type, Object: e.Object.(T)}
		if e.Old != nil {
			t.Old = e.Old.(T)
		}
		return keys(t)
	}}
}

// States calls fn for the old and the new state of an event and returns the keys without
// duplicates. An object that moves between two owners concerns both.
func States[T client.Object](fn func(T) []Key) func(client.TypedEvent[T]) []Key {
	return func(e client.TypedEvent[T]) []Key {
		keys := fn(e.Object)
		if e.Type != client.Modified {
			return keys
		}
		for _, k := range fn(e.Old) {
			if !contains(keys, k) {
				keys = append(keys, k)
			}
		}
		return keys
	}
}

func contains(keys []Key, k Key) bool {
	for _, have := range keys {
		if have == k {
			return true
		}
	}
	return false
}
