package spec

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestResolvConfFollowsThePodsPolicyAndSettings(t *testing.T) {
	host := DNS{Servers: []string{"192.0.2.1"}, Searches: []string{"example.com"}, Options: []string{"ndots:1", "rotate"}}
	cluster := []string{"10.43.0.10"}
	ndots, edns := "2", corev1.PodDNSConfigOption{Name: "edns0"}
	config := &corev1.PodDNSConfig{
		Nameservers: []string{"10.42.0.9"}, Searches: []string{"resolv.conf.local"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: &ndots}, edns},
	}
	own := []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com"}
	for _, c := range []struct {
		name        string
		policy      corev1.DNSPolicy
		config      *corev1.PodDNSConfig
		hostNetwork bool
		want        DNS
	}{
		{"None has only the pod's settings", corev1.DNSNone, config, false,
			DNS{Servers: []string{"10.42.0.9"}, Searches: []string{"resolv.conf.local"}, Options: []string{"ndots:2", "edns0"}}},
		{"ClusterFirst has the cluster's names before the host's", corev1.DNSClusterFirst, nil, false, DNS{Servers: cluster, Searches: own, Options: []string{"ndots:5"}}},
		{"settings are added to ClusterFirst and replace its options", corev1.DNSClusterFirst, config, false,
			DNS{Servers: []string{"10.43.0.10", "10.42.0.9"}, Searches: append(append([]string{}, own...), "resolv.conf.local"), Options: []string{"ndots:2", "edns0"}}},
		{"ClusterFirst on the host's network is Default", corev1.DNSClusterFirst, nil, true, host},
		{"ClusterFirstWithHostNet is not", corev1.DNSClusterFirstWithHostNet, nil, true, DNS{Servers: cluster, Searches: own, Options: []string{"ndots:5"}}},
		{"Default is the host's", corev1.DNSDefault, nil, false, host},
		{"settings are added to Default", corev1.DNSDefault, config, false,
			DNS{Servers: []string{"192.0.2.1", "10.42.0.9"}, Searches: []string{"example.com", "resolv.conf.local"}, Options: []string{"rotate", "ndots:2", "edns0"}}},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: corev1.PodSpec{DNSPolicy: c.policy, DNSConfig: c.config, HostNetwork: c.hostNetwork}}
		got, warnings := PodDNS(pod, host, cluster, "cluster.local")
		if len(warnings) > 0 || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v %v, want %+v", c.name, got, warnings, c.want)
		}
	}
}

func TestTooManyNameserversAreLeftOut(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{DNSPolicy: corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"}}}}
	got, warnings := PodDNS(pod, DNS{}, nil, "")
	if len(got.Servers) != maxNameservers || len(warnings) != 1 || !strings.Contains(warnings[0], "1.1.1.1 1.1.1.2 1.1.1.3") {
		t.Errorf("%v %v", got, warnings)
	}
}
