// Package node is the node authorizer ("Using Node Authorization"). A node's agent may read its own
// Node and the pods bound to it. It may read only those Secrets, ConfigMaps, volumes and service
// accounts that these pods refer to.
//
// A node may also request tokens of the service account of its other parts (auth.NodeAccount). RBAC
// gives that account its rights, except two: to list the volumes on the node's own disks, and to
// read and update the node's own Traffic.
//
// There is no separate graph: an index of the pods' View holds the references, so it is always as
// new as the View.
//
// In: Views of pods and volumes, attributes of requests. Out: decisions for users of nodes, no
// opinion on others.
package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/rbac"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/volume/local"
)

// Authorizer decides about users of nodes and has no opinion on others. Safe for concurrent use.
type Authorizer struct {
	pods        client.ViewOf[*corev1.Pod]
	volumes     client.ViewOf[*corev1.PersistentVolume]
	attachments client.ViewOf[*storagev1.VolumeAttachment]
	slices      client.ViewOf[*resourcev1.ResourceSlice]
	rules       []rbacv1.PolicyRule
}

const (
	byReference = "node-authorizer"
	bySecret    = "secret"
)

// New opens the Views. The client must be allowed to read them all.
func New(ctx context.Context, c client.Interface) (*Authorizer, error) {
	z := &Authorizer{rules: rbac.NodeRules()}
	var err error
	if z.pods, err = client.Open[*corev1.Pod](ctx, c, client.Scope{}); err != nil {
		return nil, fmt.Errorf("node authorizer: %w", err)
	}
	if z.volumes, err = client.Open[*corev1.PersistentVolume](ctx, c, client.Scope{}); err != nil {
		return nil, fmt.Errorf("node authorizer: %w", err)
	}
	if z.attachments, err = client.Open[*storagev1.VolumeAttachment](ctx, c, client.Scope{}); err != nil {
		return nil, fmt.Errorf("node authorizer: %w", err)
	}
	if z.slices, err = client.Open[*resourcev1.ResourceSlice](ctx, c, client.Scope{}); err != nil {
		return nil, fmt.Errorf("node authorizer: %w", err)
	}
	z.pods.AddIndex(byReference, podReferences)
	z.volumes.AddIndex(bySecret, volumeSecrets)
	return z, nil
}

// Authorize implements auth.Authorizer.
func (z *Authorizer) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if node, ok := auth.NodeOfPart(a.User); ok {
		return z.part(node, a)
	}
	node, ok := auth.NodeName(a.User)
	if !ok {
		return auth.NoOpinion, "", nil
	}
	if node == "" {
		return auth.NoOpinion, fmt.Sprintf("unknown node for user %q", a.User.Name), nil
	}
	if a.IsResource() {
		switch a.Group + "/" + a.Resource {
		case "/secrets", "/configmaps":
			return z.readReferenced(node, a)
		case "/persistentvolumeclaims":
			if a.Subresource == "status" {
				return z.writeStatus(node, a)
			}
			return z.getReferenced(node, a)
		case "/persistentvolumes", "storage.k8s.io/volumeattachments", "resource.k8s.io/resourceclaims":
			return z.getReferenced(node, a)
		case "/serviceaccounts":
			return z.account(node, a)
		case "coordination.k8s.io/leases":
			return z.lease(node, a)
		case "storage.k8s.io/csinodes":
			return z.csiNode(node, a)
		case "resource.k8s.io/resourceslices":
			return z.resourceSlice(node, a)
		case "/nodes":
			return z.node(node, a)
		case "/pods":
			return z.pod(node, a)
		}
	}
	return z.byRules(a)
}

// part allows a node's parts to list and watch the volumes on the node's disks, and to read and
// update the node's Traffic. Has no opinion on all other requests, since the account's rights come
// from RBAC.
func (z *Authorizer) part(node string, a auth.Attributes) (auth.Decision, string, error) {
	if node != "" && a.Group == architecture.Traffics.Group && a.Resource == architecture.Traffics.Resource {
		return z.traffic(node, a)
	}
	own := node != "" && a.Group == "" && a.Resource == "persistentvolumes" && a.Subresource == "" && (a.Verb == "list" || a.Verb == "watch")
	if !own {
		return auth.NoOpinion, "", nil
	}
	selector, err := labels.Parse(a.LabelSelector)
	if err != nil {
		return refuse("can only list/watch persistentvolumes with a valid label selector")
	}
	if value, found := selector.RequiresExactMatch(local.NodeLabel); found && value == local.LabelOf(node) {
		return auth.Allow, "", nil
	}
	return refuse("can only list/watch persistentvolumes with the label selector %s=%s", local.NodeLabel, local.LabelOf(node))
}

