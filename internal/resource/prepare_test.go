package resource

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestGenerationCountsChangesOfSpec(t *testing.T) {
	s := deploymentStrategy()
	d := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 7}}
	s.PrepareCreate(d)
	if d.Generation != 1 || d.Status.Replicas != 0 {
		t.Fatalf("created: generation %d, status %+v", d.Generation, d.Status)
	}
	d.Status.Replicas = 2
	for _, c := range []struct {
		name   string
		change func(*appsv1.Deployment)
		want   int64
	}{
		{"nothing", func(*appsv1.Deployment) {}, 1},
		{"status", func(d *appsv1.Deployment) { d.Status.Replicas = 9 }, 1},
		{"labels", func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }, 1},
		{"annotations", func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "b"} }, 2},
		{"spec", func(d *appsv1.Deployment) { d.Spec.Paused = true }, 2},
		{"generation itself", func(d *appsv1.Deployment) { d.Generation = 99 }, 1},
	} {
		changed := d.DeepCopy()
		c.change(changed)
		s.PrepareUpdate(changed, d)
		if changed.Generation != c.want || changed.Status.Replicas != 2 {
			t.Errorf("%s: generation %d, want %d; status %+v", c.name, changed.Generation, c.want, changed.Status)
		}
	}
	status := d.DeepCopy()
	status.Spec.Paused, status.Status.Replicas = true, 5
	s.PrepareStatus(status, d)
	if status.Spec.Paused || status.Status.Replicas != 5 || status.Generation != 1 {
		t.Errorf("status update: %+v", status)
	}
}

func TestDaemonSetsCountTheirTemplates(t *testing.T) {
	s := daemonSetStrategy()
	d := &appsv1.DaemonSet{}
	s.PrepareCreate(d)
	changed := d.DeepCopy()
	changed.Annotations = nil
	changed.Spec.Template.Labels = map[string]string{"a": "b"}
	s.PrepareUpdate(changed, d)
	if a, b := d.Annotations[appsv1.DeprecatedTemplateGeneration], changed.Annotations[appsv1.DeprecatedTemplateGeneration]; a != "1" || b != "2" {
		t.Errorf("%q, then %q", a, b)
	}
	for name, annotations := range map[string]map[string]string{"no": nil, "another": {appsv1.DeprecatedTemplateGeneration: "7"}} {
		status := changed.DeepCopy()
		status.Annotations = annotations
		status.Spec.MinReadySeconds, status.Status.NumberReady = 3, 2
		s.PrepareStatus(status, changed)
		if got := status.Annotations[appsv1.DeprecatedTemplateGeneration]; got != "2" || status.Spec.MinReadySeconds != 0 || status.Status.NumberReady != 2 {
			t.Errorf("a status with %s count makes it %q, of %+v", name, got, status)
		}
	}
}

func TestJobsOwnTheirPodsByLabels(t *testing.T) {
	s := jobStrategy()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "pi", UID: "u"}}
	s.Default(j)
	s.PrepareCreate(j)
	for _, key := range []string{batchv1.ControllerUidLabel, "controller-uid"} {
		if j.Spec.Template.Labels[key] != "u" {
			t.Errorf("labels %v", j.Spec.Template.Labels)
		}
	}
	if got := j.Spec.Selector.MatchLabels; len(got) != 1 || got[batchv1.ControllerUidLabel] != "u" {
		t.Errorf("selector %v", got)
	}
	manual := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "pi", UID: "u"}, Spec: batchv1.JobSpec{ManualSelector: ptr.To(true)}}
	s.PrepareCreate(manual)
	if manual.Spec.Selector != nil || manual.Spec.Template.Labels != nil {
		t.Errorf("a manual selector was changed: %+v", manual.Spec)
	}
	if s.DefaultPropagation != metav1.DeletePropagationOrphan {
		t.Error("batch/v1 orphans pods by default")
	}
}

func TestServicesKeepWhatTheServerHasAllocated(t *testing.T) {
	s := serviceStrategy()
	old := &corev1.Service{Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"},
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
		Ports: []corev1.ServicePort{{Name: "a", Port: 80, Protocol: corev1.ProtocolTCP, NodePort: 30080}, {Name: "b", Port: 53, Protocol: corev1.ProtocolUDP, NodePort: 30053}},
	}}
	t.Run("a manifest without addresses", func(t *testing.T) {
		n := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{
			{Name: "b", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "c", Port: 81, Protocol: corev1.ProtocolTCP}}}}
		s.PrepareUpdate(n, old)
		if n.Spec.ClusterIP != "10.0.0.1" || len(n.Spec.ClusterIPs) != 1 || n.Spec.Ports[0].NodePort != 30053 || n.Spec.Ports[1].NodePort != 0 {
			t.Errorf("%+v", n.Spec)
		}
	})
	t.Run("to a cluster IP", func(t *testing.T) {
		n := old.DeepCopy()
		n.Spec.Type = corev1.ServiceTypeClusterIP
		s.PrepareUpdate(n, old)
		if n.Spec.Ports[0].NodePort != 0 || n.Spec.ExternalTrafficPolicy != "" || n.Spec.ClusterIP == "" {
			t.Errorf("%+v", n.Spec)
		}
	})
	t.Run("to an external name", func(t *testing.T) {
		n := old.DeepCopy()
		n.Spec.Type, n.Spec.ExternalName = corev1.ServiceTypeExternalName, "a.example"
		s.PrepareUpdate(n, old)
		if n.Spec.ClusterIP != "" || n.Spec.ClusterIPs != nil || n.Spec.Ports[0].NodePort != 0 || n.Spec.IPFamilies != nil {
			t.Errorf("%+v", n.Spec)
		}
	})
}

