package controller_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
)

// Run must return even if lead does not, since another process is about to lead.
func TestALeaderThatLosesItsLeaseStops(t *testing.T) {
	for name, hangs := range map[string]bool{"what it leads ends": false, "what it leads does not end": true} {
		t.Run(name, func(t *testing.T) {
			c := controllertest.New(t)
			leading := controller.NewLeading("captain")
			began, release, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			defer close(release)
			go func() {
				result <- controller.Election{
					Client: c.Client, Namespace: "default", Name: "captain", Identity: "me", Leading: leading,
					LeaseDuration: 1100 * time.Millisecond, RenewDeadline: time.Second, RetryPeriod: 10 * time.Millisecond,
				}.Run(t.Context(), func(ctx context.Context) error {
					close(began)
					<-ctx.Done()
					if hangs {
						<-release
					}
					return nil
				})
			}()
			<-began
			controllertest.Retry(c, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "captain"}}, func(l *coordinationv1.Lease) {
				other, hour := "other", int32(3600)
				l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &other, &hour
			})
			if err := <-result; !errors.Is(err, controller.ErrLeadershipLost) {
				t.Errorf("it ended with %v", err)
			}
			if err := leading.Healthy(t.Context()); err != nil {
				t.Errorf("a process that does not lead must be healthy: %v", err)
			}
		})
	}
}

// hangingOnce is a client whose second update gets no answer.
type hangingOnce struct {
	client.Interface
	updates atomic.Int32
}

func (h *hangingOnce) Update(ctx context.Context, res schema.GroupVersionResource, obj runtime.Object, opts metav1.UpdateOptions, subresource ...string) (runtime.Object, error) {
	if h.updates.Add(1) == 2 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Interface.Update(ctx, res, obj, opts, subresource...)
}

func TestOneRequestWithoutAnAnswerDoesNotLoseTheLease(t *testing.T) {
	c := controllertest.New(t)
	hanging := &hangingOnce{Interface: c.Client}
	ctx, cancel := context.WithCancel(t.Context())
	err := controller.Election{
		Client: hanging, Namespace: "default", Name: "captain", Identity: "me",
		RenewDeadline: 2 * time.Second, RetryPeriod: 10 * time.Millisecond,
	}.Run(ctx, func(ctx context.Context) error {
		for hanging.updates.Load() < 4 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
		return nil
	})
	if err != nil || hanging.updates.Load() < 4 {
		t.Errorf("after %d updates: %v", hanging.updates.Load(), err)
	}
}
