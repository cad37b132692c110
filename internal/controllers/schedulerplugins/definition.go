// Package schedulerplugins serves the kind SchedulerPlugin: it makes its CustomResourceDefinition.
// The scheduler itself reads the objects.
//
// internal/schedulerplugin owns the kind. ADR 102 has the reasons.
package schedulerplugins

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/schedulerplugin"
)

const name = "scheduler-plugin-definition-controller"

// Definition creates the definition, or updates that of another version. It repeats what fails,
// such as while the store does not answer.
var Definition = controller.Starter{Name: name, Run: func(ctx context.Context, env controller.Env) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		err := controller.EnsureDefinition(ctx, env.Client, schedulerplugin.Definition())
		if apierrors.IsForbidden(err) { // another vendor's API server has no role for it
			env.Logger().Warn("the kind SchedulerPlugin is not served", "controller", name, "error", err)
		}
		if err == nil || apierrors.IsForbidden(err) {
			<-ctx.Done()
			return nil
		}
		env.Logger().Warn("cannot define the kind SchedulerPlugin", "controller", name, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}}
