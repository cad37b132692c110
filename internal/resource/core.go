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
)

func namespaceStrategy() *Strategy {
	s := &Strategy{
		AllowUnconditionalUpdate: true,
		Default:                  on(defaultNamespace),
		PrepareCreate: on(func(ns *corev1.Namespace) {
			defaultNamespace(ns) // generateName may have made the name after the first defaulting
			ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
			if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
				ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
			}
		}),
		PrepareUpdate: onBoth(func(ns, old *corev1.Namespace) {
			ns.Spec.Finalizers = slices.Clone(old.Spec.Finalizers)
			ns.Status = *old.Status.DeepCopy()
		}),
		PrepareStatus: onBoth(func(ns, old *corev1.Namespace) { ns.Spec.Finalizers = slices.Clone(old.Spec.Finalizers) }),
		Subresource: map[string]UpdateStrategy{
			"finalize": {
				Prepare:  onBoth(func(ns, old *corev1.Namespace) { ns.Status = *old.Status.DeepCopy() }),
				Validate: checksBoth(validateNamespaceFinalize),
			},
		},
		ValidateCreate: checks(validateNamespace),
		ValidateStatus: checksBoth(validateNamespaceStatus),
		ValidateName:   apivalidation.ValidateNamespaceName,
		FieldNames:     []string{"status.phase"},
		FieldAliases:   map[string]string{"name": "metadata.name"},
		Fields: func(obj runtime.Object) fields.Set {
			return fields.Set{"status.phase": string(obj.(*corev1.Namespace).Status.Phase)}
		},
	}
	return show(renames(s), namespaceColumns, namespaceRow)
}

func nodeStrategy() *Strategy {
	s := &Strategy{
		AllowUnconditionalUpdate: true,
		Default:                  on(defaultNode),
		// A create keeps the status: a kubelet registers its Node with it.
		PrepareUpdate: onBoth(func(n, old *corev1.Node) { n.Status = *old.Status.DeepCopy() }),
		PrepareStatus: onBoth(func(n, old *corev1.Node) {
			n.Spec = *old.Spec.DeepCopy()
			n.Status.Config = nil
		}),
		ValidateCreate: checks(validateNode),
		ValidateUpdate: checksBoth(validateNodeUpdate),
		ValidateStatus: checksBoth(validateNodeStatus),
		FieldNames:     []string{"spec.unschedulable"},
		Fields: func(obj runtime.Object) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(obj.(*corev1.Node).Spec.Unschedulable)}
		},
	}
	s.Warnings = nodeWarnings
	// Kubelets no longer read their configuration from the API.
	s.dropping(func(obj, _ runtime.Object) {
		n := obj.(*corev1.Node)
		n.Spec.ConfigSource, n.Status.Config = nil, nil
	})
	return show(renames(s), nodeColumns, nodeRow)
}

func eventStrategy() *Strategy {
	s := plain(true)
	s.AllowCreateOnUpdate = true
	s.ValidateName, s.LateMeta = pathSegment, true
	s.ValidateCreate = checks(validateEvent)
	s.ValidateUpdate = checksBoth(validateEventUpdate)
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
	return show(loose(s), eventColumns, eventRow)
}

// newEventStrategy is for Events in the form of events.k8s.io.
func newEventStrategy() *Strategy {
	s := eventStrategy()
	s.ValidateName, s.LateMeta, s.LooseFinalizers = nil, false, false // events.k8s.io names Events as other objects are named
	s.ValidateCreate = checks(validateEventsEvent)
	s.ValidateUpdate = checksBoth(validateEventsEventUpdate)
	s.FieldAliases = map[string]string{"reportingController": "reportingComponent"}
	for _, name := range []string{"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"} {
		s.FieldAliases["regarding."+name] = "involvedObject." + name
	}
	return s
}

func secretStrategy() *Strategy {
	s := plain(true)
	s.Default = on(defaultSecret)
	s.ValidateCreate = checks(validateSecret)
	s.ValidateUpdate = checksBoth(validateSecretUpdate)
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
	return show(renames(s), secretColumns, secretRow)
}

func configMapStrategy() *Strategy {
	s := plain(true)
	s.ValidateCreate = checks(validateConfigMap)
	s.ValidateUpdate = checksBoth(validateConfigMapUpdate)
	return show(renames(s), configMapColumns, configMapRow)
}

func serviceAccountStrategy() *Strategy {
	s := plain(true)
	// Of references to secrets, only the names are kept.
	clean := func(a *corev1.ServiceAccount) {
		for i, ref := range a.Secrets {
			if bare := (corev1.ObjectReference{Name: ref.Name}); ref != bare {
				a.Secrets[i] = bare
			}
		}
	}
	s.PrepareCreate = on(clean)
	s.PrepareUpdate = onBoth(func(a, _ *corev1.ServiceAccount) { clean(a) })
	s.ValidateName = apivalidation.ValidateServiceAccountName
	s.Warnings = serviceAccountWarnings
	return show(renames(s), serviceAccountColumns, serviceAccountRow)
}

func endpointsStrategy() *Strategy {
	s := plain(true)
	s.AllowCreateOnUpdate = true
	s.Default = on(defaultEndpoints)
	s.ValidateCreate = checks(validateEndpoints)
	s.ValidateUpdate = checksBoth(validateEndpointsUpdate)
	s.Warnings = endpointsWarnings
	return show(renames(s), endpointsColumns, endpointsRow)
}