func (z *Authorizer) traffic(node string, a auth.Attributes) (auth.Decision, string, error) {
	name := a.Name
	switch a.Verb {
	case "list", "watch":
		if name == "" {
			name = exactly(a.FieldSelector, "metadata.name")
		}
	case "get", "update": // NodeRestriction checks what an update changes
	default:
		return refuse("can only get, list, watch and update the Traffic of the own node")
	}
	if a.Subresource != "" || name != node {
		return refuse("can only access the Traffic with the same name as the requesting node")
	}
	return auth.Allow, "", nil
}

func (z *Authorizer) byRules(a auth.Attributes) (auth.Decision, string, error) {
	for i := range z.rules {
		if rbac.Allows(&z.rules[i], &a) {
			return auth.Allow, "", nil
		}
	}
	return auth.NoOpinion, "", nil
}

func refuse(format string, args ...any) (auth.Decision, string, error) {
	return auth.NoOpinion, fmt.Sprintf(format, args...), nil
}

// readReferenced allows a node to get an object that one of its pods refers to, and to list and
// watch this single object.
func (z *Authorizer) readReferenced(node string, a auth.Attributes) (auth.Decision, string, error) {
	switch {
	case !a.IsReadOnly():
		return refuse("can only read resources of this type")
	case a.Subresource != "":
		return refuse("cannot read subresource")
	case a.Namespace == "":
		return refuse("can only read namespaced object of this type")
	}
	if a.Name == "" {
		a.Name = exactly(a.FieldSelector, "metadata.name")
	}
	return z.referenced(node, a)
}

func (z *Authorizer) getReferenced(node string, a auth.Attributes) (auth.Decision, string, error) {
	switch {
	case a.Verb != "get":
		return refuse("can only get individual resources of this type")
	case a.Subresource != "":
		return refuse("cannot get subresource")
	}
	return z.referenced(node, a)
}

// writeStatus allows the status of claims that the node's pods use.
func (z *Authorizer) writeStatus(node string, a auth.Attributes) (auth.Decision, string, error) {
	if a.Verb == "update" || a.Verb == "patch" {
		return z.referenced(node, a)
	}
	return refuse("can only get/update/patch this type")
}

// account allows tokens for the accounts of the node's pods, and reading these accounts.
func (z *Authorizer) account(node string, a auth.Attributes) (auth.Decision, string, error) {
	switch {
	case a.Verb == "get" && a.Subresource == "":
		return z.readReferenced(node, a)
	case a.Verb != "create" || a.Name == "":
		return refuse("can only create tokens for individual service accounts")
	case a.Subresource != "token":
		return refuse("can only create token subresource of serviceaccount")
	case a.Namespace == metav1.NamespaceSystem && a.Name == auth.NodeAccount:
		return auth.Allow, "", nil // NodeRestriction checks that the token is bound to the node
	}
	return z.referenced(node, a)
}

func (z *Authorizer) referenced(node string, a auth.Attributes) (auth.Decision, string, error) {
	if a.Name == "" {
		return refuse("No Object name found")
	}
	found := false
	switch a.Resource {
	case "pods":
		pod, ok := z.pods.Get(a.Namespace, a.Name)
		found = ok && pod.Spec.NodeName == node
	case "secrets":
		found = z.hasPod(node, kindSecret, a.Namespace, a.Name)
		for _, pv := range z.volumes.ByIndex(bySecret, a.Namespace+"/"+a.Name) {
			found = found || z.usesVolume(node, pv)
		}
	case "configmaps":
		found = z.hasPod(node, kindConfigMap, a.Namespace, a.Name)
	case "persistentvolumeclaims":
		found = z.hasPod(node, kindClaim, a.Namespace, a.Name)
	case "serviceaccounts":
		found = z.hasPod(node, kindAccount, a.Namespace, a.Name)
	case "resourceclaims":
		found = z.hasPod(node, kindResourceClaim, a.Namespace, a.Name)
	case "persistentvolumes":
		pv, ok := z.volumes.Get("", a.Name)
		found = ok && z.usesVolume(node, pv)
	case "volumeattachments":
		va, ok := z.attachments.Get("", a.Name)
		found = ok && va.Spec.NodeName == node
	}
	if !found {
		return refuse("no relationship found between node '%s' and this object", node)
	}
	return auth.Allow, "", nil
}

