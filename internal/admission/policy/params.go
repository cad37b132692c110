package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
)

// params watches the kinds of parameters that policies name.
type params struct {
	ctx    context.Context
	config *Config

	mu    sync.Mutex
	views map[admissionregistrationv1.ParamKind]*paramView
}

type paramView struct {
	client.View
	resource   schema.GroupVersionResource
	namespaced bool
	cancel     context.CancelFunc
	// opened is closed when the view is open or err is set. Opening may take long, and other kinds
	// need not wait.
	opened chan struct{}
	err    error
}

func newParams(ctx context.Context, config *Config) *params {
	return &params{ctx: ctx, config: config, views: map[admissionregistrationv1.ParamKind]*paramView{}}
}

// keep stops the watches of kinds that no policy names any more.
func (p *params) keep(used []admissionregistrationv1.ParamKind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind, v := range p.views {
		if !slices.Contains(used, kind) {
			v.cancel()
			delete(p.views, kind)
		}
	}
}

// view returns the kind's open view. If the kind was removed or replaced (a deleted custom resource
// definition), it looks the kind up again.
func (p *params) view(ctx context.Context, kind admissionregistrationv1.ParamKind) (*paramView, error) {
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	resource, namespaced, ok := p.config.Served.ByKind(gvk)
	v, mine, err := p.claim(kind, resource, namespaced, ok)
	if err != nil {
		return nil, err
	}
	if mine != nil {
		v.View, v.err = p.config.Client.View(mine, resource, client.Scope{})
		if v.err != nil {
			p.drop(kind, v)
		}
		close(v.opened)
	}
	select {
	case <-v.opened:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if v.err != nil {
		return nil, fmt.Errorf("failed to watch paramKind '%s': %w", gvk, v.err)
	}
	return v, nil
}

// configured returns an error if the policy's kind of parameters is not served.
func (p *params) configured(r *rule) error {
	if r.paramKind == nil {
		return nil
	}
	gvk := schema.FromAPIVersionAndKind(r.paramKind.APIVersion, r.paramKind.Kind)
	if _, _, ok := p.config.Served.ByKind(gvk); !ok {
		return fmt.Errorf("failed to configure policy: %w", unknownKind(gvk))
	}
	return nil
}

func unknownKind(gvk schema.GroupVersionKind) error {
	return fmt.Errorf("failed to find resource referenced by paramKind: '%s'", gvk)
}

// claim returns the kind's view. If it also returns a context, the caller must open the view.
func (p *params) claim(kind admissionregistrationv1.ParamKind, resource schema.GroupVersionResource, namespaced, served bool) (*paramView, context.Context, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := p.views[kind]
	if have != nil && served && have.resource == resource && have.namespaced == namespaced {
		return have, nil, nil
	}
	if have != nil {
		have.cancel()
		delete(p.views, kind)
	}
	if !served {
		return nil, nil, unknownKind(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
	}
	ctx, cancel := context.WithCancel(p.ctx)
	v := &paramView{resource: resource, namespaced: namespaced, cancel: cancel, opened: make(chan struct{})}
	p.views[kind] = v
	return v, ctx, nil
}

// drop removes a view that could not be opened, so that the next write tries again.
func (p *params) drop(kind admissionregistrationv1.ParamKind, v *paramView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v.cancel()
	if p.views[kind] == v {
		delete(p.views, kind)
	}
}

// errNoParams is returned when a binding without parameters has parameterNotFoundAction Deny.
var errNoParams = errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")

// of returns a binding's parameters for a write in a namespace. A policy without parameters gets
// one nil. The list is empty if there are no parameters and the binding allows that.
func (p *params) of(ctx context.Context, r *rule, b *binding, namespace string) ([]runtime.Object, error) {
	if r.paramKind == nil || b.params == nil {
		return []runtime.Object{nil}, nil
	}
	v, err := p.view(ctx, *r.paramKind)
	if err != nil {
		return nil, err
	}
	ref := b.params
	switch {
	case !v.namespaced && ref.Namespace != "":
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	case !v.namespaced:
		namespace = ""
	case ref.Namespace != "":
		namespace = ref.Namespace
	case namespace == "":
		return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	}
	found, err := p.find(ctx, v, ref, namespace)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && (ref.ParameterNotFoundAction == nil || *ref.ParameterNotFoundAction == admissionregistrationv1.DenyAction) {
		return nil, errNoParams
	}
	for i := range found {
		if found[i], err = p.inPolicyVersion(v, found[i], *r.paramKind); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (p *params) find(ctx context.Context, v *paramView, ref *admissionregistrationv1.ParamRef, namespace string) ([]runtime.Object, error) {
	if ref.Name != "" {
		if obj, ok := v.Get(namespace, ref.Name); ok {
			return []runtime.Object{obj}, nil
		}
		// Read from the API server: a stale view must not decide that the parameter is missing.
		obj, err := p.config.Client.Get(ctx, v.resource, namespace, ref.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return []runtime.Object{obj}, nil
	}
	if ref.Selector == nil {
		return nil, errors.New("paramRef must have either name or selector")
	}
	selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
	if err != nil {
		return nil, err
	}
	return v.List(namespace, selector), nil
}

// inPolicyVersion returns a parameter in the policy's version, with its TypeMeta.
func (p *params) inPolicyVersion(v *paramView, obj runtime.Object, kind admissionregistrationv1.ParamKind) (runtime.Object, error) {
	out, err := p.config.Served.FromHub(v.resource, obj)
	if err != nil {
		return nil, err
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	if out.GetObjectKind().GroupVersionKind() == gvk {
		return out, nil
	}
	if out == obj {
		out = obj.DeepCopyObject()
	}
	out.GetObjectKind().SetGroupVersionKind(gvk)
	return out, nil
}
