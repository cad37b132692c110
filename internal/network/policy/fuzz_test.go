package policy

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/knarr-project/knarr/internal/api/bounds"
)

// FuzzPlan plans for policies and pods that validation would refuse.
func FuzzPlan(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"n","name":"a b;{"},"spec":{"podSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]},{"key":"!","operator":"?"}]},"policyTypes":["Ingress","Egress"],
		"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16","x"]}},{"podSelector":{},"namespaceSelector":{}}],"ports":[{"port":"http"},{"port":80,"endPort":70},{"protocol":"X","port":-1}]}],
		"egress":[{"to":[{"ipBlock":{"cidr":"::/0","except":["fd00::/8"]}},{}]},{}]}}`),
		[]byte(`{"metadata":{"namespace":"n","name":"p","labels":{"a":"b"}},"spec":{"nodeName":"here","containers":[{"ports":[{"name":"http","containerPort":80},{"name":"http","containerPort":-1,"protocol":"UDP"}]}]},"status":{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"},{"ip":"::ffff:1.2.3.4"},{"ip":"x"}]}}`))
	f.Add([]byte(`{"metadata":{"namespace":"n"},"spec":{}}`), []byte(`{"metadata":{"namespace":"n"},"spec":{"nodeName":"here"},"status":{"podIPs":[{"ip":"fe80::1%eth0"}]}}`))
	f.Fuzz(func(t *testing.T, policy, pod []byte) {
		var np networkingv1.NetworkPolicy
		var p corev1.Pod
		if bounds.Document(pod, &p) != nil {
			return // the API server refuses such quantities
		}
		if json.Unmarshal(policy, &np) != nil || json.Unmarshal(pod, &p) != nil {
			return
		}
		ns := &corev1.Namespace{}
		ns.Name = p.Namespace
		out, _ := inputs{node: "here", policies: []*networkingv1.NetworkPolicy{&np}, pods: []*corev1.Pod{&p}, namespaces: []*corev1.Namespace{ns}}.plan()
		for d, w := range out.jumps {
			for addr, chain := range w {
				rules, known := out.chains[chain]
				if !known || !addr.IsValid() {
					t.Errorf("%s of %s leads to the missing chain %q", d, addr, chain)
				}
				for _, r := range rules {
					for _, name := range []string{r.peers, r.named} {
						if _, known := out.sets[name]; !known && name != "" {
							t.Errorf("%+v names a missing set", r)
						}
					}
				}
			}
		}
	})
}