func (z *Authorizer) hasPod(node, kind, namespace, name string) bool {
	return len(z.pods.View.ByIndex(byReference, reference(node, kind, namespace, name))) > 0
}

func (z *Authorizer) usesVolume(node string, pv *corev1.PersistentVolume) bool {
	claim := pv.Spec.ClaimRef
	return claim != nil && z.hasPod(node, kindClaim, claim.Namespace, claim.Name)
}

func (z *Authorizer) lease(node string, a auth.Attributes) (auth.Decision, string, error) {
	switch a.Verb {
	case "get", "create", "update", "patch", "delete":
	default:
		return refuse("can only get, create, update, patch, or delete a node lease")
	}
	if a.Namespace != corev1.NamespaceNodeLease {
		return refuse("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	if a.Verb != "create" && a.Name != node {
		return refuse("can only access node lease with the same name as the requesting node")
	}
	return auth.Allow, "", nil
}

func (z *Authorizer) csiNode(node string, a auth.Attributes) (auth.Decision, string, error) {
	switch a.Verb {
	case "get", "create", "update", "patch", "delete":
	default:
		return refuse("can only get, create, update, patch, or delete a CSINode")
	}
	if a.Subresource != "" {
		return refuse("cannot authorize CSINode subresources")
	}
	if a.Verb != "create" && a.Name != node {
		return refuse("can only access CSINode with the same name as the requesting node")
	}
	return auth.Allow, "", nil
}

func (z *Authorizer) resourceSlice(node string, a auth.Attributes) (auth.Decision, string, error) {
	if a.Subresource != "" {
		return refuse("cannot authorize ResourceSlice subresources")
	}
	switch a.Verb {
	case "create": // NodeRestriction checks the node name in the object
		return auth.Allow, "", nil
	case "get", "update", "patch", "delete":
		if a.Name == "" {
			return refuse("No Object name found")
		}
		slice, ok := z.slices.Get("", a.Name)
		if ok && slice.Spec.NodeName != nil && *slice.Spec.NodeName == node {
			return auth.Allow, "", nil
		}
		return refuse("no relationship found between node '%s' and this object", node)
	case "list", "watch", "deletecollection":
		if exactly(a.FieldSelector, "spec.nodeName") == node {
			return auth.Allow, "", nil
		}
		return refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
	}
	return refuse("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection")
}

func (z *Authorizer) node(node string, a auth.Attributes) (auth.Decision, string, error) {
	if a.Subresource != "" {
		return z.byRules(a)
	}
	switch a.Verb {
	case "create", "update", "patch": // NodeRestriction checks the name
		return z.byRules(a)
	case "get", "list", "watch":
		name := a.Name
		if name == "" {
			name = exactly(a.FieldSelector, "metadata.name")
		}
		switch {
		case name == node:
			return auth.Allow, "", nil
		case name == "":
			return refuse("node '%s' cannot read all nodes, only its own Node object", node)
		}
		return refuse("node '%s' cannot read '%s', only its own Node object", node, name)
	}
	return z.byRules(a)
}

func (z *Authorizer) pod(node string, a auth.Attributes) (auth.Decision, string, error) {
	if a.Subresource != "" {
		return z.byRules(a)
	}
	switch a.Verb {
	case "get":
		return z.referenced(node, a)
	case "list", "watch":
		if exactly(a.FieldSelector, "spec.nodeName") == node {
			return auth.Allow, "", nil
		}
		if a.Name != "" {
			return z.referenced(node, a)
		}
		return refuse("can only list/watch pods with spec.nodeName field selector")
	}
	return z.byRules(a)
}

// exactly returns the value that a raw field selector requires of the field, or "".
func exactly(selector, name string) string {
	if selector == "" {
		return ""
	}
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return ""
	}
	value, _ := parsed.RequiresExactMatch(name)
	return value
}
