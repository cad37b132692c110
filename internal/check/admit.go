package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	psconfig "k8s.io/pod-security-admission/admission/api"
	psapi "k8s.io/pod-security-admission/api"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/policy"
	"github.com/knarr-project/knarr/internal/auth"
)

// unused are plugins that decide by other objects of a cluster, not by the object itself. follow
// reports missing objects.
var unused = []string{
	"NamespaceLifecycle", "ServiceAccount", "NodeRestriction", "Priority", "RuntimeClass", "StorageObjectInUseProtection",
	"CertificateApproval", "CertificateSigning", "ClusterTrustBundleAttest", "ResourceQuota", "PodTopologyLabels",
	"NodeDeclaredFeatureValidator", "PodResizeValidator",
}

// author is the user who writes the files' objects: an administrator.
var author = auth.User{Name: "kubernetes-admin", Groups: []string{auth.GroupMasters, auth.GroupAuthenticated}}

// chain are the plugins in steps. A plugin that refuses an object ends its step only, so that a
// LimitRange does not hide what Pod Security and policies refuse.
type chain struct {
	plugins, mutating, security, validating admission.Chain
	// runtime and priority judge pods whose class is among the files.
	runtime, priority admission.Chain
}

// newChain makes the API server's plugins over the objects of the files.
func (r *run) newChain() (*chain, error) {
	c := r.cluster()
	r.files = c
	config := policy.Config{Client: c, Served: servedKinds{r.kinds}, Authorizer: auth.Authorizers{}}
	plugins, err := r.plugins(c, append(slices.Clone(unused), podSecurity), true)
	if err != nil {
		return nil, err
	}
	only := map[string]admission.Chain{}
	for _, name := range []string{podSecurity, "RuntimeClass", "Priority"} {
		others := slices.DeleteFunc(slices.Clone(admission.Names), func(other string) bool { return other == name })
		if only[name], err = r.plugins(c, others, false); err != nil {
			return nil, err
		}
	}
	return &chain{
		plugins:    plugins,
		security:   only[podSecurity],
		runtime:    only["RuntimeClass"],
		priority:   only["Priority"],
		mutating:   admission.NewChain(nil, policy.NewMutating(r.ctx, config)),
		validating: admission.NewChain(nil, policy.NewValidating(r.ctx, config)),
	}, nil
}

const podSecurity = "PodSecurity"

// plugins returns the API server's plugins without the given names. declared adds the comparison
// with Components and Systems, which has no name.
func (r *run) plugins(c *cluster, without []string, declared bool) (admission.Chain, error) {
	privileged := string(psapi.LevelPrivileged)
	return admission.Default(r.ctx, c, admission.Config{
		Disable: without, Architecture: declared,
		Served: servedKinds{r.kinds},
		Files: admission.Files{PodSecurity: &psconfig.PodSecurityConfiguration{Defaults: psconfig.PodSecurityDefaults{
			Enforce: r.PodSecurity, EnforceVersion: psapi.VersionLatest,
			Audit: privileged, AuditVersion: psapi.VersionLatest, Warn: privileged, WarnVersion: psapi.VersionLatest,
		}}},
		Suffix: func(n int) string { return strings.Repeat("x", n) },
		Now:    func() time.Time { return checkTime.Time },
	})
}

// cluster returns the objects of the files, and each namespace that one of them is in.
func (r *run) cluster() *cluster {
	c := &cluster{objects: map[schema.GroupResource][]runtime.Object{}}
	namespaces := map[string]bool{}
	for _, o := range r.objects {
		if o.hub == nil || o.kind.Virtual {
			continue
		}
		c.add(o.kind.GroupResource(), o.hub.DeepCopyObject())
		if _, ok := o.hub.(*corev1.Namespace); ok {
			namespaces[o.accessor().GetName()] = true
		}
	}
	for _, o := range r.objects {
		if o.hub == nil || !o.kind.Namespaced {
			continue
		}
		if name := o.accessor().GetNamespace(); !namespaces[name] {
			namespaces[name] = true
			c.add(corev1.Resource("namespaces"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{corev1.LabelMetadataName: name},
			}})
		}
	}
	return c
}

// admit sends each object through admission and validation, as a create does. Pods of a workload
// are admitted as its controller will make them.
func (r *run) admit() {
	chain, err := r.newChain()
	if err != nil {
		r.add(Finding{Severity: Error, Message: err.Error()})
		return
	}
	for _, o := range r.objects {
		if o.hub == nil || o.reference || isDefinition(o) || r.ctx.Err() != nil {
			continue
		}
		r.create(chain, o)
		if o.ready {
			r.createPod(chain, o)
		}
	}
}

// mutators returns the steps that change an object. Classes of pods count if they are among the
// files.
func (r *run) mutators(c *chain, obj runtime.Object) []admission.Chain {
	steps := []admission.Chain{c.plugins}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return append(steps, c.mutating)
	}
	known := func(gr schema.GroupResource, name string) bool {
		_, found := r.files.find(gr, "", name)
		return found
	}
	if name := pod.Spec.RuntimeClassName; name == nil || known(nodev1.Resource("runtimeclasses"), *name) {
		steps = append(steps, c.runtime)
	}
	if name := pod.Spec.PriorityClassName; known(schedulingv1.Resource("priorityclasses"), name) || name == "" && pod.Spec.Priority != nil {
		steps = append(steps, c.priority)
	}
	return append(steps, c.mutating)
}

