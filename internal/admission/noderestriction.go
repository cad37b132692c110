package admission

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	references "github.com/knarr-project/knarr/internal/auth/node"
	"github.com/knarr-project/knarr/internal/client"
)

// nodeRestriction limits a kubelet to its own Node, Lease, CSINode and ResourceSlices, and to the
// pods bound to it. It limits the node's other parts (auth.NodeAccount) to the node's part of
// cluster DNS, and to the node's Traffic.
type nodeRestriction struct {
	base
	pods       *client.Lazy[*corev1.Pod]
	nodes      *client.Lazy[*corev1.Node]
	claims     *client.Lazy[*corev1.PersistentVolumeClaim]
	volumes    *client.Lazy[*corev1.PersistentVolume]
	drivers    *client.Lazy[*storagev1.CSIDriver]
	services   *client.Lazy[*corev1.Service]
	jobs       *client.Lazy[*batchv1.Job]
	authorizer auth.Authorizer
	now        func() time.Time
}

func newNodeRestriction(k kinds, z auth.Authorizer, now func() time.Time) Plugin {
	return nodeRestriction{base{"NodeRestriction", []Operation{Create, Update, Delete}}, k.pods, k.nodes, k.claims, k.volumes, k.csiDrivers, k.services, k.jobs, z, now}
}

// Admit implements Mutator. As upstream, it runs as a mutator so that it decides before other
// plugins complete the object.
func (p nodeRestriction) Admit(ctx context.Context, a *Attributes) error {
	if node, ok := auth.NodeOfPart(a.User); ok {
		return p.part(ctx, node, a)
	}
	node, ok := auth.NodeName(a.User)
	if !ok {
		return nil
	}
	if node == "" {
		return a.forbid(fmt.Errorf("could not determine node from user %q", a.User.Name))
	}
	var err error
	switch a.Resource.Group + "/" + a.Resource.Resource {
	case "/pods":
		err = p.pod(ctx, node, a)
	case "/nodes":
		err = p.node(node, a)
	case "/persistentvolumeclaims":
		err = claim(node, a)
	case "/serviceaccounts":
		if a.Subresource == "token" {
			err = p.token(ctx, node, a)
		}
	case "coordination.k8s.io/leases":
		err = lease(node, a)
	case "storage.k8s.io/csinodes":
		err = csiNode(node, a)
	case "resource.k8s.io/resourceslices":
		err = resourceSlice(node, a)
	case "certificates.k8s.io/certificatesigningrequests":
		err = servingRequest(node, a)
	}
	var missing missingPod
	if errors.As(err, &missing) {
		return missing.error
	}
	if err != nil {
		return a.forbid(err)
	}
	return nil
}

// part restricts the writes of a node's parts. A token that is bound to no node cannot write.
func (p nodeRestriction) part(ctx context.Context, node string, a *Attributes) (err error) {
	switch a.Resource.Group + "/" + a.Resource.Resource {
	case "/services":
		err = service(node, a)
	case "discovery.k8s.io/endpointslices":
		err = p.endpointSlice(ctx, node, a)
	case "architecture.knarr.io/traffics":
		err = p.traffic(ctx, node, a)
	default:
		return nil
	}
	if node == "" {
		err = fmt.Errorf("the token of %s is not bound to a node", a.User.Name)
	}
	if err != nil {
		return a.forbid(err)
	}
	return nil
}

// missingPod is returned unchanged, not as Forbidden: that a pod is absent that a node evicts, or a
// pod or Node that a token is for, is no secret.
type missingPod struct{ error }

func (p nodeRestriction) pod(ctx context.Context, node string, a *Attributes) error {
	switch {
	case a.Subresource == "" && a.Operation == Create:
		return p.mirrorPod(ctx, node, a)
	case a.Subresource == "" && a.Operation == Delete:
		if pod, ok := a.OldObject.(*corev1.Pod); ok && pod.Spec.NodeName != node {
			return fmt.Errorf("node %q can only delete pods with spec.nodeName set to itself", node)
		}
		return nil
	case a.Subresource == "status" && a.Operation == Update:
		return podStatus(node, a)
	case a.Subresource == "eviction" && a.Operation == Create:
		name := a.Name
		if eviction, ok := a.Object.(*policyv1.Eviction); ok && name == "" {
			name = eviction.Name
		}
		pod, err := p.pods.Find(ctx, a.Namespace, name)
		if apierrors.IsNotFound(err) {
			return missingPod{err}
		}
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != node {
			return fmt.Errorf("node %s can only evict pods with spec.nodeName set to itself", node)
		}
		return nil
	case a.Subresource == "":
		return fmt.Errorf("unexpected operation %q, node %q can only create and delete mirror pods", a.Operation, node)
	}
	return fmt.Errorf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.Subresource)
}

