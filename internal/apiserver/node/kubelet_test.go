package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNodesAreReachedAtThePreferredAddresses(t *testing.T) {
	worker := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "one"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.9"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
	}}}
	for name, tc := range map[string]struct {
		order []corev1.NodeAddressType
		want  string
	}{
		"addresses before names":         {nil, "192.0.2.1"},
		"as configured":                  {[]corev1.NodeAddressType{corev1.NodeInternalDNS, corev1.NodeHostName, corev1.NodeInternalIP}, "one"},
		"no address of the wanted types": {[]corev1.NodeAddressType{corev1.NodeInternalDNS}, ""},
	} {
		if got, err := nodeAddress(worker, tc.order); got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