// create is a create of the object.
func (r *run) create(c *chain, o *object) {
	a := o.attributes(o.kind.gvk, o.kind.gvr(), o.hub)
	for _, step := range r.mutators(c, o.hub) {
		if err := step.Admit(r.ctx, a); err != nil {
			o.refused("", err)
			return
		}
	}
	errs, err := c.plugins.ValidateFields(r.ctx, a)
	if err != nil {
		o.refused("", err)
	}
	for _, err := range errs {
		o.reportField(err)
	}
	o.validate()
	if !o.ready {
		return
	}
	steps := []admission.Chain{c.plugins, c.validating}
	if pod, ok := o.hub.(*corev1.Pod); ok && pod.Spec.RuntimeClassName == nil {
		steps = append(steps, c.runtime)
	}
	if _, makesPods := templateOf(o.hub); !makesPods { // its pods are checked
		steps = append(steps, c.security)
	}
	for _, step := range steps {
		if err := step.Validate(r.ctx, a); err != nil {
			o.refused("", err)
		}
	}
	r.checkPolicyTypes(o)
}

// createPod is a create of the first pod of a workload, by its controller.
func (r *run) createPod(c *chain, o *object) {
	t, ok := templateOf(o.hub)
	if !ok {
		return
	}
	k, _ := r.kinds.find(corev1.SchemeGroupVersion.WithKind("Pod"))
	pod := &corev1.Pod{ObjectMeta: *t.ObjectMeta.DeepCopy(), Spec: *t.Spec.DeepCopy()}
	pod.Name, pod.Namespace = o.accessor().GetName()+"-"+generatedSuffix, o.accessor().GetNamespace()
	pod.Spec.Volumes = append(pod.Spec.Volumes, claimed(o.hub)...)
	k.strategy.Default(pod)
	a := o.attributes(k.gvk, k.gvr(), pod)
	a.Name, a.User = pod.Name, auth.User{Name: "system:serviceaccount:kube-system:controller", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", auth.GroupAuthenticated}}
	a.Warn = func(string) {} // the workload has the same warnings
	for _, step := range r.mutators(c, pod) {
		if err := step.Admit(r.ctx, a); err != nil {
			o.refused(t.path, err)
			return
		}
	}
	if k.strategy.PrepareCreate != nil {
		k.strategy.PrepareCreate(pod)
	}
	for _, err := range k.strategy.ValidateNew(pod, true) {
		o.note(Error, join(t.path, err.Field), refusedPods+err.ErrorBody())
	}
	for _, step := range []admission.Chain{c.plugins, c.validating} {
		if err := step.Validate(r.ctx, a); err != nil {
			o.refused(t.path, err)
		}
	}
	a.Warn = func(text string) { o.note(Warning, t.path, "its pods: "+text) }
	if err := c.security.Validate(r.ctx, a); err != nil {
		o.refused(t.path, err)
	}
}

// refusedPods begins an error about the pods that a workload's controller would make.
const refusedPods = "its pods are refused: "

// claimed returns the volumes that the controller of a StatefulSet adds for its claims.
func claimed(obj runtime.Object) (volumes []corev1.Volume) {
	set, ok := obj.(*appsv1.StatefulSet)
	if !ok {
		return nil
	}
	for i := range set.Spec.VolumeClaimTemplates {
		name := set.Spec.VolumeClaimTemplates[i].Name
		if slices.ContainsFunc(set.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
			continue
		}
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name + "-" + set.Name + "-0"},
		}})
	}
	return volumes
}

// attributes describes the write of an object.
func (o *object) attributes(gvk schema.GroupVersionKind, gvr schema.GroupVersionResource, obj runtime.Object) *admission.Attributes {
	m := o.accessor()
	return &admission.Attributes{
		User: author, Operation: admission.Create, Verb: "create", Kind: gvk, Resource: gvr, Namespace: m.GetNamespace(), Name: m.GetName(),
		Object: obj, Options: &metav1.CreateOptions{}, DryRun: true,
		Warn:     func(text string) { o.warn([]string{text}) },
		Annotate: func(string, string) {},
		Rounds:   &admission.Rounds{},
	}
}

// refused reports what admission answers, without the name of the object.
func (o *object) refused(path string, err error) {
	text := err.Error()
	var status *apierrors.StatusError
	if errors.As(err, &status) && status.ErrStatus.Reason == metav1.StatusReasonInvalid && path == "" {
		if problems := problemsOf(&status.ErrStatus); len(problems) > 0 {
			for _, p := range problems {
				o.note(Error, p.path, p.message)
			}
			return
		}
	}
	if status != nil && status.ErrStatus.Details != nil && status.ErrStatus.Reason == metav1.StatusReasonForbidden {
		d := status.ErrStatus.Details
		kind := d.Kind
		if d.Group != "" {
			kind += "." + d.Group
		}
		text = strings.TrimPrefix(text, fmt.Sprintf("%s %q is forbidden: ", kind, d.Name))
	} else if _, rest, ok := strings.Cut(text, " is forbidden: "); ok {
		text = rest
	}
	if path != "" {
		text = refusedPods + text
	}
	o.note(Error, path, text)
}