func limitRangeStrategy() *Strategy {
	s := plain(true)
	s.AllowCreateOnUpdate = true
	s.Default = on(defaultLimitRange)
	s.PrepareCreate = on(func(l *corev1.LimitRange) {
		if l.Name == "" && l.GenerateName == "" {
			l.Name = string(l.UID) // the only kind that needs no name
		}
	})
	s.ValidateCreate = checks(validateLimitRange)
	s.ValidateUpdate = checksBoth(func(l, _ *corev1.LimitRange) field.ErrorList { return validateLimitRange(l) })
	return showAny(renames(s), createdColumns, createdRow)
}

func resourceQuotaStrategy() *Strategy {
	s := withStatus(true)
	s.Default = on(defaultResourceQuota)
	s.ValidateCreate = checks(validateResourceQuota)
	s.ValidateUpdate = checksBoth(validateResourceQuotaUpdate)
	s.ValidateStatus = checksBoth(validateResourceQuotaStatus)
	s.Warnings = warnsOfNew(warnResourceQuota)
	return show(s, resourceQuotaColumns, resourceQuotaRow)
}

func podTemplateStrategy() *Strategy {
	s := plain(true)
	s.Default = on(func(t *corev1.PodTemplate) { defaultTemplate(&t.Template) })
	template := func(t *corev1.PodTemplate) field.ErrorList {
		return validatePodTemplate(&t.Template, field.NewPath("template"))
	}
	s.ValidateCreate = checks(template)
	s.ValidateUpdate = checksBoth(func(t, _ *corev1.PodTemplate) field.ErrorList { return template(t) })
	s.PrepareCreate = on(func(t *corev1.PodTemplate) { t.Generation = 1 })
	s.PrepareUpdate = onBoth(func(t, old *corev1.PodTemplate) { setGeneration(t, old, !same(t, old, "Template")) })
	return show(makesPods(s), podTemplateColumns, podTemplateRow)
}

func replicationControllerStrategy() *Strategy {
	s := withStatusAndGeneration(true)
	s.Default = on(defaultReplicationController)
	s.ValidateName = declaredSubdomain
	s.ValidateCreate = checks(validateReplicationController)
	s.ValidateUpdate = checksBoth(validateReplicationControllerUpdate)
	s.ValidateStatus = checksBoth(validateReplicationControllerStatus)
	s.DefaultPropagation = metav1.DeletePropagationOrphan
	s.FieldNames = []string{"status.replicas"}
	s.FieldAliases = map[string]string{"name": "metadata.name"}
	s.Fields = func(obj runtime.Object) fields.Set {
		return fields.Set{"status.replicas": strconv.Itoa(int(obj.(*corev1.ReplicationController).Status.Replicas))}
	}
	return show(makesPods(s), replicationControllerColumns, replicationControllerRow)
}

func claimStrategy() *Strategy {
	s := withStatus(true)
	s.Default = on(defaultClaim)
	s.ValidateCreate = checks(validateClaim)
	s.ValidateUpdate = checksBoth(validateClaimUpdate)
	s.ValidateStatus = checksBoth(validateClaimStatus)
	s.Warnings = claimWarnings
	s.PrepareCreate = on(func(c *corev1.PersistentVolumeClaim) {
		c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
		dropDataSources(&c.Spec)
		pairDataSources(&c.Spec)
	})
	s.PrepareUpdate = onBoth(func(c, old *corev1.PersistentVolumeClaim) {
		c.Status = *old.Status.DeepCopy()
		// Otherwise validation reports an illegal change.
		if old.Spec.DataSource == nil && old.Spec.DataSourceRef == nil {
			dropDataSources(&c.Spec)
		}
		pairDataSources(&c.Spec)
	})
	return show(renames(s), claimColumns, claimRow)
}

// dropDataSources clears data sources that are not allowed. dataSource may name claims and
// snapshots only. A reference to another namespace needs a feature that is off (KEP-1495,
// KEP-3294).
func dropDataSources(s *corev1.PersistentVolumeClaimSpec) {
	if d := s.DataSource; d != nil && (deref(d.APIGroup) != "" || d.Kind != "PersistentVolumeClaim") && (deref(d.APIGroup) != "snapshot.storage.k8s.io" || d.Kind != "VolumeSnapshot") {
		s.DataSource = nil
	}
	if r := s.DataSourceRef; r != nil && deref(r.Namespace) != "" {
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

func persistentVolumeStrategy() *Strategy {
	s := withStatus(true)
	s.Default = on(defaultPersistentVolume)
	s.ValidateCreate = checks(validatePersistentVolume)
	s.ValidateUpdate = checksBoth(validatePersistentVolumeUpdate)
	s.ValidateStatus = checksBoth(validatePersistentVolumeStatus)
	s.PrepareCreate = on(func(v *corev1.PersistentVolume) {
		v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending}
		if created := v.CreationTimestamp; !created.IsZero() {
			v.Status.LastPhaseTransitionTime = &created
		}
	})
	s.Warnings = persistentVolumeWarnings
	s.PrepareStatus = onBoth(func(v, old *corev1.PersistentVolume) {
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
	return show(renames(s), persistentVolumeColumns, persistentVolumeRow)
}
