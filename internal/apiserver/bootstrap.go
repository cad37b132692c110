package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/service"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
)

// bootstrapper creates the objects that every cluster has, and keeps them.
type bootstrapper struct {
	cfg    *Config
	kinds  *registry.Kinds
	engine *verb.Engine
	client client.Interface // the server's own
	log    *slog.Logger
	clock  func() time.Time
	// These steps of the start are also kept up to date afterwards: the trust for extension
	// servers, and the date since which tokens are tracked.
	trustPublished, tokensTracked milestone
}

// objects returns the objects that every cluster has from the start, namespaces first.
func (b *bootstrapper) objects() []runtime.Object {
	var objs []runtime.Object
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		objs = append(objs, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	objs = append(objs,
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}, Value: 2000001000,
			Description: "Used for system critical pods that must not be moved from their current node."},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "system-cluster-critical"}, Value: 2000000000,
			Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."})
	if len(b.cfg.ServiceCIDRs) > 0 {
		objs = append(objs, b.defaultServiceCIDR(), b.kubernetesService())
	}
	return append(objs, flowControlObjects()...)
}

func (b *bootstrapper) defaultServiceCIDR() *networkingv1.ServiceCIDR {
	cidr := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: service.DefaultServiceCIDR}}
	for _, p := range b.cfg.ServiceCIDRs {
		cidr.Spec.CIDRs = append(cidr.Spec.CIDRs, p.Masked().String())
	}
	cidr.Status.Conditions = []metav1.Condition{{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue,
		Message: "Kubernetes default Service CIDR is ready", LastTransitionTime: b.kinds.Shared.Now()}}
	return cidr
}

// kubernetesService leads pods to the API server; it has the first address of the Service range.
func (b *bootstrapper) kubernetesService() *corev1.Service {
	ip := service.AddressRange{Prefix: b.cfg.ServiceCIDRs[0]}.At(1).String()
	target, policy := intstr.FromInt32(6443), corev1.IPFamilyPolicySingleStack
	if port := b.cfg.Advertise.Port(); port != 0 {
		target = intstr.FromInt32(int32(port))
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: service.KubernetesServiceName, Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"}},
		Spec: corev1.ServiceSpec{
			ClusterIP: ip, IPFamilyPolicy: &policy, SessionAffinity: corev1.ServiceAffinityNone, Type: corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP, TargetPort: target}},
		},
	}
}

// create creates the missing objects. All objects of one store are created in one transaction:
// one disk write on the first start, none later.
func (b *bootstrapper) create(ctx context.Context, objs []runtime.Object) error {
	for _, at := range b.kinds.Shared.Places {
		if err := b.createAt(ctx, at, objs); err != nil {
			return err
		}
	}
	return nil
}

func (b *bootstrapper) createAt(ctx context.Context, at *registry.Place, objs []runtime.Object) error {
	for {
		missing, err := b.missingObjects(ctx, at, objs)
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			return nil
		}
		t := &registry.Transaction{Place: at}
		for _, obj := range missing {
			if err := b.addCreation(ctx, t, obj); err != nil {
				return fmt.Errorf("create the bootstrap objects: %w", err)
			}
		}
		// If another server was faster, look again.
		if res, err := t.Commit(ctx); err != nil || res.Succeeded {
			return err
		}
	}
}

// missingObjects returns the objects of the place that do not exist.
func (b *bootstrapper) missingObjects(ctx context.Context, at *registry.Place, objs []runtime.Object) (out []runtime.Object, err error) {
	for _, obj := range objs {
		e, ok := b.kinds.Find(api.ResourceOf(obj))
		if !ok {
			return nil, fmt.Errorf("%T is not served", obj)
		}
		if e.Place != at {
			continue
		}
		meta := wire.Accessor(obj)
		kv, _, err := at.Store.Get(ctx, e.Key(meta.GetNamespace(), meta.GetName()), 0)
		if err != nil {
			return nil, wire.StoreError(err)
		}
		if kv == nil {
			out = append(out, obj.DeepCopyObject())
		}
	}
	return out, nil
}

// serviceCIDRManager owns the conditions of ServiceCIDRs, under upstream's name.
const serviceCIDRManager = "kubernetes-service-cidr-controller"

// recordConditionOwner records that a manager has applied these fields of one condition, and
// nothing else in the status.
func recordConditionOwner(obj metav1.Object, now metav1.Time, apiVersion, manager, kind string, fields ...string) error {
	at := fieldpath.MakePathOrDie("status", "conditions", fieldpath.KeyByFields("type", kind))
	owned := fieldpath.NewSet(at)
	for _, field := range fields {
		owned.Insert(append(at.Copy(), fieldpath.MakePathOrDie(field)...))
	}
	raw, err := owned.ToJSON()
	if err != nil {
		return err
	}
	entry := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion, Time: &now,
		FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: raw}, Subresource: "status"}
	// Applies come before updates.
	obj.SetManagedFields(append([]metav1.ManagedFieldsEntry{entry}, obj.GetManagedFields()...))
	return nil
}

// addCreation adds one object's creation to the transaction.
func (b *bootstrapper) addCreation(ctx context.Context, t *registry.Transaction, obj runtime.Object) error {
	e, _ := b.kinds.Find(api.ResourceOf(obj))
	meta := wire.Accessor(obj)
	e.ApplyDefaults(obj)
	wanted := obj.DeepCopyObject()
	op := b.engine.InternalOperation(e, meta.GetNamespace(), meta.GetName())
	op.FieldManager = registry.ComponentManager(op.User.Name)
	switch obj.(type) {
	case *flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration:
		op.FieldManager = flowProducer
	}
	// As in any create, fields that the server sets have no manager.
	asked := wire.Accessor(op.TrackFields(nil, wanted.DeepCopyObject()))
	if err := op.PrepareCreate(ctx, t, obj); err != nil {
		return err
	}
	meta.SetManagedFields(asked.GetManagedFields())
	var err error
	switch o := obj.(type) {
	case *networkingv1.ServiceCIDR:
		// Ready from the start, because it is in use from the start.
		o.Status = wanted.(*networkingv1.ServiceCIDR).Status
		err = recordConditionOwner(o, b.kinds.Shared.Now(), networkingv1.SchemeGroupVersion.String(), serviceCIDRManager, networkingv1.ServiceCIDRConditionReady, "lastTransitionTime", "message", "status", "type")
	case *flowcontrolv1.FlowSchema:
		// Its priority level is created with it.
		condition, _ := wantedDanglingCondition(o, false, b.kinds.Shared.Now())
		o.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{condition}
		err = recordConditionOwner(o, b.kinds.Shared.Now(), flowcontrolv1.SchemeGroupVersion.String(), flowManager, string(condition.Type), "lastTransitionTime", "message", "reason", "status", "type")
	}
	if err != nil {
		return err
	}
	stored, err := e.Codec.Encode(obj)
	if err != nil {
		return err
	}
	key := e.Key(meta.GetNamespace(), meta.GetName())
	t.Add(store.Condition{Key: key}, store.Op{Key: key, Value: stored})
	return nil
}
