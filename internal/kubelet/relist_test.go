package kubelet

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/fake"
	"github.com/knarr-project/knarr/internal/kubelet/pleg"
)

// listingCRI is a runtime without events. Before it makes a sandbox or container it records a
// listing, so that tests can deliver a listing from before the change.
type listingCRI struct {
	*fake.CRI
	mu       sync.Mutex
	listings []pleg.Update
}

func (r *listingCRI) GetContainerEvents(context.Context, chan *runtimeapi.ContainerEventResponse, func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	return errors.New("there are no events")
}

func (r *listingCRI) RunPodSandbox(ctx context.Context, c *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	r.list(ctx)
	return r.CRI.RunPodSandbox(ctx, c, handler)
}

func (r *listingCRI) CreateContainer(ctx context.Context, sandbox string, c *runtimeapi.ContainerConfig, s *runtimeapi.PodSandboxConfig) (string, error) {
	r.list(ctx)
	return r.CRI.CreateContainer(ctx, sandbox, c, s)
}

// list records what a relist would return now.
func (r *listingCRI) list(ctx context.Context) {
	u := pleg.Update{Complete: true, Asked: time.Now()}
	sandboxes, _ := r.ListPodSandbox(ctx, nil)
	for _, s := range sandboxes {
		if resp, err := r.PodSandboxStatus(ctx, s.Id, false); err == nil {
			u.Sandboxes = append(u.Sandboxes, resp.Status)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listings = append(r.listings, u)
}

func TestAStaleListingDoesNotRemoveWhatWasMadeSince(t *testing.T) {
	for name, which := range map[string]int{"a sandbox": 0, "a container": 1} {
		t.Run(name, func(t *testing.T) {
			var cri *listingCRI
			b := newBench(t, func(b *bench) {
				cri = &listingCRI{CRI: b.cri}
				b.cfg.Runtime = cri
			})
			b.create(pod("one"))
			p := b.await("one", "ready", ready)
			cri.mu.Lock()
			late := cri.listings[which]
			cri.mu.Unlock()
			late.UID, late.Namespace, late.Name = p.UID, p.Namespace, p.Name
			b.k.observe(late)
			b.delete("one")
			b.gone("one")
			calls := "\n" + strings.Join(b.cri.Log(), "\n") + "\n"
			for _, once := range []string{"sandbox one-0", "start main-0", "stop main-0"} {
				if n := strings.Count(calls, "\n"+once+"\n"); n != 1 {
					t.Errorf("%q was called %d times, wanted once; calls:%s", once, n, calls)
				}
			}
			if !strings.Contains(calls, "\nstop sandbox one\n") {
				t.Errorf("the sandbox was not stopped; calls:%s", calls)
			}
		})
	}
}