// mirrorPod refuses pods created by a node that are not mirrors of its static pods.
func (p nodeRestriction) mirrorPod(ctx context.Context, node string, a *Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("unexpected type %T", a.Object)
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		return fmt.Errorf("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node)
	}
	if pod.Spec.NodeName != node {
		return fmt.Errorf("node %q can only create pods with spec.nodeName set to itself", node)
	}
	if err := p.ownedBy(ctx, node, pod); err != nil {
		return err
	}
	switch {
	case pod.Spec.ServiceAccountName != "":
		return fmt.Errorf("node %q can not create pods that reference a service account", node)
	case len(references.SecretsOf(pod)) > 0:
		return fmt.Errorf("node %q can not create pods that reference secrets", node)
	case referencesConfigMap(&pod.Spec):
		return fmt.Errorf("node %q can not create pods that reference configmaps", node)
	case len(pod.Spec.ResourceClaims) > 0:
		return fmt.Errorf("node %q can not create pods that reference resourceclaims", node)
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			return fmt.Errorf("node %q can not create pods that reference persistentvolumeclaims", node)
		}
		if v.Ephemeral != nil {
			return fmt.Errorf("node %q can not create pods that reference persistentvolumeclaims (via ephemeral volumes)", node)
		}
		if v.Projected != nil {
			for _, s := range v.Projected.Sources {
				if s.ClusterTrustBundle != nil {
					return fmt.Errorf("node %q can not create pods that reference clustertrustbundles", node)
				}
				if s.ServiceAccountToken != nil || s.PodCertificate != nil {
					return fmt.Errorf("node %q can not create pods that reference projected credentials", node)
				}
			}
		}
	}
	return nil
}

// ownedBy requires the node as the only owner of a mirror pod, so that the pod goes with its node.
func (p nodeRestriction) ownedBy(ctx context.Context, node string, pod *corev1.Pod) error {
	if len(pod.OwnerReferences) > 1 {
		return fmt.Errorf("node %q can only create pods with a single owner reference set to itself", node)
	}
	if len(pod.OwnerReferences) == 0 {
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", node)
	}
	owner := pod.OwnerReferences[0]
	if owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node {
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", node)
	}
	if owner.Controller == nil || !*owner.Controller {
		return fmt.Errorf("node %q can only create pods with a controller owner reference set to itself", node)
	}
	if owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion {
		return fmt.Errorf("node %q must not set blockOwnerDeletion on an owner reference", node)
	}
	self, err := p.nodes.Find(ctx, "", node)
	if err != nil {
		return err
	}
	if owner.UID != self.UID {
		return fmt.Errorf("node %s UID mismatch: expected %s got %s", node, owner.UID, self.UID)
	}
	return nil
}

func referencesConfigMap(spec *corev1.PodSpec) bool {
	for _, v := range spec.Volumes {
		if v.ConfigMap != nil || v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ConfigMap != nil }) {
			return true
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil }) ||
			slices.ContainsFunc(c.EnvFrom, func(f corev1.EnvFromSource) bool { return f.ConfigMapRef != nil }) {
			return true
		}
	}
	return false
}

func podStatus(node string, a *Attributes) error {
	pod, ok := a.OldObject.(*corev1.Pod)
	changed, ok2 := a.Object.(*corev1.Pod)
	if !ok || !ok2 {
		return fmt.Errorf("unexpected type %T", a.OldObject)
	}
	switch {
	case pod.Spec.NodeName != node:
		return fmt.Errorf("node %q can only update pod status for pods with spec.nodeName set to itself", node)
	case !maps.Equal(pod.Labels, changed.Labels):
		return fmt.Errorf("node %q cannot update labels through pod status", node)
	case !equality.Semantic.DeepEqual(pod.Status.ResourceClaimStatuses, changed.Status.ResourceClaimStatuses):
		// upstream's spelling.
		return fmt.Errorf("node %q cannot update resource claim statues", node)
	case !equality.Semantic.DeepEqual(pod.Status.ExtendedResourceClaimStatus, changed.Status.ExtendedResourceClaimStatus):
		// The status would let the node read the claims that it names.
		return fmt.Errorf("node %q cannot update extended resource claim status", node)
	}
	return nil
}

