package dra

import (
	"context"
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// resourceSlices is the resource of ResourceSlices.
var resourceSlices = resourcev1.SchemeGroupVersion.WithResource("resourceslices")

// Run removes the ResourceSlices of drivers that do not register after the start. It returns when
// that is done or ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		names, err := m.publishers(ctx)
		if err == nil {
			for name := range names {
				m.presence(ctx, name)
			}
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		m.Log.Warn("cannot list the node's ResourceSlices; trying again", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// publishers returns the drivers that have ResourceSlices of this node.
func (m *Manager) publishers(ctx context.Context) (map[string]bool, error) {
	list, err := m.Client.List(ctx, resourceSlices, "", metav1.ListOptions{FieldSelector: m.ofNode("")})
	if err != nil {
		return nil, err
	}
	slices, ok := list.(*resourcev1.ResourceSliceList)
	if !ok {
		return nil, fmt.Errorf("list of ResourceSlices: got %T", list)
	}
	names := map[string]bool{}
	for i := range slices.Items {
		names[slices.Items[i].Spec.Driver] = true
	}
	return names, nil
}

// ofNode selects the ResourceSlices of this node and of one driver; "" means all drivers.
func (m *Manager) ofNode(driver string) string {
	set := fields.Set{resourcev1.ResourceSliceSelectorNodeName: m.NodeName}
	if driver != "" {
		set[resourcev1.ResourceSliceSelectorDriver] = driver
	}
	return set.AsSelector().String()
}

// presence plans the removal of the ResourceSlices of a driver without a connected instance, or
// cancels it.
func (m *Manager) presence(life context.Context, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	present := false
	for _, d := range m.drivers[name] {
		present = present || d.connected
	}
	stop := m.absent[name]
	switch {
	case present && stop != nil:
		stop()
		delete(m.absent, name)
	case !present && stop == nil && life.Err() == nil:
		ctx, cancel := context.WithCancel(life)
		m.absent[name] = cancel
		go m.wipe(ctx, name)
	}
}

// wipe removes the driver's ResourceSlices after a delay, unless ctx ends before.
func (m *Manager) wipe(ctx context.Context, name string) {
	for wait := m.WipeDelay; ; wait = min(max(time.Second, 2*wait), time.Minute) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		err := m.Client.DeleteCollection(ctx, resourceSlices, "", metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: m.ofNode(name)})
		if err == nil {
			m.Log.Info("removed the ResourceSlices of a driver that is gone", "driver", name)
			return
		}
		if ctx.Err() == nil {
			m.Log.Warn("cannot remove the ResourceSlices of a driver that is gone; trying again", "driver", name, "error", err)
		}
	}
}
