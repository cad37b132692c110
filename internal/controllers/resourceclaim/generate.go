package resourceclaim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	claimhelper "k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// maxGenerateName leaves room for the random suffix in a name of 63 characters.
const maxGenerateName = 57

// reconcilePod creates the claims of a pod's templates and records them in its status. A pod that
// was bound without the scheduler gets its reservations here.
func (c *claims) reconcilePod(ctx context.Context, key controller.Key) (controller.Result, error) {
	p, ok := c.pods.Get(key.Namespace, key.Name)
	if !ok || p.DeletionTimestamp != nil || done(p) {
		return controller.Result{}, nil
	}
	made := map[string]string{} // names of claims by their names in the pod
	var errs []error
	for i := range p.Spec.ResourceClaims {
		pc := &p.Spec.ResourceClaims[i]
		name, err := c.ensure(ctx, p, pc)
		switch {
		case controller.NamespaceTerminating(err):
		case err != nil:
			c.env.Events.Eventf(p, nil, corev1.EventTypeWarning, "FailedResourceClaimCreation", "CreateClaim", "PodResourceClaim %s: %v", pc.Name, err)
			errs = append(errs, fmt.Errorf("pod claim %s: %w", pc.Name, err))
		case name != "":
			made[pc.Name] = name
		}
	}
	if err := c.writeNames(ctx, p, made); err != nil {
		errs = append(errs, err)
	}
	if p.Spec.NodeName != "" && len(errs) == 0 {
		return controller.Result{}, c.reserve(ctx, p)
	}
	return controller.Result{}, errors.Join(errs...)
}

// ensure creates the claim of a template unless it exists. name is the claim's name to record in
// the pod's status, or "".
func (c *claims) ensure(ctx context.Context, p *corev1.Pod, pc *corev1.PodResourceClaim) (name string, err error) {
	if pc.ResourceClaimTemplateName == nil {
		return "", nil
	}
	known, mustCheckOwner, err := claimhelper.Name(p, pc)
	switch {
	case errors.Is(err, claimhelper.ErrClaimNotFound):
	case err != nil:
		return "", err
	case known == nil:
		return "", nil // no claim is needed
	default:
		if rc, ok := c.claims.Get(p.Namespace, *known); ok {
			if mustCheckOwner {
				return "", claimhelper.IsForPod(p, rc, false)
			}
			return "", nil
		}
	}
	// An earlier call may have created the claim without writing the status.
	for _, rc := range c.claims.ByIndex(byPod, string(p.UID)) {
		if rc.Annotations[resourcev1.PodResourceClaimAnnotation] == pc.Name && rc.DeletionTimestamp == nil {
			return rc.Name, nil
		}
	}
	t, ok := c.templates.Get(p.Namespace, *pc.ResourceClaimTemplateName)
	if !ok {
		return "", fmt.Errorf("resource claim template %q: %w", *pc.ResourceClaimTemplateName,
			apierrors.NewNotFound(resourcev1.Resource("resourceclaimtemplate"), *pc.ResourceClaimTemplateName))
	}
	rc, err := client.Create(ctx, c.env.Client, fromTemplate(p, pc, t))
	if err != nil {
		return "", fmt.Errorf("create ResourceClaim %s: %w", generateName(p.Name, pc.Name), err)
	}
	return rc.Name, nil
}

func fromTemplate(p *corev1.Pod, pc *corev1.PodResourceClaim, t *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	annotations := maps.Clone(t.Spec.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[resourcev1.PodResourceClaimAnnotation] = pc.Name
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: generateName(p.Name, pc.Name), Namespace: p.Namespace, Labels: maps.Clone(t.Spec.Labels), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: *t.Spec.Spec.DeepCopy(),
	}
}

// generateName combines the names of pod and claim. If both are too long together, it shortens the
// longer one, so that a part of both remains. The API server would only cut off the end.
func generateName(pod, claim string) string {
	over := len(pod) + len(claim) + 2 - maxGenerateName
	if over > 0 {
		cut := over * len(pod) / (len(pod) + len(claim))
		pod, claim = pod[:len(pod)-cut], claim[:len(claim)-(over-cut)]
	}
	return pod + "-" + claim + "-"
}

// writeNames adds the names of created claims to the pod's status and keeps the names there.
func (c *claims) writeNames(ctx context.Context, p *corev1.Pod, made map[string]string) error {
	if len(made) == 0 {
		return nil
	}
	var statuses []corev1.PodResourceClaimStatus
	for i := range p.Spec.ResourceClaims {
		if name, ok := made[p.Spec.ResourceClaims[i].Name]; ok {
			statuses = append(statuses, corev1.PodResourceClaimStatus{Name: p.Spec.ResourceClaims[i].Name, ResourceClaimName: &name})
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"resourceClaimStatuses": statuses}})
	if err != nil {
		return err
	}
	_, err = client.Patch[*corev1.Pod](ctx, c.env.Client, p.Namespace, p.Name, types.StrategicMergePatchType, patch, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("update pod %s/%s ResourceClaimStatuses: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// reserve adds the pod to the reservations of its allocated claims.
func (c *claims) reserve(ctx context.Context, p *corev1.Pod) error {
	for i := range p.Spec.ResourceClaims {
		name, mustCheckOwner, err := claimhelper.Name(p, &p.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue // the status update that names the claim arrives as an event
		}
		rc, ok := c.claims.Get(p.Namespace, *name)
		if !ok {
			continue
		}
		if mustCheckOwner {
			if err := claimhelper.IsForPod(p, rc, false); err != nil {
				return err
			}
		}
		if rc.Status.Allocation == nil || claimhelper.IsReservedForPod(p, rc, false) || !claimhelper.CanBeReserved(rc) {
			continue
		}
		rc = rc.DeepCopy()
		rc.Status.ReservedFor = append(rc.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
		if _, err := client.UpdateStatus(ctx, c.env.Client, rc); err != nil {
			return fmt.Errorf("reserve claim %s for pod: %w", *name, err)
		}
	}
	return nil
}
