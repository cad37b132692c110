package controller_test

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
