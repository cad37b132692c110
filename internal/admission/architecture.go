package admission

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/relations"
)

// architectural compares writes of Components, Systems and workloads with the declared
// architecture. A System's spec.admission says whether a new contradiction is refused, or only a
// warning. A write never has to repair contradictions that were there before.
//
// It has no name of upstream's, and cannot be disabled by name; Config.Architecture turns it on.
// Writes of other kinds cost a comparison of their group.
type architectural struct {
	base
	components, systems *client.Lazy[*unstructured.Unstructured]
	services            *client.Lazy[*corev1.Service]
	reader              *architecture.Reader
}

// newArchitectural returns nil if the kinds are not served.
func newArchitectural(ctx context.Context, c client.Interface, on bool) Plugin {
	if !on {
		return nil
	}
	return architectural{
		base:       base{"Architecture", []Operation{Create, Update, Delete}},
		components: client.NewLazyOf[*unstructured.Unstructured](ctx, c, architecture.Components, nil),
		systems:    client.NewLazyOf[*unstructured.Unstructured](ctx, c, architecture.Systems, nil),
		services:   client.NewLazy[*corev1.Service](ctx, c, nil),
		reader:     &architecture.Reader{},
	}
}

// concerns implements confined.
func (p architectural) concerns(a *Attributes) bool {
	switch a.Resource.Group {
	case architecture.GroupVersion.Group:
		return a.Subresource == ""
	case appsv1.GroupName, batchv1.GroupName:
		return a.Subresource == "" && a.Operation != Delete
	}
	return false
}

// Validate implements Validator.
func (p architectural) Validate(_ context.Context, a *Attributes) error {
	if a.Resource.Group == architecture.GroupVersion.Group {
		return p.declaration(a)
	}
	return p.workload(a)
}

// model returns the stored architecture; nil if no System asks for admission. Then a write is not
// compared.
func (p architectural) model(written *architecture.System) (*architecture.Model, error) {
	systems, err := p.systems.View()
	if err != nil {
		return nil, unserved(err)
	}
	all := systems.View.List("", nil)
	asks := written != nil && written.Spec.Admission != architecture.AdmissionNone
	for _, obj := range all {
		if u, ok := obj.(*unstructured.Unstructured); ok && !asks {
			mode, _, _ := unstructured.NestedString(u.Object, "spec", "admission")
			asks = mode == string(architecture.AdmissionWarn) || mode == string(architecture.AdmissionDeny)
		}
	}
	if !asks {
		return nil, nil
	}
	components, err := p.components.View()
	if err != nil {
		return nil, unserved(err)
	}
	// An object that cannot be read contradicts nothing; the controller reports it.
	m, _ := p.reader.Model(components.View.List("", nil), all)
	return m, nil
}

// unserved drops the error of a kind that is not served, as in the first moments of a cluster.
func unserved(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) {
		return nil
	}
	return fmt.Errorf("admission plugin Architecture cannot read the declared architecture: %w", err)
}

// declaration compares a write of a Component or a System.
func (p architectural) declaration(a *Attributes) error {
	switch a.Resource.GroupResource() {
	case architecture.Components.GroupResource():
		return p.component(a)
	case architecture.Systems.GroupResource():
		if a.Operation != Delete {
			return p.system(a)
		}
	}
	return nil
}

func (p architectural) component(a *Attributes) error {
	ref := architecture.ComponentReference{Namespace: a.Namespace, Name: a.objectName()}
	if a.Operation == Delete {
		return p.removal(a, ref)
	}
	c := &architecture.Component{}
	if err := into(a.Object, c); err != nil {
		return err
	}
	if err := invalid(a, c.Validate()); err != nil {
		return err
	}
	before, err := p.model(nil)
	if err != nil || before == nil {
		return err
	}
	c.Namespace, c.Name = ref.Namespace, ref.Name
	if a.Operation == Create {
		before = before.Without(ref) // one whose deletion the view does not show yet
	}
	after := before.With(c)
	var errs field.ErrorList
	mode := after.Admission(ref)
	for _, f := range after.NewFaults(ref, before) {
		switch mode {
		case architecture.AdmissionDeny:
			errs = append(errs, &field.Error{Type: field.ErrorTypeInvalid, Field: f.Field, BadValue: f.Value, Detail: f.Message})
		case architecture.AdmissionWarn:
			a.Warn(warning(f))
		}
	}
	// A changed offer or layer can break the requirements of others.
	for _, requirer := range after.RequirersOf(ref) {
		if after.Admission(requirer) != architecture.AdmissionDeny {
			p.warnOthers(a, after, before, requirer)
			continue
		}
		for _, f := range after.NewFaults(requirer, before) {
			if f.Condition != architecture.Acyclic { // the circle is a fault of this component too
				errs = append(errs, &field.Error{Type: field.ErrorTypeForbidden, Field: "spec", Detail: fmt.Sprintf("component %s: %s: %s", requirer, f.Field, f.Message)})
			}
		}
	}
	return invalid(a, errs)
}

