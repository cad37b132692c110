package resource

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/resource/columns"
)

var now = metav1.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func TestRowsFitTheColumnsOfRandomObjects(t *testing.T) {
	for gr, s := range strategies {
		k, _ := api.ByResource(gr)
		k = hubOf(k)
		if s.Row == nil || len(s.Columns) == 0 {
			t.Errorf("%s has no columns", gr)
			continue
		}
		for seed := range int64(15) {
			obj := k.New()
			if seed > 0 {
				newFiller(seed).Fill(obj)
			}
			cells := s.Row(obj, now)
			if gr.Resource == "ipaddresses" {
				// The row has an age without a column, as upstream's has.
				cells = cells[:len(s.Columns)]
			}
			if len(cells) != len(s.Columns) {
				t.Fatalf("%s: %d cells for %d columns", gr, len(cells), len(s.Columns))
			}
			for i, c := range cells {
				ok := false
				switch c.(type) {
				case string:
					ok = s.Columns[i].Type == "string" || s.Columns[i].Type == "date" || s.Columns[i].Name == "Suspend"
				case int64:
					// Upstream declares many numbers as strings.
					ok = s.Columns[i].Type == "integer" || s.Columns[i].Type == "string"
				case bool:
					ok = s.Columns[i].Type == "boolean" || s.Columns[i].Type == "string"
				}
				if !ok {
					t.Fatalf("%s: column %s of type %s has a cell %#v", gr, s.Columns[i].Name, s.Columns[i].Type, c)
				}
			}
		}
	}
}

func TestPodsAsPeopleSeeThem(t *testing.T) {
	started := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	ended := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
	status := func(name string, state corev1.ContainerState, ready bool, restarts int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: state, Ready: ready, RestartCount: restarts, Started: ptr.To(ready)}
	}
	pod := func(phase corev1.PodPhase, change func(*corev1.Pod), containers ...corev1.ContainerStatus) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: ago(time.Hour)}, Status: corev1.PodStatus{Phase: phase, ContainerStatuses: containers}}
		for _, c := range containers {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c.Name})
		}
		if change != nil {
			change(p)
		}
		return p
	}
	initially := func(containers []corev1.Container, statuses ...corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers, p.Status.InitContainerStatuses = containers, statuses
		}
	}
	two := []corev1.Container{{Name: "i"}, {Name: "j"}}
	sidecar := []corev1.Container{{Name: "s", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
	crashed := status("c", waits("CrashLoopBackOff"), false, 3)
	crashed.LastTerminationState = ended(1, "Error")
	crashed.LastTerminationState.Terminated.FinishedAt = ago(5 * time.Minute)

	cases := []struct {
		name                    string
		pod                     *corev1.Pod
		ready, status, restarts string
	}{
		{"just created", pod(corev1.PodPending, func(p *corev1.Pod) { p.Spec.Containers = make([]corev1.Container, 2) }), "0/2", "Pending", "0"},
		{"gated", pod(corev1.PodPending, func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonSchedulingGated}}
		}), "0/0", "SchedulingGated", "0"},
		{"image being pulled", pod(corev1.PodPending, nil, status("c", waits("ContainerCreating"), false, 0)), "0/1", "ContainerCreating", "0"},
		{"at the second init container", pod(corev1.PodPending, initially(two, status("i", ended(0, "Completed"), true, 0), status("j", started, false, 0)),
			status("c", waits("PodInitializing"), false, 0)), "0/1", "Init:1/2", "0"},
		{"an init container fails", pod(corev1.PodPending, initially(two, status("i", ended(2, ""), false, 4))), "0/0", "Init:ExitCode:2", "4"},
		{"an init container waits for its next try", pod(corev1.PodPending, initially(two, status("i", waits("CrashLoopBackOff"), false, 1))), "0/0", "Init:CrashLoopBackOff", "1"},
		{"running", pod(corev1.PodRunning, nil, status("c", started, true, 0)), "1/1", "Running", "0"},
		{"running with a sidecar", pod(corev1.PodRunning, initially(sidecar, status("s", started, true, 1)), status("c", started, true, 0)), "2/2", "Running", "1"},
		{"crashing", pod(corev1.PodRunning, nil, crashed), "0/1", "CrashLoopBackOff", "3 (5m ago)"},
		{"one has completed, one runs", pod(corev1.PodRunning, nil, status("a", ended(0, "Completed"), false, 0), status("b", started, true, 0)), "1/2", "NotReady", "0"},
		{"completed", pod(corev1.PodSucceeded, nil, status("c", ended(0, "Completed"), false, 0)), "0/1", "Completed", "0"},
		{"killed by a signal", pod(corev1.PodFailed, nil, corev1.ContainerStatus{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Signal: 9}}}), "0/1", "Signal:9", "0"},
		{"evicted", pod(corev1.PodFailed, func(p *corev1.Pod) { p.Status.Reason = "Evicted" }), "0/0", "Evicted", "0"},
		{"being deleted", pod(corev1.PodRunning, func(p *corev1.Pod) { t := ago(0); p.DeletionTimestamp = &t }, status("c", started, true, 0)), "1/1", "Terminating", "0"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			row := podRow(c.pod, now)
			if row[1] != c.ready || row[2] != c.status || row[3] != c.restarts || row[4] != "60m" {
				t.Errorf("got %v, want ready %s, status %s, restarts %s", row, c.ready, c.status, c.restarts)
			}
		})
	}
}

