package dra

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	claimhelper "k8s.io/dynamic-resource-allocation/resourceclaim"
)

// use is a claim that a container uses.
type use struct {
	label   corev1.ResourceName // in the container's status
	object  string              // name of the ResourceClaim
	request string              // "" means all requests
}

// uses lists the claims that a container uses.
func uses(pod *corev1.Pod, c *corev1.Container) []use {
	var out []use
	for _, ref := range c.Resources.Claims {
		i := slices.IndexFunc(pod.Spec.ResourceClaims, func(p corev1.PodResourceClaim) bool { return p.Name == ref.Name })
		if i < 0 {
			continue
		}
		object, _, err := claimhelper.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || object == nil {
			continue // Prepare has reported the error; without an object the pod needs no claim
		}
		label := "claim:" + ref.Name
		if ref.Request != "" {
			label += "/" + ref.Request
		}
		out = append(out, use{corev1.ResourceName(label), *object, ref.Request})
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		for _, mapping := range s.RequestMappings {
			if mapping.ContainerName == c.Name {
				out = append(out, use{corev1.ResourceName(mapping.ResourceName), s.ResourceClaimName, mapping.RequestName})
			}
		}
	}
	return out
}

// Claim is the devices of one claim that a container uses.
type Claim struct {
	Namespace, Name string
	// Devices maps each driver to its devices.
	Devices map[string][]Device
}

// find returns the devices of one use, or false if the claim is unknown. The caller holds m.mu.
func (m *Manager) find(pod types.UID, namespace string, u use) (Claim, bool) {
	for _, s := range m.claims {
		if s.namespace != namespace || s.name != u.object || !s.pods[pod] {
			continue
		}
		c := Claim{Namespace: s.namespace, Name: s.name, Devices: map[string][]Device{}}
		for driver, devices := range s.drivers {
			for _, d := range devices {
				if d.serves(u.request) {
					c.Devices[driver] = append(c.Devices[driver], d)
				}
			}
		}
		return c, true
	}
	return Claim{}, false
}

// serves reports whether the device belongs to a request. A request with alternatives has devices
// of the request "NAME/ALTERNATIVE".
func (d *Device) serves(request string) bool {
	return request == "" || len(d.Requests) == 0 || slices.ContainsFunc(d.Requests, func(r string) bool {
		name, _, _ := strings.Cut(r, "/")
		return r == request || name == request
	})
}

// CDI returns the CDI devices of a container.
func (m *Manager) CDI(pod *corev1.Pod, c *corev1.Container) ([]string, error) {
	var out []string
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range uses(pod, c) {
		claim, ok := m.find(pod.UID, pod.Namespace, u)
		if !ok {
			return nil, fmt.Errorf("ResourceClaim %s/%s is not prepared", pod.Namespace, u.object)
		}
		for _, driver := range slices.Sorted(maps.Keys(claim.Devices)) {
			for _, d := range claim.Devices[driver] {
				out = append(out, d.CDI...)
			}
		}
	}
	return out, nil
}

// Claims returns the claims that a container uses, for the pod-resources API.
func (m *Manager) Claims(pod *corev1.Pod, c *corev1.Container) []Claim {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Claim
	for _, u := range uses(pod, c) {
		if claim, ok := m.find(pod.UID, pod.Namespace, u); ok {
			out = append(out, claim)
		}
	}
	return out
}

// Health returns the health of the devices that a container has by claims.
func (m *Manager) Health(pod *corev1.Pod, c *corev1.Container) []corev1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []corev1.ResourceStatus
	for _, u := range uses(pod, c) {
		claim, ok := m.find(pod.UID, pod.Namespace, u)
		if !ok {
			continue
		}
		i := slices.IndexFunc(out, func(s corev1.ResourceStatus) bool { return s.Name == u.label })
		if i < 0 {
			i = len(out)
			out = append(out, corev1.ResourceStatus{Name: u.label})
		}
		for _, driver := range slices.Sorted(maps.Keys(claim.Devices)) {
			for _, d := range claim.Devices[driver] {
				h := corev1.ResourceHealth{ResourceID: d.id(driver), Health: corev1.ResourceHealthStatusUnknown}
				if known, ok := m.health[deviceKey{driver, d.Pool, d.Device}]; ok {
					h.Health = known.state
					if known.message != "" {
						message := known.message
						h.Message = &message
					}
				}
				if !slices.ContainsFunc(out[i].Resources, func(have corev1.ResourceHealth) bool { return have.ResourceID == h.ResourceID }) {
					out[i].Resources = append(out[i].Resources, h)
				}
			}
		}
	}
	return out
}

// id identifies the device in a container's status.
func (d *Device) id(driver string) corev1.ResourceID {
	id := driver + "/" + d.Pool + "/" + d.Device
	if d.ShareID != "" {
		id += "/" + d.ShareID
	}
	return corev1.ResourceID(id)
}