// removal warns about the requirements that the deletion of a component leaves unmet.
func (p architectural) removal(a *Attributes, ref architecture.ComponentReference) error {
	m, err := p.model(nil)
	if err != nil || m == nil {
		return err
	}
	after := m.Without(ref)
	for _, requirer := range m.RequirersOf(ref) {
		p.warnOthers(a, after, m, requirer)
	}
	return nil
}

// warnOthers warns about the faults that a write makes in another component.
func (p architectural) warnOthers(a *Attributes, after, before *architecture.Model, other architecture.ComponentReference) {
	if after.Admission(other) == architecture.AdmissionNone {
		return
	}
	for _, f := range after.NewFaults(other, before) {
		a.Warn(fmt.Sprintf("component %s: %s", other, warning(f)))
	}
}

func (p architectural) system(a *Attributes) error {
	s := &architecture.System{}
	if err := into(a.Object, s); err != nil {
		return err
	}
	if err := invalid(a, s.Validate()); err != nil {
		return err
	}
	s.Name = a.objectName()
	before, err := p.model(s)
	if err != nil || before == nil {
		return err
	}
	after := before.WithSystem(s)
	if s.Spec.Admission != architecture.AdmissionNone {
		// Members may be created later, so that a System can be written first.
		for _, f := range after.SystemFaults(s.Name) {
			a.Warn(warning(f))
		}
	}
	var errs field.ErrorList
	for _, ref := range after.Components() {
		mode := after.Admission(ref)
		if mode == architecture.AdmissionNone {
			continue
		}
		for _, f := range after.NewFaults(ref, before) {
			if mode == architecture.AdmissionDeny {
				errs = append(errs, &field.Error{Type: field.ErrorTypeForbidden, Field: "spec", Detail: fmt.Sprintf("component %s: %s: %s", ref, f.Field, f.Message)})
			} else {
				a.Warn(fmt.Sprintf("component %s: %s", ref, warning(f)))
			}
		}
	}
	return invalid(a, errs)
}

func warning(f architecture.Fault) string {
	return fmt.Sprintf("%s: %q: %s", f.Field, f.Value, f.Message)
}

func into(obj runtime.Object, to any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("unexpected type %T", obj)
	}
	return architecture.From(u, to)
}

func invalid(a *Attributes, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: a.Kind.Group, Kind: a.Kind.Kind}, a.objectName(), errs)
}

// workload warns about Services in the settings of a workload that belong to components which its
// own component does not require. A name is a sign, not a proof, so the write is not refused.
func (p architectural) workload(a *Attributes) error {
	template, ok := podTemplate(a.Object)
	if !ok {
		return nil
	}
	if old, ok := podTemplate(a.OldObject); ok && equality.Semantic.DeepEqual(old, template) {
		return nil
	}
	m, err := p.model(nil)
	if err != nil || m == nil {
		return err
	}
	var own []architecture.ComponentReference
	for _, ref := range m.Of(a.Namespace, template.Labels) {
		if m.Admission(ref) != architecture.AdmissionNone {
			own = append(own, ref)
		}
	}
	if len(own) == 0 {
		return nil
	}
	services, err := p.services.View()
	if err != nil {
		return err
	}
	listed := services.List("", nil)
	byName := make(map[relations.Object]*corev1.Service, len(listed))
	for _, s := range listed {
		byName[relations.Object{Kind: "Service", Namespace: s.Namespace, Name: s.Name}] = s
	}
	of := relations.Object{Kind: a.Kind.Kind, Namespace: a.Namespace, Name: a.objectName()}
	for _, mention := range relations.Named(of, &template.Spec, listed) {
		behind := m.Behind(byName[mention.Service])
		if len(behind) == 0 || requiresOne(m, own, behind) {
			continue
		}
		a.Warn(fmt.Sprintf("%s names Service %s/%s of component %s, which component %s does not require: add it to spec.requires of the component",
			mention.Evidence, mention.Service.Namespace, mention.Service.Name, behind[0], own[0]))
	}
	return nil
}

func requiresOne(m *architecture.Model, own, behind []architecture.ComponentReference) bool {
	for _, from := range own {
		for _, to := range behind {
			if m.Requires(from, to) {
				return true
			}
		}
	}
	return false
}

// podTemplate returns the template of a workload that no other object controls.
func podTemplate(obj runtime.Object) (*corev1.PodTemplateSpec, bool) {
	var template *corev1.PodTemplateSpec
	switch o := obj.(type) {
	case *appsv1.Deployment:
		template = &o.Spec.Template
	case *appsv1.StatefulSet:
		template = &o.Spec.Template
	case *appsv1.DaemonSet:
		template = &o.Spec.Template
	case *appsv1.ReplicaSet:
		template = &o.Spec.Template
	case *batchv1.Job:
		template = &o.Spec.Template
	case *batchv1.CronJob:
		template = &o.Spec.JobTemplate.Spec.Template
	default:
		return nil, false
	}
	if m, ok := obj.(metav1.Object); ok && metav1.GetControllerOfNoCopy(m) != nil {
		return nil, false
	}
	return template, true
}
