package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
)

// callTimeout is the deadline of calls of drivers, as upstream.
const callTimeout = 45 * time.Second

// Prepare prepares the devices of the pod's claims.
func (m *Manager) Prepare(ctx context.Context, pod *corev1.Pod) error {
	if !Used(pod) {
		return nil
	}
	list, err := claims(ctx, m.Client, pod)
	if err != nil {
		return err
	}
	states, release := m.enter(pod, list)
	defer release()
	if err := m.save(); err != nil {
		return fmt.Errorf("prepare dynamic resources: %w", err)
	}
	if err := m.call(ctx, states, m.prepareBy); err != nil {
		return fmt.Errorf("prepare dynamic resources: %w", err)
	}
	m.mu.Lock()
	for _, s := range states {
		s.prepared = true
	}
	m.mu.Unlock()
	if err := m.save(); err != nil {
		return fmt.Errorf("prepare dynamic resources: %w", err)
	}
	return nil
}

// enter notes that the pod uses the claims. It returns the claims that are not prepared, locked
// until release.
func (m *Manager) enter(pod *corev1.Pod, list []podClaim) (unprepared []*claimState, release func()) {
	for {
		all := m.note(pod, list)
		for _, s := range all {
			s.op.Lock()
		}
		release := func() {
			for _, s := range all {
				s.op.Unlock()
			}
		}
		again := false
		var unprepared []*claimState
		m.mu.Lock()
		for _, s := range all {
			again = again || s.gone
			if !s.prepared {
				unprepared = append(unprepared, s)
			}
		}
		m.mu.Unlock()
		if !again {
			return unprepared, release
		}
		release() // a claim was unprepared for another pod meanwhile
	}
}

func (m *Manager) note(pod *corev1.Pod, list []podClaim) []*claimState {
	m.mu.Lock()
	defer m.mu.Unlock()
	var states []*claimState
	for _, c := range list {
		s := m.claims[c.claim.UID]
		if s == nil {
			s = &claimState{uid: c.claim.UID, namespace: c.claim.Namespace, name: c.claim.Name, pods: map[types.UID]bool{}, drivers: map[string][]Device{}}
			for _, result := range c.claim.Status.Allocation.Devices.Results {
				s.drivers[result.Driver] = nil
			}
			m.claims[s.uid] = s
		}
		s.pods[pod.UID] = true
		if !slices.Contains(states, s) {
			states = append(states, s)
		}
	}
	sortClaims(states)
	return states
}

// call calls each driver once, with all its claims.
func (m *Manager) call(ctx context.Context, states []*claimState, fn func(context.Context, *driver, []*claimState) error) error {
	byDriver := map[string][]*claimState{}
	m.mu.Lock()
	for _, s := range states {
		for name := range s.drivers {
			byDriver[name] = append(byDriver[name], s)
		}
	}
	m.mu.Unlock()
	names := slices.Sorted(maps.Keys(byDriver))
	for _, name := range names {
		if m.driver(name) == nil {
			return fmt.Errorf("DRA driver %s is not registered", name)
		}
	}
	var errs []error
	for _, name := range names {
		d := m.driver(name)
		if d == nil {
			errs = append(errs, fmt.Errorf("DRA driver %s is not registered", name))
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		err := fn(ctx, d, byDriver[name])
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("driver %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func request(states []*claimState) []*draapi.Claim {
	var out []*draapi.Claim
	for _, s := range states {
		out = append(out, &draapi.Claim{Namespace: s.namespace, Name: s.name, Uid: string(s.uid)})
	}
	return out
}

func (m *Manager) prepareBy(ctx context.Context, d *driver, states []*claimState) error {
	answer, err := d.service.NodePrepareResources(ctx, &draapi.NodePrepareResourcesRequest{Claims: request(states)})
	if err != nil {
		return fmt.Errorf("NodePrepareResources: %w", err)
	}
	var errs []error
	for _, s := range states {
		result := answer.GetClaims()[string(s.uid)]
		switch {
		case result == nil:
			errs = append(errs, fmt.Errorf("NodePrepareResources skipped ResourceClaim %s", s.name))
			continue
		case result.Error != "":
			errs = append(errs, fmt.Errorf("NodePrepareResources failed for ResourceClaim %s: %s", s.name, result.Error))
			continue
		}
		devices := []Device{}
		for _, device := range result.Devices {
			devices = append(devices, Device{
				Pool: device.GetPoolName(), Device: device.GetDeviceName(), ShareID: device.GetShareId(), Requests: device.GetRequestNames(), CDI: device.GetCdiDeviceIds(),
			})
		}
		m.mu.Lock()
		s.drivers[d.name] = devices
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Unprepare notes that the pod does not use its claims any more. A claim that no pod uses is
// unprepared.
func (m *Manager) Unprepare(ctx context.Context, pod types.UID) error {
	states := m.of(pod)
	if len(states) == 0 {
		return nil
	}
	for _, s := range states {
		s.op.Lock()
		defer s.op.Unlock()
	}
	m.mu.Lock()
	unused := slices.DeleteFunc(slices.Clone(states), func(s *claimState) bool { return s.gone || len(s.pods) > 1 || !s.pods[pod] })
	for _, s := range unused {
		s.prepared = false
	}
	m.mu.Unlock()
	if err := m.call(ctx, unused, m.unprepareBy); err != nil {
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	m.mu.Lock()
	for _, s := range states {
		delete(s.pods, pod)
		if len(s.pods) == 0 && !s.gone {
			s.gone = true
			delete(m.claims, s.uid)
		}
	}
	m.mu.Unlock()
	if err := m.save(); err != nil {
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) unprepareBy(ctx context.Context, d *driver, states []*claimState) error {
	answer, err := d.service.NodeUnprepareResources(ctx, &draapi.NodeUnprepareResourcesRequest{Claims: request(states)})
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources: %w", err)
	}
	var errs []error
	for _, s := range states {
		result, ok := answer.GetClaims()[string(s.uid)]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("NodeUnprepareResources skipped ResourceClaim %s", s.name))
		case result.GetError() != "":
			errs = append(errs, fmt.Errorf("NodeUnprepareResources failed for ResourceClaim %s: %s", s.name, result.Error))
		}
	}
	return errors.Join(errs...)
}
