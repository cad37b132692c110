package resource

import (
	"crypto/tls"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func namespaceStrategy() *strategy.Strategy {
	s := &strategy.Strategy{
		AllowUnconditionalUpdate: true,
		Default:                  strategy.On(defaultNamespace),
		PrepareCreate: strategy.On(func(ns *corev1.Namespace) {
			defaultNamespace(ns) // generateName may have made the name after the first defaulting
			ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
			if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
				ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
			}
		}),
		PrepareUpdate: strategy.OnBoth(func(ns, old *corev1.Namespace) {
			ns.Spec.Finalizers = slices.Clone(old.Spec.Finalizers)
			ns.Status = *old.Status.DeepCopy()
		}),
		PrepareStatus: strategy.OnBoth(func(ns, old *corev1.Namespace) { ns.Spec.Finalizers = slices.Clone(old.Spec.Finalizers) }),
		Subresource: map[string]strategy.UpdateStrategy{
			"finalize": {
				Prepare:  strategy.OnBoth(func(ns, old *corev1.Namespace) { ns.Status = *old.Status.DeepCopy() }),
				Validate: strategy.ChecksBoth(validateNamespaceFinalize),
			},
		},
		ValidateCreate: strategy.Checks(validateNamespace),
		ValidateStatus: strategy.ChecksBoth(validateNamespaceStatus),
		ValidateName:   apivalidation.ValidateNamespaceName,
		FieldNames:     []string{"status.phase"},
		FieldAliases:   map[string]string{"name": "metadata.name"},
		Fields: func(obj runtime.Object) fields.Set {
			return fields.Set{"status.phase": string(obj.(*corev1.Namespace).Status.Phase)}
		},
	}
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), namespaceColumns, namespaceRow)
}

func nodeStrategy() *strategy.Strategy {
	s := &strategy.Strategy{
		AllowUnconditionalUpdate: true,
		Default:                  strategy.On(defaultNode),
		// A create keeps the status: a kubelet registers its Node with it.
		PrepareUpdate: strategy.OnBoth(func(n, old *corev1.Node) { n.Status = *old.Status.DeepCopy() }),
		PrepareStatus: strategy.OnBoth(func(n, old *corev1.Node) {
			n.Spec = *old.Spec.DeepCopy()
			n.Status.Config = nil
		}),
		ValidateCreate: strategy.Checks(validateNode),
		ValidateUpdate: strategy.ChecksBoth(validateNodeUpdate),
		ValidateStatus: strategy.ChecksBoth(validateNodeStatus),
		FieldNames:     []string{"spec.unschedulable"},
		Fields: func(obj runtime.Object) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(obj.(*corev1.Node).Spec.Unschedulable)}
		},
	}
	s.Warnings = nodeWarnings
	// Kubelets no longer read their configuration from the API.
	s.DropFields(func(obj, _ runtime.Object) {
		n := obj.(*corev1.Node)
		n.Spec.ConfigSource, n.Status.Config = nil, nil
	})
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), nodeColumns, nodeRow)
}

func eventStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.AllowCreateOnUpdate = true
	s.ValidateName, s.LateMeta = strategy.PathSegment, true
	s.ValidateCreate = strategy.Checks(validateEvent)
	s.ValidateUpdate = strategy.ChecksBoth(validateEventUpdate)
	s.FieldNames = []string{
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion",
		"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
	}
	s.Fields = func(obj runtime.Object) fields.Set {
		e := obj.(*corev1.Event)
		source := e.Source.Component
		if source == "" {
			source = e.ReportingController
		}
		return fields.Set{
			"involvedObject.kind":            e.InvolvedObject.Kind,
			"involvedObject.namespace":       e.InvolvedObject.Namespace,
			"involvedObject.name":            e.InvolvedObject.Name,
			"involvedObject.uid":             string(e.InvolvedObject.UID),
			"involvedObject.apiVersion":      e.InvolvedObject.APIVersion,
			"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
			"involvedObject.fieldPath":       e.InvolvedObject.FieldPath,
			"reason":                         e.Reason,
			"reportingComponent":             e.ReportingController,
			"source":                         source,
			"type":                           e.Type,
		}
	}
	return strategy.Show(strategy.WithLooseFinalizers(s), eventColumns, eventRow)
}

