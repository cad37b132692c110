package why

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Causes of pods that name missing configuration.
const (
	causeConfig    = "pod-config-missing"
	causeConfigKey = "pod-config-key-missing"
)

// configRef is a reference of a pod to a ConfigMap or a Secret. An empty key means the whole.
type configRef struct {
	object Ref
	key    string
	user   string // the part of the pod that refers to it
}

// podConfig explains a pod that waits for ConfigMaps, Secrets or keys in them, or will once it has
// a node.
func podConfig(s *Snapshot, p *corev1.Pod) []Finding {
	if podOver(p) || p.DeletionTimestamp != nil || !waitsToStart(p) {
		return nil
	}
	var out []Finding
	seen := map[configRef]bool{}
	for _, ref := range configRefs(p) {
		key := configRef{object: ref.object, key: ref.key}
		if seen[key] {
			continue
		}
		seen[key] = true
		keys, presence := configKeys(s, ref.object)
		switch {
		case presence == Absent:
			seen[configRef{object: ref.object}] = true
			if !slices.ContainsFunc(out, func(f Finding) bool { return len(f.links) == 1 && f.links[0].Object == ref.object }) {
				out = append(out, linked(causeConfig, fmt.Sprintf("%s uses %s, which does not exist.", ref.user, ref.object), Link{Object: ref.object}))
			}
		case presence == Found && ref.key != "" && !slices.Contains(keys, ref.key):
			f := Finding{
				Cause: causeConfigKey, Problem: fmt.Sprintf("%s uses the key %s of %s, which has no such key.", ref.user, ref.key, ref.object),
				Evidence: []Fact{{Text: "its keys: " + names(keys), Object: &ref.object}},
				Remedy:   fmt.Sprintf("Add the key %s to %s, or correct the pod.", ref.key, ref.object),
			}
			out = append(out, f)
		}
	}
	return out
}

// waitsToStart reports whether a container has not started for the first time.
func waitsToStart(p *corev1.Pod) bool {
	statuses := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	if len(statuses) == 0 {
		return true
	}
	return slices.ContainsFunc(statuses, func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && c.State.Waiting.Reason != "CrashLoopBackOff" && c.State.Waiting.Reason != "ImagePullBackOff" && c.State.Waiting.Reason != "ErrImagePull"
	})
}

func configKeys(s *Snapshot, ref Ref) (keys []string, p Presence) {
	if ref.Kind == "Secret" {
		o, p := get[*corev1.Secret](s, ref.Namespace, ref.Name)
		if p == Found {
			for k := range o.Data {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		return keys, p
	}
	o, p := get[*corev1.ConfigMap](s, ref.Namespace, ref.Name)
	if p == Found {
		for k := range o.Data {
			keys = append(keys, k)
		}
		for k := range o.BinaryData {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys, p
}

func configRefs(p *corev1.Pod) (out []configRef) {
	add := func(kind, name, key, user string, optional *bool) {
		if name != "" && (optional == nil || !*optional) {
			out = append(out, configRef{Ref{kind, p.Namespace, name}, key, user})
		}
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, e := range c.EnvFrom {
			if r := e.ConfigMapRef; r != nil {
				add("ConfigMap", r.Name, "", "container "+c.Name, r.Optional)
			}
			if r := e.SecretRef; r != nil {
				add("Secret", r.Name, "", "container "+c.Name, r.Optional)
			}
		}
		for _, e := range c.Env {
			user := "the variable " + e.Name + " of container " + c.Name
			if e.ValueFrom == nil {
				continue
			}
			if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
				add("ConfigMap", r.Name, r.Key, user, r.Optional)
			}
			if r := e.ValueFrom.SecretKeyRef; r != nil {
				add("Secret", r.Name, r.Key, user, r.Optional)
			}
		}
	}
	for i := range p.Spec.Volumes {
		volumeRefs(&p.Spec.Volumes[i], add)
	}
	return out
}

func volumeRefs(v *corev1.Volume, add func(kind, name, key, user string, optional *bool)) {
	items := func(kind, name string, list []corev1.KeyToPath, optional *bool) {
		add(kind, name, "", "volume "+v.Name, optional)
		for _, item := range list {
			add(kind, name, item.Key, "volume "+v.Name, optional)
		}
	}
	if m := v.ConfigMap; m != nil {
		items("ConfigMap", m.Name, m.Items, m.Optional)
	}
	if m := v.Secret; m != nil {
		items("Secret", m.SecretName, m.Items, m.Optional)
	}
	if v.Projected == nil {
		return
	}
	for _, source := range v.Projected.Sources {
		if m := source.ConfigMap; m != nil {
			items("ConfigMap", m.Name, m.Items, m.Optional)
		}
		if m := source.Secret; m != nil {
			items("Secret", m.Name, m.Items, m.Optional)
		}
	}
}