func (p nodeRestriction) node(self string, a *Attributes) error {
	name := a.objectName()
	if name != self {
		return fmt.Errorf("node %q is not allowed to modify node %q", self, name)
	}
	node, _ := a.Object.(*corev1.Node)
	switch {
	case a.Operation == Create && node != nil:
		if node.Spec.ConfigSource != nil {
			return fmt.Errorf("node %q is not allowed to create pods with a non-nil configSource", self)
		}
		if forbidden := forbiddenLabels(node.Labels, nil); len(forbidden) > 0 {
			return fmt.Errorf("node %q is not allowed to set the following labels: %s", self, strings.Join(forbidden, ", "))
		}
	case a.Operation == Update && node != nil:
		old, ok := a.OldObject.(*corev1.Node)
		if !ok {
			return fmt.Errorf("unexpected type %T", a.OldObject)
		}
		if node.Spec.ConfigSource != nil && !equality.Semantic.DeepEqual(node.Spec.ConfigSource, old.Spec.ConfigSource) {
			return fmt.Errorf("node %q is not allowed to update configSource to a new non-nil configSource", self)
		}
		if !equality.Semantic.DeepEqual(node.Spec.Taints, old.Spec.Taints) {
			return fmt.Errorf("node %q is not allowed to modify taints", self)
		}
		if forbidden := forbiddenLabels(node.Labels, old.Labels); len(forbidden) > 0 {
			return fmt.Errorf("is not allowed to modify labels: %s", strings.Join(forbidden, ", "))
		}
		if len(node.OwnerReferences) > 0 && !equality.Semantic.DeepEqual(node.OwnerReferences, old.OwnerReferences) {
			return fmt.Errorf("node %q is not allowed to modify ownerReferences", self)
		}
	}
	return nil
}

// ownLabels are the labels in Kubernetes' namespaces that a node sets itself.
var ownLabels = map[string]bool{
	corev1.LabelHostname: true, corev1.LabelTopologyZone: true, corev1.LabelTopologyRegion: true,
	corev1.LabelFailureDomainBetaZone: true, corev1.LabelFailureDomainBetaRegion: true,
	corev1.LabelInstanceType: true, corev1.LabelInstanceTypeStable: true, corev1.LabelOSStable: true, corev1.LabelArchStable: true,
	"beta.kubernetes.io/os": true, "beta.kubernetes.io/arch": true,
}

// forbiddenLabels returns the changed labels that a node may not change, sorted.
func forbiddenLabels(labels, old map[string]string) []string {
	var forbidden []string
	for _, key := range slices.Sorted(maps.Keys(union(labels, old))) {
		value, is := labels[key]
		before, was := old[key]
		if is == was && value == before || mayLabel(key) {
			continue
		}
		forbidden = append(forbidden, key)
	}
	return forbidden
}

func union(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, b)
	return all
}

// mayLabel reports whether a node may set a label. It may set any label outside Kubernetes'
// namespaces. Inside them, it may set the known ones and everything below kubelet.kubernetes.io and
// node.kubernetes.io.
func mayLabel(key string) bool {
	namespace, _, found := strings.Cut(key, "/")
	if !found {
		return true
	}
	within := func(domain string) bool { return namespace == domain || strings.HasSuffix(namespace, "."+domain) }
	if within("node-restriction.kubernetes.io") {
		return false
	}
	if !within("kubernetes.io") && !within("k8s.io") {
		return true
	}
	return ownLabels[key] || within("kubelet.kubernetes.io") || within("node.kubernetes.io")
}