// newEventStrategy is for Events in the form of events.k8s.io.
func newEventStrategy() *strategy.Strategy {
	s := eventStrategy()
	s.ValidateName, s.LateMeta, s.LooseFinalizers = nil, false, false // events.k8s.io names Events as other objects are named
	s.ValidateCreate = strategy.Checks(validateEventsEvent)
	s.ValidateUpdate = strategy.ChecksBoth(validateEventsEventUpdate)
	s.FieldAliases = map[string]string{"reportingController": "reportingComponent"}
	for _, name := range []string{"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"} {
		s.FieldAliases["regarding."+name] = "involvedObject." + name
	}
	return s
}

func secretStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.Default = strategy.On(defaultSecret)
	s.ValidateCreate = strategy.Checks(validateSecret)
	s.ValidateUpdate = strategy.ChecksBoth(validateSecretUpdate)
	s.Warnings = func(obj, _ runtime.Object) []string {
		secret := obj.(*corev1.Secret)
		if secret.Type != corev1.SecretTypeTLS {
			return nil
		}
		if _, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
			return []string{err.Error()}
		}
		return nil
	}
	s.FieldNames = []string{"type"}
	s.Fields = func(obj runtime.Object) fields.Set {
		return fields.Set{"type": string(obj.(*corev1.Secret).Type)}
	}
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), secretColumns, secretRow)
}

func configMapStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.ValidateCreate = strategy.Checks(validateConfigMap)
	s.ValidateUpdate = strategy.ChecksBoth(validateConfigMapUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), configMapColumns, configMapRow)
}

func serviceAccountStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	// Of references to secrets, only the names are kept.
	clean := func(a *corev1.ServiceAccount) {
		for i, ref := range a.Secrets {
			if bare := (corev1.ObjectReference{Name: ref.Name}); ref != bare {
				a.Secrets[i] = bare
			}
		}
	}
	s.PrepareCreate = strategy.On(clean)
	s.PrepareUpdate = strategy.OnBoth(func(a, _ *corev1.ServiceAccount) { clean(a) })
	s.ValidateName = apivalidation.ValidateServiceAccountName
	s.Warnings = serviceAccountWarnings
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), serviceAccountColumns, serviceAccountRow)
}

func endpointsStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.AllowCreateOnUpdate = true
	s.Default = strategy.On(defaultEndpoints)
	s.ValidateCreate = strategy.Checks(validateEndpoints)
	s.ValidateUpdate = strategy.ChecksBoth(validateEndpointsUpdate)
	s.Warnings = endpointsWarnings
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), endpointsColumns, endpointsRow)
}

func limitRangeStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.AllowCreateOnUpdate = true
	s.Default = strategy.On(defaultLimitRange)
	s.PrepareCreate = strategy.On(func(l *corev1.LimitRange) {
		if l.Name == "" && l.GenerateName == "" {
			l.Name = string(l.UID) // the only kind that needs no name
		}
	})
	s.ValidateCreate = strategy.Checks(validateLimitRange)
	s.ValidateUpdate = strategy.ChecksBoth(func(l, _ *corev1.LimitRange) field.ErrorList { return validateLimitRange(l) })
	return strategy.ShowAny(strategy.WithNameRuleOnUpdate(s), columns.Created, columns.CreatedRow)
}

func resourceQuotaStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.Default = strategy.On(defaultResourceQuota)
	s.ValidateCreate = strategy.Checks(validateResourceQuota)
	s.ValidateUpdate = strategy.ChecksBoth(validateResourceQuotaUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateResourceQuotaStatus)
	s.Warnings = strategy.WarnsOfNew(warnResourceQuota)
	return strategy.Show(s, resourceQuotaColumns, resourceQuotaRow)
}

func podTemplateStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.Default = strategy.On(func(t *corev1.PodTemplate) { defaultTemplate(&t.Template) })
	template := func(t *corev1.PodTemplate) field.ErrorList {
		return validatePodTemplate(&t.Template, field.NewPath("template"))
	}
	s.ValidateCreate = strategy.Checks(template)
	s.ValidateUpdate = strategy.ChecksBoth(func(t, _ *corev1.PodTemplate) field.ErrorList { return template(t) })
	s.PrepareCreate = strategy.On(func(t *corev1.PodTemplate) { t.Generation = 1 })
	s.PrepareUpdate = strategy.OnBoth(func(t, old *corev1.PodTemplate) { strategy.SetGeneration(t, old, !strategy.Same(t, old, "Template")) })
	return strategy.Show(makesPods(s), podTemplateColumns, podTemplateRow)
}

func replicationControllerStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultReplicationController)
	s.ValidateName = strategy.DeclaredSubdomain
	s.ValidateCreate = strategy.Checks(validateReplicationController)
	s.ValidateUpdate = strategy.ChecksBoth(validateReplicationControllerUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateReplicationControllerStatus)
	s.DefaultPropagation = metav1.DeletePropagationOrphan
	s.FieldNames = []string{"status.replicas"}
	s.FieldAliases = map[string]string{"name": "metadata.name"}
	s.Fields = func(obj runtime.Object) fields.Set {
		return fields.Set{"status.replicas": strconv.Itoa(int(obj.(*corev1.ReplicationController).Status.Replicas))}
	}
	return strategy.Show(makesPods(s), replicationControllerColumns, replicationControllerRow)
}

func claimStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.Default = strategy.On(defaultClaim)
	s.ValidateCreate = strategy.Checks(validateClaim)
	s.ValidateUpdate = strategy.ChecksBoth(validateClaimUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateClaimStatus)
	s.Warnings = claimWarnings
	s.PrepareCreate = strategy.On(func(c *corev1.PersistentVolumeClaim) {
		c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
		dropDataSources(&c.Spec)
		pairDataSources(&c.Spec)
	})
	s.PrepareUpdate = strategy.OnBoth(func(c, old *corev1.PersistentVolumeClaim) {
		c.Status = *old.Status.DeepCopy()
		// Otherwise validation reports an illegal change.
		if old.Spec.DataSource == nil && old.Spec.DataSourceRef == nil {
			dropDataSources(&c.Spec)
		}
		pairDataSources(&c.Spec)
	})
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), claimColumns, claimRow)
}

// dropDataSources clears data sources that are not allowed. dataSource may name claims and
// snapshots only. A reference to another namespace needs a feature that is off (KEP-1495,
// KEP-3294).
func dropDataSources(s *corev1.PersistentVolumeClaimSpec) {
	if d := s.DataSource; d != nil && (validate.Deref(d.APIGroup) != "" || d.Kind != "PersistentVolumeClaim") && (validate.Deref(d.APIGroup) != "snapshot.storage.k8s.io" || d.Kind != "VolumeSnapshot") {
		s.DataSource = nil
	}
	if r := s.DataSourceRef; r != nil && validate.Deref(r.Namespace) != "" {
		s.DataSourceRef = nil
	}
}

// pairDataSources gives dataSource and dataSourceRef the same value. A reference to another
// namespace stays in dataSourceRef alone, because dataSource cannot express it.
func pairDataSources(s *corev1.PersistentVolumeClaimSpec) {
	switch {
	case s.DataSource != nil && s.DataSourceRef == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: s.DataSource.APIGroup, Kind: s.DataSource.Kind, Name: s.DataSource.Name}
	case s.DataSource == nil && s.DataSourceRef != nil && (s.DataSourceRef.Namespace == nil || *s.DataSourceRef.Namespace == ""):
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: s.DataSourceRef.APIGroup, Kind: s.DataSourceRef.Kind, Name: s.DataSourceRef.Name}
	}
}

func persistentVolumeStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.Default = strategy.On(defaultPersistentVolume)
	s.ValidateCreate = strategy.Checks(validatePersistentVolume)
	s.ValidateUpdate = strategy.ChecksBoth(validatePersistentVolumeUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validatePersistentVolumeStatus)
	s.PrepareCreate = strategy.On(func(v *corev1.PersistentVolume) {
		v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending}
		if created := v.CreationTimestamp; !created.IsZero() {
			v.Status.LastPhaseTransitionTime = &created
		}
	})
	s.Warnings = persistentVolumeWarnings
	s.PrepareStatus = strategy.OnBoth(func(v, old *corev1.PersistentVolume) {
		v.Spec = *old.Spec.DeepCopy()
		if v.Status.LastPhaseTransitionTime == nil {
			v.Status.LastPhaseTransitionTime = old.Status.LastPhaseTransitionTime.DeepCopy()
		}
	})
	s.Stamp = func(obj, old runtime.Object, now metav1.Time) {
		is, was := &obj.(*corev1.PersistentVolume).Status, &old.(*corev1.PersistentVolume).Status
		if is.Phase != was.Phase && is.LastPhaseTransitionTime.Equal(was.LastPhaseTransitionTime) {
			is.LastPhaseTransitionTime = &now
		}
	}
	s.FieldAliases = map[string]string{"name": "metadata.name"}
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), persistentVolumeColumns, persistentVolumeRow)
}
