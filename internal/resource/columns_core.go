package resource

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

var serviceColumns = columns.Define("Name", "Type@spec.type", "Cluster-IP@spec.clusterIP", "External-IP@spec.externalIPs", "Port(s)@spec.ports", "Age", "+Selector@spec.selector")

func serviceRow(s *corev1.Service, now metav1.Time) []any {
	ip := columns.None
	if len(s.Spec.ClusterIPs) > 0 {
		ip = s.Spec.ClusterIPs[0]
	} else if s.Spec.ClusterIP != "" {
		ip = s.Spec.ClusterIP
	}
	ports := make([]string, 0, len(s.Spec.Ports))
	for _, p := range s.Spec.Ports {
		text := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.NodePort > 0 {
			text = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
		ports = append(ports, text)
	}
	return []any{s.Name, string(s.Spec.Type), ip, externalIP(s), columns.OrNone(strings.Join(ports, ",")), columns.AgeOf(s, now), labels.FormatLabels(s.Spec.Selector)}
}

func externalIP(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		all := loadBalancerAddresses(s.Status.LoadBalancer.Ingress)
		all = append(all, s.Spec.ExternalIPs...)
		if len(all) == 0 {
			return "<pending>"
		}
		return strings.Join(all, ",")
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return columns.OrNone(strings.Join(s.Spec.ExternalIPs, ","))
	}
	return columns.Unknown
}

func loadBalancerAddresses(ingress []corev1.LoadBalancerIngress) []string {
	var all []string
	for _, in := range ingress {
		switch {
		case in.IP != "":
			all = append(all, in.IP)
		case in.Hostname != "":
			all = append(all, in.Hostname)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

var nodeColumns = columns.Define("Name", "Status=The status of the node", "Roles=The roles of the node", "Age", "Version@status.nodeInfo.kubeletVersion",
	"+Internal-IP@status.addresses", "+External-IP@status.addresses", "+OS-Image@status.nodeInfo.osImage", "+Kernel-Version@status.nodeInfo.kernelVersion",
	"+Container-Runtime@status.nodeInfo.containerRuntimeVersion")

// kernel returns the kernel's version and the machine's architecture.
func kernel(info *corev1.NodeSystemInfo) string {
	version := cmp.Or(info.KernelVersion, columns.Unknown)
	if info.Architecture == "" {
		return version
	}
	return version + " (" + info.Architecture + ")"
}

func nodeRow(n *corev1.Node, now metav1.Time) []any {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status = "NotReady"
			if c.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	address := func(kind corev1.NodeAddressType) string {
		for _, a := range n.Status.Addresses {
			if a.Type == kind {
				return a.Address
			}
		}
		return columns.None
	}
	info := &n.Status.NodeInfo
	return []any{
		n.Name, status, columns.OrNone(strings.Join(nodeRoles(n), ",")), columns.AgeOf(n, now), info.KubeletVersion,
		address(corev1.NodeInternalIP), address(corev1.NodeExternalIP), cmp.Or(info.OSImage, columns.Unknown), kernel(info), cmp.Or(info.ContainerRuntimeVersion, columns.Unknown),
	}
}

func nodeRoles(n *corev1.Node) []string {
	var roles []string
	for key, value := range n.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		} else if key == "kubernetes.io/role" && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

var eventColumns = columns.Define("Last Seen@lastTimestamp", "Type@type", "Reason@reason", "Object@involvedObject", "+Subobject@involvedObject.fieldPath", "+Source@source", "Message@message",
	"+First Seen@firstTimestamp", "+Count@count", "+Name")

func eventRow(e *corev1.Event, now metav1.Time) []any {
	first := columns.Age(e.FirstTimestamp, now)
	if e.FirstTimestamp.IsZero() {
		first = columns.Age(metav1.Time(e.EventTime), now)
	}
	last := columns.Age(e.LastTimestamp, now)
	if e.LastTimestamp.IsZero() {
		last = first
	}
	count := max(e.Count, 1)
	if e.Series != nil {
		last, count = columns.Age(metav1.Time(e.Series.LastObservedTime), now), e.Series.Count
	}
	object := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		object += "/" + e.InvolvedObject.Name
	}
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	if host := e.Source.Host; host != "" {
		source += ", " + host
	} else if e.Source.Component == "" && e.ReportingInstance != "" {
		source += ", " + e.ReportingInstance
	}
	return []any{last, e.Type, e.Reason, object, e.InvolvedObject.FieldPath, source, strings.TrimSpace(e.Message), first, int64(count), e.Name}
}

var namespaceColumns = columns.Define("Name", "Status=The status of the namespace", "Age")

func namespaceRow(n *corev1.Namespace, now metav1.Time) []any {
	return []any{n.Name, string(n.Status.Phase), columns.AgeOf(n, now)}
}

var secretColumns = columns.Define("Name", "Type@type", "Data@data", "Age")

func secretRow(s *corev1.Secret, now metav1.Time) []any {
	return []any{s.Name, string(s.Type), int64(len(s.Data)), columns.AgeOf(s, now)}
}

var configMapColumns = columns.Define("Name", "Data@data", "Age")

func configMapRow(c *corev1.ConfigMap, now metav1.Time) []any {
	return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), columns.AgeOf(c, now)}
}