func TestPodsMeanLabelsAsTheyWere(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a", "hash": "1"}}, Spec: corev1.PodSpec{
		SchedulingGates:           []corev1.PodSchedulingGate{{Name: "g"}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"hash", "none"}}},
		Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{}, MismatchLabelKeys: []string{"app"}}}}}},
	}}
	podStrategy().PrepareCreate(p)
	spread := p.Spec.TopologySpreadConstraints[0].LabelSelector.MatchExpressions
	if len(spread) != 1 || spread[0].Key != "hash" || spread[0].Operator != metav1.LabelSelectorOpIn || spread[0].Values[0] != "1" {
		t.Errorf("spread %v", spread)
	}
	anti := p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector.MatchExpressions
	if len(anti) != 1 || anti[0].Operator != metav1.LabelSelectorOpNotIn {
		t.Errorf("anti-affinity %v", anti)
	}
	if p.Status.Phase != corev1.PodPending || p.Status.QOSClass != corev1.PodQOSBestEffort || p.Status.Conditions[0].Reason != corev1.PodReasonSchedulingGated {
		t.Errorf("status %+v", p.Status)
	}
}

func TestPodSubresourcesChangeTheirPartOnly(t *testing.T) {
	one := func(cpu string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
	}
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 4}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Resources: one("1")}}}}
	n := old.DeepCopy()
	n.Labels = map[string]string{"a": "b"}
	n.Spec.Containers[0].Image, n.Spec.Containers[0].Resources = "other", one("2")
	n.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
	s := podStrategy()

	resized := n.DeepCopy()
	s.Subresource["resize"].Prepare(resized, old)
	if c := resized.Spec.Containers[0]; c.Image != "i" || c.Resources.Requests.Cpu().Value() != 2 || resized.Labels != nil || resized.Spec.EphemeralContainers != nil || resized.Generation != 5 {
		t.Errorf("resize: %+v", resized)
	}
	debugged := n.DeepCopy()
	s.Subresource["ephemeralcontainers"].Prepare(debugged, old)
	if c := debugged.Spec.Containers[0]; c.Image != "i" || c.Resources.Requests.Cpu().Value() != 1 || len(debugged.Spec.EphemeralContainers) != 1 || debugged.Generation != 5 {
		t.Errorf("ephemeralcontainers: %+v", debugged)
	}
}

func TestHowLongAPodMayTakeToEnd(t *testing.T) {
	cases := []struct {
		name  string
		pod   corev1.Pod
		asked *int64
		want  int64
	}{
		{"as it says itself", corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", TerminationGracePeriodSeconds: ptr.To(int64(30))}}, nil, 30},
		{"as the client says", corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", TerminationGracePeriodSeconds: ptr.To(int64(30))}}, ptr.To(int64(5)), 5},
		{"negative is one second", corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}, ptr.To(int64(-1)), 1},
		{"nowhere yet", corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(30))}}, nil, 0},
		{"over already", corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}}, ptr.To(int64(9)), 0},
	}
	for _, c := range cases {
		if got, graceful := podGrace(&c.pod, &metav1.DeleteOptions{GracePeriodSeconds: c.asked}); got != c.want || !graceful {
			t.Errorf("%s: %d, %v", c.name, got, graceful)
		}
	}
}

func TestOnlyTheApprovalSubresourceApproves(t *testing.T) {
	s := certificateRequestStrategy()
	old := &certificatesv1.CertificateSigningRequest{}
	approved := &certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{
		Certificate: []byte("x"), Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}}}
	status := approved.DeepCopy()
	s.PrepareStatus(status, old)
	if errs := s.ValidateStatus(status, old); len(errs) == 0 || len(status.Status.Certificate) == 0 {
		t.Errorf("status: %+v %v", status.Status, errs)
	}
	s.Subresource["approval"].Prepare(approved, old)
	if len(approved.Status.Conditions) != 1 || len(approved.Status.Certificate) != 0 {
		t.Errorf("approval: %+v", approved.Status)
	}
}

func TestNamespacesAreNamedInTheirLabels(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelMetadataName: "other"}}}
	s := namespaceStrategy()
	s.Default(ns)
	s.PrepareCreate(ns)
	if ns.Labels[corev1.LabelMetadataName] != "n" || len(ns.Spec.Finalizers) != 1 || ns.Status.Phase != corev1.NamespaceActive {
		t.Errorf("%+v", ns)
	}
}

func TestWhatDriversSayOfDevicesGoesWithTheirAllocation(t *testing.T) {
	s := resourceClaimStrategy()
	old := &resourcev1.ResourceClaim{}
	old.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d", Pool: "p", Device: "a"}}}}
	old.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d", Pool: "p", Device: "a"}}
	freed := old.DeepCopy()
	freed.Status.Allocation = nil
	s.PrepareStatus(freed, old)
	if len(freed.Status.Devices) > 0 {
		t.Errorf("left: %+v", freed.Status.Devices)
	}
	kept := old.DeepCopy()
	s.PrepareStatus(kept, old)
	if len(kept.Status.Devices) != 1 {
		t.Error("what is said of allocated devices is gone")
	}
}
