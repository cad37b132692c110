package spec

import (
	"bufio"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits of resolv.conf.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// DNS is the content of a resolv.conf.
type DNS struct{ Servers, Searches, Options []string }

// CRI converts to the runtime's type.
func (d DNS) CRI() *runtimeapi.DNSConfig {
	return &runtimeapi.DNSConfig{Servers: d.Servers, Searches: d.Searches, Options: d.Options}
}

// ReadResolvConf reads a resolv.conf. The path "" gives an empty one.
func ReadResolvConf(path string) (DNS, error) {
	var d DNS
	if path == "" {
		return d, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return d, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			if len(fields) == 1 && fields[0] == "search" {
				d.Searches = nil
			}
			continue
		}
		switch fields[0] {
		case "nameserver":
			d.Servers = append(d.Servers, fields[1])
		case "search":
			d.Searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					s = strings.TrimSuffix(s, ".")
				}
				d.Searches = append(d.Searches, s)
			}
		case "options":
			d.Options = append(d.Options, fields[1:]...)
		}
	}
	return d, lines.Err()
}

// PodDNS computes the pod's resolv.conf from its dnsPolicy and dnsConfig. Warnings name the parts
// that had to be left out.
func PodDNS(pod *corev1.Pod, host DNS, clusterDNS []string, clusterDomain string) (d DNS, warnings []string) {
	policy := pod.Spec.DNSPolicy
	if policy == corev1.DNSClusterFirst && pod.Spec.HostNetwork {
		policy = corev1.DNSDefault
	}
	if policy == corev1.DNSClusterFirstWithHostNet || policy == "" {
		policy = corev1.DNSClusterFirst
	}
	if policy == corev1.DNSClusterFirst && len(clusterDNS) == 0 {
		warnings = append(warnings, `kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`)
		policy = corev1.DNSDefault
	}
	switch policy {
	case corev1.DNSNone:
	case corev1.DNSClusterFirst:
		d.Servers = clusterDNS
		if clusterDomain != "" {
			d.Searches = []string{pod.Namespace + ".svc." + clusterDomain, "svc." + clusterDomain, clusterDomain}
		}
		d.Searches = unique(append(d.Searches, host.Searches...))
		d.Options = []string{"ndots:5"}
	default:
		d = DNS{Servers: host.Servers, Searches: host.Searches, Options: host.Options}
		if len(d.Servers) == 0 && policy == corev1.DNSDefault && len(host.Servers) == 0 {
			d.Servers = []string{"127.0.0.1"}
		}
	}
	if c := pod.Spec.DNSConfig; c != nil {
		d.Servers = unique(append(append([]string{}, d.Servers...), c.Nameservers...))
		d.Searches = unique(append(append([]string{}, d.Searches...), c.Searches...))
		d.Options = mergeOptions(d.Options, c.Options)
	}
	if len(d.Servers) > maxNameservers {
		d.Servers = d.Servers[:maxNameservers]
		warnings = append(warnings, "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "+strings.Join(d.Servers, " "))
	}
	if n := fit(d.Searches); n < len(d.Searches) {
		d.Searches = d.Searches[:n]
		warnings = append(warnings, "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "+strings.Join(d.Searches, " "))
	}
	return d, warnings
}

func fit(searches []string) int {
	chars := 0
	for i, s := range searches {
		chars += len(s) + 1
		if i >= maxSearches || chars-1 > maxSearchChars {
			return i
		}
	}
	return len(searches)
}

func mergeOptions(have []string, want []corev1.PodDNSConfigOption) []string {
	var out []string
	overridden := map[string]bool{}
	for _, o := range want {
		overridden[o.Name] = true
	}
	for _, o := range have {
		name, _, _ := strings.Cut(o, ":")
		if !overridden[name] {
			out = append(out, o)
		}
	}
	for _, o := range want {
		if o.Value != nil {
			out = append(out, o.Name+":"+*o.Value)
		} else {
			out = append(out, o.Name)
		}
	}
	return out
}

func unique(in []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, s := range in {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