var serviceAccountColumns = columns.Define("Name", "Age")

func serviceAccountRow(a *corev1.ServiceAccount, now metav1.Time) []any {
	return []any{a.Name, columns.AgeOf(a, now)}
}

var endpointsColumns = columns.Define("Name", "Endpoints@subsets", "Age")

// endpointsRow lists the first addresses of each port in turn. The cell is empty when there are
// addresses but none is ready.
func endpointsRow(e *corev1.Endpoints, now metav1.Time) []any {
	const limit = 3
	var list []string
	for _, s := range e.Subsets {
		if len(s.Ports) == 0 {
			for _, a := range s.Addresses {
				list = append(list, a.IP)
			}
		}
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				list = append(list, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	empty := columns.None
	if len(e.Subsets) > 0 {
		empty = ""
	}
	return []any{e.Name, columns.FirstFew(list, limit, empty), columns.AgeOf(e, now)}
}

var resourceQuotaColumns = columns.Define("Name", "Request=Request represents a minimum amount of cpu/memory that a container may consume.",
	"Limit=Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.", "Age")

func resourceQuotaRow(q *corev1.ResourceQuota, now metav1.Time) []any {
	var names []string
	for name := range q.Status.Hard {
		names = append(names, string(name))
	}
	slices.Sort(names)
	var requests, limits []string
	for _, name := range names {
		used, hard := q.Status.Used[corev1.ResourceName(name)], q.Status.Hard[corev1.ResourceName(name)]
		text := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(name, "limits.") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), columns.AgeOf(q, now)}
}

var podTemplateColumns = columns.Define("Name", "Containers=Names of each container in the template.", "Images=Images referenced by each container in the template.", "Pod Labels=The labels for the pod template.")

func podTemplateRow(t *corev1.PodTemplate, _ metav1.Time) []any {
	return []any{t.Name, containerNames(&t.Template.Spec), containerImages(&t.Template.Spec), labels.FormatLabels(t.Template.Labels)}
}

var persistentVolumeColumns = columns.Define("Name", "Capacity@spec.capacity", "Access Modes@spec.accessModes", "Reclaim Policy@spec.persistentVolumeReclaimPolicy", "Status@status.phase", "Claim@spec.claimRef",
	"StorageClass=StorageClass of the pv", "VolumeAttributesClass=VolumeAttributesClass of the pv", "Reason@status.reason", "Age", "+VolumeMode@spec.volumeMode")

func persistentVolumeRow(v *corev1.PersistentVolume, now metav1.Time) []any {
	phase := string(v.Status.Phase)
	if v.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	claim := ""
	if ref := v.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	class := v.Annotations[corev1.BetaStorageClassAnnotation]
	if class == "" {
		class = v.Spec.StorageClassName
	}
	size := v.Spec.Capacity[corev1.ResourceStorage]
	return []any{
		v.Name, size.String(), accessModes(v.Spec.AccessModes), string(v.Spec.PersistentVolumeReclaimPolicy), phase, claim, class,
		orUnset(v.Spec.VolumeAttributesClassName), v.Status.Reason, columns.AgeOf(v, now), orUnset((*string)(v.Spec.VolumeMode)),
	}
}

func orUnset(text *string) string {
	if text == nil {
		return columns.Unset
	}
	return *text
}

var claimColumns = columns.Define("Name", "Status@status.phase", "Volume@spec.volumeName", "Capacity@status.capacity", "Access Modes@status.accessModes",
	"StorageClass=StorageClass of the pvc", "VolumeAttributesClass=VolumeAttributesClass of the pvc", "Age", "+VolumeMode@spec.volumeMode")

func claimRow(c *corev1.PersistentVolumeClaim, now metav1.Time) []any {
	phase := string(c.Status.Phase)
	if c.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	size, modes := "", ""
	if c.Spec.VolumeName != "" {
		q := c.Status.Capacity[corev1.ResourceStorage]
		size, modes = q.String(), accessModes(c.Status.AccessModes)
	}
	class := c.Annotations[corev1.BetaStorageClassAnnotation]
	if class == "" {
		class = validate.Deref(c.Spec.StorageClassName)
	}
	return []any{
		c.Name, phase, c.Spec.VolumeName, size, modes, class, orUnset(c.Spec.VolumeAttributesClassName), columns.AgeOf(c, now), orUnset((*string)(c.Spec.VolumeMode)),
	}
}

var replicationControllerColumns = columns.Define("Name", "Desired:integer@spec.replicas", "Current:integer@status.replicas", "Ready:integer@status.readyReplicas", "Age",
	"+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.", "+Selector@spec.selector")

func replicationControllerRow(r *corev1.ReplicationController, now metav1.Time) []any {
	names, images := "", ""
	if t := r.Spec.Template; t != nil {
		names, images = containerNames(&t.Spec), containerImages(&t.Spec)
	}
	return []any{
		r.Name, int64(validate.Deref(r.Spec.Replicas)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), columns.AgeOf(r, now), names, images, labels.FormatLabels(r.Spec.Selector),
	}
}
