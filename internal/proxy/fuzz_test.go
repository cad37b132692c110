package proxy

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// FuzzPlan plans for Services and slices that validation would refuse. A cluster's store may have
// been written by another server.
func FuzzPlan(f *testing.F) {
	f.Add([]byte(`{"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1","fd00::1"],"ipFamilies":["IPv4","IPv6"],"type":"LoadBalancer","externalIPs":["1.2.3.4","x"],"sessionAffinity":"ClientIP",
		"loadBalancerSourceRanges":[" 10.0.0.0/8","y/99"],"externalTrafficPolicy":"Local","healthCheckNodePort":1,"ports":[{"name":"a;b\" {","port":80,"nodePort":30000,"protocol":"SCTP"},{"port":-1,"targetPort":"x"}]},
		"status":{"loadBalancer":{"ingress":[{"ip":"::1"},{"hostname":"h"}]}}}`), []byte(`{"addressType":"IPv4","ports":[{"name":"a;b\" {","port":8080,"protocol":"SCTP"},{}],"endpoints":[{"addresses":["10.1.1.1"],"conditions":{"serving":true},"nodeName":"n"},{"addresses":[]}]}`))
	f.Add([]byte(`{"spec":{"clusterIP":"fd00::1","ports":[{"port":1}]}}`), []byte(`{"addressType":"IPv6","ports":[{"port":70000}],"endpoints":[{"addresses":["::ffff:1.2.3.4","fe80::1%eth0"]}]}`))
	f.Fuzz(func(t *testing.T, service, slice []byte) {
		var svc corev1.Service
		var eps discoveryv1.EndpointSlice
		if json.Unmarshal(service, &svc) != nil || json.Unmarshal(slice, &eps) != nil {
			return
		}
		p := plan(&svc, []*discoveryv1.EndpointSlice{&eps}, self{})
		for at, how := range p.frontends {
			if !at.addr.IsValid() {
				t.Errorf("a frontend without address: %+v", at)
			}
			if _, known := p.groups[how.group]; !known && !how.refuse && !how.drop {
				t.Errorf("%+v leads to the missing group %+v", at, how.group)
			}
		}
	})
}
