package pleg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"strings"
	"sync"

	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Relist periods. With a live event stream the relist is only a safety net.
const (
	relistWithEvents    = 10 * time.Second
	relistWithoutEvents = time.Second
)

// Generator turns the runtime's events and listings into Updates.
type Generator struct {
	Runtime internalapi.RuntimeService
	// Sink receives the updates; it must not block.
	Sink func(Update)
	// Known returns the Digest of what is known of a pod, so that a relist only reports pods that
	// differ. ok is false for unknown pods.
	Known func(uid types.UID) (digest string, ok bool)
	// Pods lists the pods of which anything is known.
	Pods func() []types.UID
	// Relisted measures a successful relist: how long it took, and the time since the one before;
	// may be nil.
	Relisted func(took, since time.Duration)
	Log      *slog.Logger

	streaming atomic.Bool
	relisted  atomic.Int64 // unix nanoseconds of the last successful relist
}

// Run streams events and relists until ctx ends. The caller must have called Relist once.
func (g *Generator) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		g.stream(ctx)
	}()
	defer wg.Wait()
	wait := relistWithoutEvents
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err := g.Relist(ctx); err != nil && ctx.Err() == nil {
			g.Log.Warn("cannot list the runtime's pods", "error", err)
		}
		wait = relistWithoutEvents
		if g.streaming.Load() {
			wait = relistWithEvents
		}
	}
}

// Healthy returns an error if the runtime has not answered for three minutes.
func (g *Generator) Healthy(now time.Time) error {
	relisted := g.relisted.Load()
	if relisted == 0 {
		return errors.New("PLEG is not healthy: pleg has yet to be successful")
	}
	last := time.Unix(0, relisted)
	if age := now.Sub(last); age > 3*time.Minute {
		return fmt.Errorf("PLEG is not healthy: pleg was last seen active %v ago; threshold is 3m0s", age.Round(time.Second))
	}
	return nil
}

// stream reads the runtime's event stream and reopens it when it breaks.
func (g *Generator) stream(ctx context.Context) {
	for ctx.Err() == nil {
		events := make(chan *runtimeapi.ContainerEventResponse, 256)
		ended := make(chan error, 1)
		go func() {
			ended <- g.Runtime.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) {
				g.streaming.Store(true)
				g.Log.Debug("streaming the runtime's events")
			})
		}()
		err := g.drain(events, ended)
		wasStreaming := g.streaming.Swap(false)
		if ctx.Err() != nil {
			return
		}
		g.Log.Warn("the runtime's event stream ended; falling back to listing", "error", err)
		wait := 5 * time.Second
		if wasStreaming {
			wait = 200 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (g *Generator) drain(events <-chan *runtimeapi.ContainerEventResponse, ended <-chan error) error {
	for {
		select {
		case e := <-events:
			g.event(e)
		case err := <-ended:
			for {
				select {
				case e := <-events:
					g.event(e)
				default:
					return err
				}
			}
		}
	}
}

func (g *Generator) event(e *runtimeapi.ContainerEventResponse) {
	if e == nil || e.PodSandboxStatus == nil && len(e.ContainersStatuses) == 0 {
		return
	}
	u := Update{SandboxOf: map[string]string{}, Asked: time.Now()}
	if s := e.PodSandboxStatus; s != nil {
		u.UID, u.Namespace, u.Name = types.UID(s.Metadata.GetUid()), s.Metadata.GetNamespace(), s.Metadata.GetName()
		u.Sandboxes = append(u.Sandboxes, s)
	}
	for _, c := range e.ContainersStatuses {
		if u.UID == "" {
			u.UID, u.Namespace, u.Name = PodOf(c.Labels)
		}
		if e.PodSandboxStatus != nil {
			u.SandboxOf[c.Id] = e.PodSandboxStatus.Id
		}
		u.Containers = append(u.Containers, c)
	}
	if e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		u.Removed = append(u.Removed, e.ContainerId)
	}
	if u.UID != "" {
		g.Sink(u)
	}
}

// Relist lists everything in the runtime and sends the sink the pods that changed since the last
// relist.
func (g *Generator) Relist(ctx context.Context) error {
	asked := time.Now()
	sandboxes, err := g.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return fmt.Errorf("list pod sandboxes: %w", err)
	}
	containers, err := g.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	members := map[types.UID]*listed{}
	at := func(labels map[string]string) *listed {
		uid, ns, name := PodOf(labels)
		if members[uid] == nil {
			members[uid] = &listed{namespace: ns, name: name}
		}
		return members[uid]
	}
	for _, s := range sandboxes {
		m := at(s.Labels)
		m.sandboxes = append(m.sandboxes, s)
	}
	for _, c := range containers {
		m := at(c.Labels)
		m.containers = append(m.containers, c)
	}
	delete(members, "") // containers that belong to no pod
	for uid, m := range members {
		if known, ok := g.Known(uid); ok && known == m.digest() {
			continue
		}
		u, err := g.inspect(ctx, uid, m, asked)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			g.Log.Debug("cannot inspect a pod in the runtime", "pod", m.namespace+"/"+m.name, "error", err)
			continue // part of the pod has just been removed; the next relist inspects it again
		}
		g.Sink(u)
	}
	for _, uid := range g.Pods() {
		if members[uid] == nil {
			g.Sink(Update{UID: uid, Complete: true, Asked: asked})
		}
	}
	now := time.Now()
	last := g.relisted.Swap(now.UnixNano())
	if g.Relisted != nil {
		since := time.Duration(0)
		if last > 0 {
			since = now.Sub(time.Unix(0, last))
		}
		g.Relisted(now.Sub(asked), since)
	}
	return nil
}

type listed struct {
	namespace, name string
	sandboxes       []*runtimeapi.PodSandbox
	containers      []*runtimeapi.Container
}

func (m *listed) digest() string {
	var parts []string
	for _, s := range m.sandboxes {
		parts = append(parts, s.Id+"="+s.State.String())
	}
	for _, c := range m.containers {
		parts = append(parts, c.Id+"="+c.State.String())
	}
	return join(parts)
}

// Digest returns a text that changes when a container or sandbox of the pod appears, disappears or
// changes its state.
func Digest(sandboxes []*Sandbox, containers []*Container) string {
	var parts []string
	for _, s := range sandboxes {
		parts = append(parts, s.Id+"="+s.State.String())
	}
	for _, c := range containers {
		parts = append(parts, c.Id+"="+c.State.String())
	}
	return join(parts)
}

func join(parts []string) string {
	sort.Strings(parts)
	return strings.Join(parts, ",")
}

func (g *Generator) inspect(ctx context.Context, uid types.UID, m *listed, asked time.Time) (Update, error) {
	u := Update{UID: uid, Namespace: m.namespace, Name: m.name, SandboxOf: map[string]string{}, Complete: true, Asked: asked}
	for _, s := range m.sandboxes {
		resp, err := g.Runtime.PodSandboxStatus(ctx, s.Id, false)
		if err != nil {
			return u, fmt.Errorf("status of sandbox %s: %w", s.Id, err)
		}
		u.Sandboxes = append(u.Sandboxes, resp.Status)
	}
	for _, c := range m.containers {
		resp, err := g.Runtime.ContainerStatus(ctx, c.Id, false)
		if err != nil {
			return u, fmt.Errorf("status of container %s: %w", c.Id, err)
		}
		u.SandboxOf[c.Id] = c.PodSandboxId
		u.Containers = append(u.Containers, resp.Status)
	}
	return u, nil
}
