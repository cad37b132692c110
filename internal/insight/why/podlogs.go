package why

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Causes that the last lines of a container's log name. Programs have no common words for them: the
// words here are those of the C library, Go, Java, Node.js and Python.
const (
	causePortInUse     = "container-port-in-use"
	causeReadOnlyRoot  = "container-read-only-file-system"
	causeDiskFull      = "container-disk-full"
	causeFileAccess    = "container-file-permission"
	causeFileMissing   = "container-file-missing"
	causeConfiguration = "container-configuration"
	causeDependency    = "container-dependency"
	causeCertificate   = "container-certificate"
	causeCredentials   = "container-credentials"
	causeHeap          = "container-heap"
)

// logWords classify a line of a log, in lower case.
var logWords = []struct {
	cause   string
	pattern *regexp.Regexp
	problem string
	remedy  string
}{
	{causePortInUse, regexp.MustCompile(`address already in use|eaddrinuse|port [0-9]+ (is|was) already`), "its port is in use in the pod's network",
		"Containers of a pod share its network: give each another port. With hostNetwork, free the port on the node."},
	{causeReadOnlyRoot, regexp.MustCompile(`read-only file ?system|erofs`), "it writes to a read-only file system",
		"Mount a volume, such as an emptyDir, at the folder, or unset readOnlyRootFilesystem."},
	{causeDiskFull, regexp.MustCompile(`no space left on device|enospc|disk quota exceeded`), "its disk is full", "Enlarge the volume, or free space on it."},
	{causeFileAccess, regexp.MustCompile(`permission denied|eacces|accessdeniedexception|operation not permitted`), "it may not use a file or a system call",
		"Set securityContext.fsGroup or runAsUser so that the user of the program owns the file, or add the capability."},
	{causeConfiguration, regexp.MustCompile(`\bvariable\b.*\b(not set|required|missing|undefined|unset|empty)\b|\b(required|missing|undefined|unset)\b.*\b(variable|env|configuration|setting|option|flag)\b|\benv\b.*\b(not set|required|missing)\b|keyerror: '[a-z0-9_]+'`),
		"a setting is missing", "Set the variable or the option that the log names: env or args of the container."},
	{causeFileMissing, regexp.MustCompile(`no such file or directory|enoent|filenotfound|file not found|cannot find module|modulenotfounderror`), "a file or folder is missing",
		"Mount the file, or correct the path that the log names: env, args or volumeMounts of the container."},
	{causeCertificate, regexp.MustCompile(`x509:|certificate (has expired|is not trusted|signed by unknown|verify failed)|certificate_verify_failed|unable to get local issuer certificate`), "a certificate is not accepted",
		"Renew the certificate, or give the program the CA that signed it."},
	{causeCredentials, regexp.MustCompile(`(password )?authentication failed|access denied for user|invalid (credentials|password|username)|login failed|wrongpass|noauth|\bunauthorized\b`), "another program refuses its credentials",
		"Correct the user and password that the program gets: the Secret or the variables."},
	{causeHeap, regexp.MustCompile(`outofmemoryerror|heap out of memory|memoryerror|cannot allocate memory`), "its memory is used up within its limits",
		"Raise the limit of the program's heap and resources.limits.memory, or make the program use less."},
	{causeDependency, regexp.MustCompile(`connection refused|econnrefused|no such host|enotfound|i/o timeout|connection timed out|etimedout|name or service not known|temporary failure in name resolution|could not connect|connect: no route to host|unknownhostexception`),
		"it does not reach another program", "Start that program, or correct its address; look for NetworkPolicies between them."},
}

var (
	lookedUp = regexp.MustCompile(`(?:lookup |getaddrinfo enotfound |host )"?([a-z0-9][a-z0-9.-]{0,252})`)
	dialled  = regexp.MustCompile(`([0-9]{1,3}(?:\.[0-9]{1,3}){3}):[0-9]+`)
)

// fromLog makes the finding on a crash more exact by the newest line of the log that says why.
func fromLog(s *Snapshot, p *corev1.Pod, container string, f *Finding, log string) {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for _, line := range slices.Backward(lines) {
		lower := strings.ToLower(line)
		for _, w := range logWords {
			if !w.pattern.MatchString(lower) {
				continue
			}
			f.Cause, f.Remedy = w.cause, w.remedy
			f.Problem = strings.Replace(f.Problem, "container "+container+" ended", "container "+container+": "+w.problem+"; it ended", 1)
			if w.cause == causeDependency {
				f.links = dependencyLinks(s, p.Namespace, lower)
			}
			return
		}
	}
}

// dependencyLinks links to the Service that a line names by its name or address.
func dependencyLinks(s *Snapshot, namespace, line string) []Link {
	if m := lookedUp.FindStringSubmatch(line); m != nil {
		name, rest, _ := strings.Cut(strings.Trim(m[1], "."), ".")
		if other, _, _ := strings.Cut(rest, "."); other != "" && strings.Contains(rest, ".svc") {
			namespace = other
		}
		if _, presence := get[*corev1.Service](s, namespace, name); presence == Found || presence == Absent && (rest == "" || strings.Contains(rest, ".svc")) {
			return []Link{{Object: Ref{"Service", namespace, name}}}
		}
		return nil
	}
	m := dialled.FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	address, err := netip.ParseAddr(m[1])
	if err != nil {
		return nil
	}
	services, _ := list[*corev1.Service](s, namespace)
	for _, svc := range services {
		if svc.Spec.ClusterIP == address.String() {
			return []Link{{Object: refTo(svc)}}
		}
	}
	return nil
}
