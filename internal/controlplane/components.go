package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controllers"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/scheduler"
	"github.com/knarr-project/knarr/internal/scheduler/wasm"
	"github.com/knarr-project/knarr/internal/store"
)

// StartControllers runs the controllers while this server leads: StartLeadership must run.
func (s *Server) StartControllers(ctx context.Context) (func() error, error) {
	cfg, chosen := ControllerConfig(s.cfg), controllers.All(s.controllers)
	if s.choose != nil {
		chosen = slices.DeleteFunc(chosen, func(starter controller.Starter) bool { return !s.choose(starter.Name) })
	}
	cfg.Live, cfg.Servers = s.authority, s.serverNames
	if s.signer == nil {
		cfg.LegacyToken, cfg.LegacyTokenStale = s.tokens.LegacyToken, s.tokens.Stale
	}
	env := controller.Env{Config: cfg, Clock: s.clock, Log: s.log.With("component", "controllers"), Queues: s.controllers.Queues}
	return process.Background(func(ctx context.Context) error {
		return s.led(ctx, "kube-controller-manager", auth.UserControllers, func(ctx context.Context, fence *store.Fence) error {
			// One View per kind serves all controllers. Each controller writes under its own name.
			views := s.fenced(auth.Component(auth.UserControllers), fence)
			return runChosen(ctx, chosen, env, func(account string) (client.Interface, error) {
				if strings.HasPrefix(account, "system:") {
					return controller.Split(views, s.fenced(auth.Component(account), fence)), nil
				}
				return controller.Split(views, s.fenced(auth.ServiceAccount("kube-system", account), fence)), nil
			})
		})
	})(ctx)
}

// fenced returns a client for a component in this process that leads. Its calls are counted in the
// API server's metrics, and its writes are refused after the leader's term.
func (s *Server) fenced(user auth.User, fence *store.Fence) client.Interface {
	return s.calls.Client(s.api.FencedClient(user, fence), s.cfg.Listen)
}

func ControllerConfig(cfg *config.Config) controller.Config {
	return controller.Config{
		ClusterName: "knarr", Gates: config.EnabledGates(cfg.APIServer.FeatureGates), PodCIDR: cfg.PodCIDR, NodeCIDRMaskSize: 24, ServiceCIDR: cfg.ServiceCIDR, ClusterDomain: cfg.ClusterDomain,
		LoadBalancerPool: cfg.LoadBalancerPool, NodeListens: nodeListens(cfg),
		ClusterSigningTime: cfg.Controllers.SigningDuration.Duration, NodeMonitorGrace: cfg.NodeMonitorGrace.Duration, TerminatedPodLimit: 12500, LegacyTokenPeriod: cfg.LegacyTokenPeriod.Duration,
		LocalStorage: cfg.LocalStorage, Architecture: cfg.Architecture,
		Elsewhere: func(kind schema.GroupResource) bool { return cfg.Elsewhere(kind.Group, kind.Resource) },
	}
}

// nodeListens names the ports of knarr on nodes' addresses. A Service must not take them.
func nodeListens(cfg *config.Config) map[string]string {
	ports := map[string]string{"TCP/10250": "the node's HTTPS API", "UDP/8472": "the pod network"}
	for at, use := range map[string]string{cfg.Listen: "the API server", cfg.KubeletListen: "the node's HTTPS API"} {
		if a, err := netip.ParseAddrPort(at); err == nil {
			ports[fmt.Sprintf("TCP/%d", a.Port())] = use
		}
	}
	return ports
}

// RunControllers runs every controller. Each has a client and an event recorder under its own name.
func RunControllers(ctx context.Context, cfg controller.Config, metrics *controllers.Metrics, clientFor func(account string) (client.Interface, error)) error {
	return runChosen(ctx, controllers.All(metrics), controller.Env{Config: cfg, Queues: metrics.Queues}, clientFor)
}

// runChosen runs some controllers in env, without those whose feature gate is off. Each gets its
// own client and event recorder.
func runChosen(ctx context.Context, chosen []controller.Starter, env controller.Env, clientFor func(account string) (client.Interface, error)) error {
	chosen = slices.DeleteFunc(slices.Clone(chosen), func(s controller.Starter) bool { return s.Gate != "" && !slices.Contains(env.Config.Gates, s.Gate) })
	ctx, cancel := context.WithCancel(ctx)
	var recorders sync.WaitGroup
	defer recorders.Wait()
	defer cancel()
	return controller.RunAll(ctx, chosen, func(s controller.Starter) (controller.Env, error) {
		c, err := clientFor(cmp.Or(s.Account, s.Name))
		if err != nil {
			return controller.Env{}, err
		}
		events := client.NewRecorder(c, cmp.Or(s.EventSource, s.Name), "")
		recorders.Go(func() { events.Run(ctx) })
		own := env
		own.Client, own.Events = c, events
		return own, nil
	})
}

// StartScheduler runs the scheduler while this server leads: StartLeadership must run.
func (s *Server) StartScheduler(ctx context.Context) (func() error, error) {
	source, err := scheduler.OpenSource(ctx, s.cfg.SchedulerConfig, s.scheduling, s.log.With("component", "scheduler"))
	if err != nil {
		return nil, err
	}
	return process.Background(func(ctx context.Context) error {
		return process.Alongside(ctx, process.Part(source.Run), func(ctx context.Context) error {
			return s.led(ctx, "kube-scheduler", auth.UserScheduler, func(ctx context.Context, fence *store.Fence) error {
				return RunScheduler(ctx, s.fenced(auth.Component(auth.UserScheduler), fence), source, s.cfg.DataDir, s.scheduling, config.EnabledGates(s.cfg.APIServer.FeatureGates), s.log)
			})
		})
	})(ctx)
}

// RunScheduler runs the scheduler, its event recorder and its plugins until ctx ends. gates are
// the feature gates that are on besides the defaults.
func RunScheduler(ctx context.Context, c client.Interface, source *scheduler.Source, dataDir string, metrics *scheduler.Metrics, gates []string, log *slog.Logger) error {
	events := client.NewSeriesRecorder(c, "default-scheduler", "")
	s := scheduler.New(scheduler.Config{Client: c, Events: events, Logger: log.With("component", "scheduler"), Metrics: metrics, Gates: gates})
	release, err := source.Use(s)
	if err != nil {
		return err
	}
	defer release()
	plugins := wasm.NewManager(wasm.Config{
		Client: c, Events: events, Folder: filepath.Join(dataDir, "scheduler-plugins"), Extend: s.Extend, Reject: s.RejectWaiting, Log: log.With("component", "scheduler"),
	})
	return process.Alongside(ctx, process.Part(events.Run), s.Run, plugins.Run)
}