func TestServicesAsPeopleSeeThem(t *testing.T) {
	cases := []struct {
		name          string
		service       corev1.Service
		external, ips string
		ports         string
	}{
		{"cluster IP", corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 80, Protocol: "TCP"}}}}, columns.None, "10.0.0.1", "80/TCP"},
		{"headless", corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "None"}}, columns.None, "None", columns.None},
		{"node port", corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080, Protocol: "TCP"}, {Port: 53, NodePort: 30053, Protocol: "UDP"}}}}, columns.None, "10.0.0.1", "80:30080/TCP,53:30053/UDP"},
		{"load balancer without address", corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.0.0.1"}}, "<pending>", "10.0.0.1", columns.None},
		{"external name", corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "a.example"}}, "a.example", columns.None, columns.None},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			row := serviceRow(&c.service, now)
			if row[2] != c.ips || row[3] != c.external || row[4] != c.ports {
				t.Errorf("got %v", row)
			}
		})
	}
}

// The wanted cells are upstream's.
func TestWhatIsNotKnownHasItsOwnCell(t *testing.T) {
	cases := []struct {
		name, manifest string
		column         int
		want           string
	}{
		{"a machine of which only the architecture is known", "apiVersion: v1\nkind: Node\nstatus: {nodeInfo: {architecture: arm64}}\n", 8, "<unknown> (arm64)"},
		{"a machine of which only the kernel is known", "apiVersion: v1\nkind: Node\nstatus: {nodeInfo: {kernelVersion: '6'}}\n", 8, "6"},
		{"a machine of which nothing is known", "apiVersion: v1\nkind: Node\n", 8, columns.Unknown},
		{"no endpoints", "apiVersion: v1\nkind: Endpoints\n", 1, columns.None},
		{"endpoints that are not ready", "apiVersion: v1\nkind: Endpoints\nsubsets: [{notReadyAddresses: [{ip: 1.1.1.1}], ports: [{port: 80}]}]\n", 1, ""},
		{"endpoints of two ports", "apiVersion: v1\nkind: Endpoints\nsubsets: [{addresses: [{ip: 1.1.1.1}, {ip: 1.1.1.2}], ports: [{port: 80}, {port: 81}]}]\n", 1, "1.1.1.1:80,1.1.1.2:80,1.1.1.1:81 + 1 more..."},
		{"a slice without ports", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n", 2, columns.Unset},
		{"a slice with a port of which nothing is said", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nports: [{}]\n", 2, columns.Unset},
		{"a parameter of whichever namespace is written to", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nspec: {paramRef: {name: a}}\n", 2, "*/a"},
		{"parameters by their labels", "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nspec: {paramRef: {selector: {matchLabels: {a: b}}}}\n", 2, "a=b"},
		{"a level without limits", "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: PriorityLevelConfiguration\nspec: {type: Exempt, exempt: {nominalConcurrencyShares: 5}}\n", 2, columns.None},
		{"a slice with such a port and others", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nports: [{}, {name: x}, {name: w, port: 80}]\n", 2, ",x,80"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			if row := s.Row(obj, now); row[c.column] != c.want {
				t.Errorf("got %q, want %q", row[c.column], c.want)
			}
		})
	}
}
