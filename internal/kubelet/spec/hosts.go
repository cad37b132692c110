package spec

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// HostsFile writes the pod's /etc/hosts below its folder and returns its path.
func HostsFile(podDir string, pod *corev1.Pod, ips []string, clusterDomain string) (string, error) {
	path := filepath.Join(podDir, "etc-hosts")
	var content []byte
	if pod.Spec.HostNetwork {
		host, err := os.ReadFile("/etc/hosts")
		if err != nil && !os.IsNotExist(err) {
			return "", err
		}
		content = append([]byte("# Kubernetes-managed hosts file (host network).\n"), host...)
	} else {
		hostname, domain, err := Hostname(pod, clusterDomain)
		if err != nil {
			return "", err
		}
		content = managedHosts(ips, hostname, domain)
	}
	content = append(content, aliases(pod.Spec.HostAliases)...)
	if sameContent(path, content) {
		return path, nil
	}
	return path, os.WriteFile(path, content, 0o644)
}

// sameContent reports whether a file has exactly this content. Containers can write to the file, so
// sameContent reads no more than the expected size.
func sameContent(path string, content []byte) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	held, err := io.ReadAll(io.LimitReader(file, int64(len(content))+1))
	return err == nil && bytes.Equal(held, content)
}

func managedHosts(ips []string, hostname, domain string) []byte {
	var b bytes.Buffer
	b.WriteString("# Kubernetes-managed hosts file.\n")
	b.WriteString("127.0.0.1\tlocalhost\n")
	b.WriteString("::1\tlocalhost ip6-localhost ip6-loopback\n")
	b.WriteString("fe00::0\tip6-localnet\n")
	b.WriteString("fe00::0\tip6-mcastprefix\n")
	b.WriteString("fe00::1\tip6-allnodes\n")
	b.WriteString("fe00::2\tip6-allrouters\n")
	for _, ip := range ips {
		if domain != "" {
			fmt.Fprintf(&b, "%s\t%s.%s\t%s\n", ip, hostname, domain, hostname)
		} else {
			fmt.Fprintf(&b, "%s\t%s\n", ip, hostname)
		}
	}
	return b.Bytes()
}

func aliases(list []corev1.HostAlias) []byte {
	if len(list) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("\n# Entries added by HostAliases.\n")
	for _, a := range list {
		fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
	return b.Bytes()
}