func claim(node string, a *Attributes) error {
	if a.Subresource != "status" || a.Operation != Update {
		return fmt.Errorf("unexpected operation %q on persistentvolumeclaims by node %q", a.Operation, node)
	}
	old, ok := a.OldObject.(*corev1.PersistentVolumeClaim)
	changed, ok2 := a.Object.(*corev1.PersistentVolumeClaim)
	if !ok || !ok2 {
		return fmt.Errorf("unexpected type %T", a.Object)
	}
	// A node may report the progress of an expansion: capacity, conditions and allocated resources.
	o, c := old.DeepCopy(), changed.DeepCopy()
	for _, p := range []*corev1.PersistentVolumeClaim{o, c} {
		p.ResourceVersion, p.ManagedFields = "", nil
		p.Status.Capacity, p.Status.Conditions, p.Status.AllocatedResources, p.Status.AllocatedResourceStatuses = nil, nil, nil, nil
	}
	if !equality.Semantic.DeepEqual(o, c) {
		return fmt.Errorf("node %q is not allowed to update fields other than status.quantity and status.conditions", node)
	}
	return nil
}

// token lets a node request tokens for the accounts of its own pods only, bound to the pod, for
// audiences that the pod uses.
func (p nodeRestriction) token(ctx context.Context, node string, a *Attributes) error {
	request, ok := a.Object.(*authenticationv1.TokenRequest)
	if !ok {
		return fmt.Errorf("unexpected type %T", a.Object)
	}
	bound := request.Spec.BoundObjectRef
	if a.Namespace == metav1.NamespaceSystem && a.Name == auth.NodeAccount && bound != nil && bound.Kind == "Node" {
		return p.partToken(ctx, node, request)
	}
	if bound == nil || bound.APIVersion != "v1" || bound.Kind != "Pod" || bound.Name == "" {
		return errors.New("node requested token not bound to a pod")
	}
	if bound.UID == "" {
		return errors.New("node requested token with a pod binding without a uid")
	}
	pod, err := p.pods.Find(ctx, a.Namespace, bound.Name)
	if apierrors.IsNotFound(err) {
		return missingPod{err}
	}
	if err != nil {
		return err
	}
	if bound.UID != pod.UID {
		return fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", bound.UID)
	}
	if pod.Spec.NodeName != node {
		return errors.New("node requested token bound to a pod scheduled on a different node")
	}
	return p.audience(ctx, a, pod, request.Spec.Audiences)
}

// partToken lets a node request tokens for its parts: for the API server, and bound to its Node.
func (p nodeRestriction) partToken(ctx context.Context, node string, request *authenticationv1.TokenRequest) error {
	bound := request.Spec.BoundObjectRef
	switch {
	case bound.APIVersion != "v1" || bound.Name != node:
		return fmt.Errorf("node %q requested token bound to another node", node)
	case len(request.Spec.Audiences) > 0:
		return fmt.Errorf("node %q can only request a token of %s for the API server itself", node, auth.NodeAccount)
	}
	self, err := p.nodes.Find(ctx, "", node)
	if apierrors.IsNotFound(err) {
		return missingPod{err}
	}
	if err != nil {
		return err
	}
	if bound.UID != self.UID {
		return fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", bound.UID)
	}
	return nil
}

func lease(node string, a *Attributes) error {
	if a.Namespace != corev1.NamespaceNodeLease {
		return fmt.Errorf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	name := a.Name
	if l, ok := a.Object.(*coordinationv1.Lease); ok && a.Operation == Create {
		name = l.Name
	}
	if name != node {
		return errors.New("can only access node lease with the same name as the requesting node")
	}
	return nil
}

func csiNode(node string, a *Attributes) error {
	if a.objectName() != node {
		return errors.New("can only access CSINode with the same name as the requesting node")
	}
	return nil
}

func resourceSlice(node string, a *Attributes) error {
	obj := a.Object
	if a.Operation == Delete {
		obj = a.OldObject
	}
	slice, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return nil
	}
	if slice.Spec.NodeName == nil || *slice.Spec.NodeName != node {
		return errors.New("can only create ResourceSlice with the same NodeName as the requesting node")
	}
	return nil
}

// servingRequest lets a node request certificates in its own name only.
func servingRequest(node string, a *Attributes) error {
	request, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.Operation != Create || a.Subresource != "" ||
		request.Spec.SignerName != certificatesv1.KubeletServingSignerName && request.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil {
		return errors.New("unable to parse csr: PEM block type must be CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return fmt.Errorf("unable to parse csr: %w", err)
	}
	if parsed.Subject.CommonName != a.User.Name {
		return fmt.Errorf("can only create a node CSR with CN=%s", a.User.Name)
	}
	return nil
}
