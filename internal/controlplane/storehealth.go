package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// watched adds the settings of the store's quota, and of the watch over its disk.
func (s *Server) watched(o etcd.Options) etcd.Options {
	s.slowDisk = make(chan etcd.SlowDisk, 1)
	root := s.cfg.StoreRoot()
	o.Quota = s.cfg.StoreQuotaBytes()
	// Heartbeats and elections: without them nodes are lost, and their pods are replaced.
	o.Vital = []string{root + "/leases/", root + "/masterleases/", root + "/knarr/"}
	o.OnSlowDisk = func(slow etcd.SlowDisk) {
		select {
		case s.slowDisk <- slow:
		default: // the last report waits for the API server
		}
	}
	return o
}

// storeHealth is a health check beside the store's answers. Nil if the store is outside.
func (s *Server) storeHealth() func() error {
	if s.engine == nil {
		return nil
	}
	return s.engine.Health
}

func (s *Server) storeMetrics() []prometheus.Collector {
	if s.engine == nil {
		return nil
	}
	return s.engine.Metrics()
}

// failed is closed when the embedded store has failed for good. It is nil if the store is outside.
func (s *Server) failed() <-chan struct{} {
	if s.engine == nil {
		return nil
	}
	return s.engine.Failed()
}

// whyFailed explains why the embedded store has failed. The process ends then, for only a new one
// can open the store again. If the disk was full, it first waits for space: the node in the same
// process removes images and pods to make some.
func (s *Server) whyFailed(ctx context.Context) error {
	err := fmt.Errorf("the store has failed: %w", s.engine.Failure())
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	s.log.Error("the store waits for disk space; then the process ends and has to be started again", "component", "store", "error", err)
	poll := time.NewTicker(time.Second)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return err
		case <-poll.C:
			if free := etcd.FreeBytes(s.cfg.Path("etcd")); free < 0 || free > 2*etcd.DiskReserve {
				return err
			}
		}
	}
}

// reportSlowDisks writes an event on this server's Node for each report of a slow disk.
func (s *Server) reportSlowDisks(ctx context.Context) error {
	if s.engine == nil {
		return nil
	}
	events := client.NewRecorder(s.own(), "knarr", s.cfg.NodeName)
	done := make(chan struct{})
	go func() { defer close(done); events.Run(ctx) }()
	defer func() { <-done }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case slow := <-s.slowDisk:
			node, err := client.Get[*corev1.Node](ctx, s.own(), "", s.cfg.NodeName)
			if err != nil {
				continue // a server without a node has the log alone
			}
			events.Eventf(node, nil, corev1.EventTypeWarning, "SlowStoreDisk", "", "%s", slow.String())
		}
	}
}
