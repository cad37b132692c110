package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"runtime"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controlplane"
	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/scheduler"
	"github.com/knarr-project/knarr/internal/scheduler/settings"
)

// Scheduler runs the scheduler alone, while its lease makes it the leader. Profiles and extenders
// of a changed configuration file count at once; connection and lease need a restart.
func Scheduler(ctx context.Context, p Params) error {
	const name = "kube-scheduler"
	metrics := scheduler.NewMetrics()
	source, err := scheduler.OpenSource(ctx, p.Config.SchedulerConfig, metrics, p.Log.With("component", name))
	if err != nil {
		return err
	}
	c := source.Current()
	source.Lease = types.NamespacedName{Namespace: c.LeaderElection.ResourceNamespace, Name: c.LeaderElection.ResourceName}
	if c.Given.EnableProfiling != nil && !*c.Given.EnableProfiling {
		return errors.New("scheduler configuration: enableProfiling: false is not usable: /debug/pprof is always served to users with the right to it; --secure-port=0 serves nothing")
	}
	if on := c.Given.EnableContentionProfiling; on != nil && *on {
		runtime.SetBlockProfileRate(1)
	}
	configz, err := asMap(c)
	if err != nil {
		return err
	}
	p.Config.Kubeconfig = cmp.Or(p.Config.Kubeconfig, c.ClientConnection.Kubeconfig)
	served := &component{name: name, leading: controller.NewLeading(name), collectors: metrics.Collectors(), configzName: "componentconfig", configz: configz}
	return p.aloneWith(ctx, "scheduler", served, func(to *rest.Config) { connect(to, c) }, func(ctx context.Context, to client.Interface, _ *rest.Config) error {
		work := func(ctx context.Context) error {
			return controlplane.RunScheduler(because.Track(ctx), to, source, p.Config.DataDir, metrics, config.EnabledGates(p.Config.APIServer.FeatureGates), p.Log)
		}
		return process.Alongside(ctx, process.Part(source.Run), func(ctx context.Context) error {
			le := &c.LeaderElection
			if !*le.LeaderElect {
				return work(ctx)
			}
			return elect(ctx, controller.Election{
				Client: to, Namespace: le.ResourceNamespace, Name: le.ResourceName, Leading: served.leading,
				LeaseDuration: le.LeaseDuration.Duration, RenewDeadline: le.RenewDeadline.Duration, RetryPeriod: le.RetryPeriod.Duration,
			}, work)
		})
	})
}

// connect takes the given fields of clientConnection. Without a limit there is none: the server has
// flow control.
func connect(to *rest.Config, c *settings.Configuration) {
	given := &c.Given.ClientConnection
	to.AcceptContentTypes, to.ContentType = given.AcceptContentTypes, given.ContentType
	if given.QPS != 0 {
		to.QPS, to.Burst = given.QPS, int(c.ClientConnection.Burst)
	}
}

// asMap returns the configuration for /configz.
func asMap(c *settings.Configuration) (map[string]any, error) {
	text, err := json.Marshal(&c.KubeSchedulerConfiguration)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, json.Unmarshal(text, &out)
}
