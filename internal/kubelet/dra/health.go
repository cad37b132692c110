package dra

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
)

const (
	// healthTimeout is how long a report counts if the driver names no other time.
	healthTimeout = 30 * time.Second
	// maxHealthTimeout limits the time that a driver names.
	maxHealthTimeout = 24 * time.Hour
	maxHealthDelay   = 10 * time.Second
)

type deviceKey struct{ driver, pool, device string }

// deviceHealth is the last report about a device.
type deviceHealth struct {
	state   corev1.ResourceHealthStatus
	message string
	until   time.Time // afterwards the health is unknown
}

// watchHealth follows the driver's reports until ctx ends or the driver has none.
func (m *Manager) watchHealth(ctx context.Context, d *driver, service healthapi.DRAResourceHealthClient) {
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, maxHealthDelay) {
		stream, err := service.NodeWatchResources(ctx, &healthapi.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
		for err == nil {
			var report *healthapi.NodeWatchResourcesResponse
			if report, err = m.next(ctx, d, stream); err == nil {
				m.reported(d.name, report)
				wait = time.Second
			}
		}
		if status.Code(err) == codes.Unimplemented {
			m.Log.Info("a DRA driver does not report the health of devices", "driver", d.name)
			return
		}
		m.forgetHealth(d.name)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// next returns the next report. While it waits, devices whose reports are too old become unknown.
func (m *Manager) next(ctx context.Context, d *driver, stream grpc.ServerStreamingClient[healthapi.NodeWatchResourcesResponse]) (*healthapi.NodeWatchResourcesResponse, error) {
	type result struct {
		report *healthapi.NodeWatchResourcesResponse
		err    error
	}
	got := make(chan result, 1)
	go func() {
		report, err := stream.Recv()
		got <- result{report, err}
	}()
	for {
		timer := make(<-chan time.Time)
		if at := m.nextExpiry(d.name); !at.IsZero() {
			timer = time.After(time.Until(at))
		}
		select {
		case r := <-got:
			return r.report, r.err
		case <-ctx.Done():
			r := <-got // the stream ends with ctx
			return r.report, r.err
		case <-timer:
			m.expire(d.name)
		}
	}
}

// reported takes over a complete report of a driver. Devices that it does not list keep their
// health until it is too old.
func (m *Manager) reported(name string, report *healthapi.NodeWatchResourcesResponse) {
	now := time.Now()
	m.change(name, func(health map[deviceKey]deviceHealth) {
		for _, d := range report.GetDevices() {
			h := deviceHealth{state: corev1.ResourceHealthStatusUnknown, message: shorten(d.GetMessage()), until: now.Add(healthTimeout)}
			switch d.GetHealth() {
			case healthapi.HealthStatus_HEALTHY:
				h.state = corev1.ResourceHealthStatusHealthy
			case healthapi.HealthStatus_UNHEALTHY:
				h.state = corev1.ResourceHealthStatusUnhealthy
			}
			if s := d.GetHealthCheckTimeoutSeconds(); s > 0 {
				h.until = now.Add(time.Duration(min(s, int64(maxHealthTimeout/time.Second))) * time.Second)
			}
			health[deviceKey{name, d.GetDevice().GetPoolName(), d.GetDevice().GetDeviceName()}] = h
		}
	})
}

// shorten cuts a message to the API's limit.
func shorten(message string) string {
	if len(message) <= corev1.ResourceHealthMessageMaxLength {
		return message
	}
	cut := corev1.ResourceHealthMessageMaxLength - len("...")
	for cut > 0 && message[cut]&0xc0 == 0x80 {
		cut-- // do not cut a character in two
	}
	return message[:cut] + "..."
}

// nextExpiry returns when the first of the driver's reports becomes too old; zero means never.
func (m *Manager) nextExpiry(name string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	var first time.Time
	for key, h := range m.health {
		if key.driver == name && (first.IsZero() || h.until.Before(first)) {
			first = h.until
		}
	}
	return first
}

// expire forgets the driver's reports that are too old.
func (m *Manager) expire(name string) {
	now := time.Now()
	m.change(name, func(health map[deviceKey]deviceHealth) {
		maps.DeleteFunc(health, func(key deviceKey, h deviceHealth) bool { return key.driver == name && !now.Before(h.until) })
	})
}

// forgetHealth makes the health of all devices of a driver unknown.
func (m *Manager) forgetHealth(name string) {
	m.change(name, func(health map[deviceKey]deviceHealth) {
		maps.DeleteFunc(health, func(key deviceKey, _ deviceHealth) bool { return key.driver == name })
	})
}

// change changes the health of a driver's devices and tells the pods that use them.
func (m *Manager) change(name string, fn func(map[deviceKey]deviceHealth)) {
	m.mu.Lock()
	before := maps.Clone(m.health)
	fn(m.health)
	touched := map[types.UID]bool{}
	for _, s := range m.claims {
		for _, d := range s.drivers[name] {
			key := deviceKey{name, d.Pool, d.Device}
			if a, b := before[key], m.health[key]; a.state != b.state || a.message != b.message {
				maps.Copy(touched, s.pods)
			}
		}
	}
	m.mu.Unlock()
	if len(touched) > 0 && m.Touched != nil {
		m.Touched(slices.Collect(maps.Keys(touched)))
	}
}
