package wasm

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/schedulerplugin"
)

// failed tells of a failure in events of the plugin and of the pod. A suspension changes the
// plugin's condition.
func (m *Manager) failed(plugin *unstructured.Unstructured, f Failure) {
	var pod runtime.Object
	if f.Pod != "" {
		pod = &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: f.Namespace, Name: f.Pod, UID: f.UID}
		m.cfg.Events.Eventf(pod, plugin, corev1.EventTypeWarning, "SchedulerPluginFailed", "Scheduling", "%s", f.Error())
	}
	m.cfg.Events.Eventf(plugin, pod, corev1.EventTypeWarning, "Failed", "Scheduling", "%s: %v", f.Point, f.Err)
	if f.Suspended {
		m.mu.Lock()
		m.health[f.Plugin] = f
		m.mu.Unlock()
		m.poke()
	}
}

func (m *Manager) recovered(plugin string) {
	m.forgetHealth(plugin)
	m.poke()
}

func (m *Manager) forgetHealth(plugin string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.health, plugin)
}

// report writes the status of an object if it has changed.
func (m *Manager) report(ctx context.Context, u *unstructured.Unstructured, l *loaded) {
	p, err := schedulerplugin.From(u)
	if err != nil {
		m.cfg.Log.Warn("cannot read a SchedulerPlugin", "plugin", u.GetName(), "error", err)
		return
	}
	status := p.Status
	status.Conditions = append([]metav1.Condition(nil), status.Conditions...)
	status.SHA256, status.Points = "", nil
	if l.guest != nil {
		status.SHA256, status.Points = l.spec.SHA256, l.guest.Points()
	}
	meta.SetStatusCondition(&status.Conditions, loadedCondition(l))
	if l.guest == nil {
		meta.RemoveStatusCondition(&status.Conditions, schedulerplugin.Working)
	} else {
		meta.SetStatusCondition(&status.Conditions, m.workingCondition(u.GetName(), l.generation))
	}
	if equality.Semantic.DeepEqual(status, p.Status) {
		return
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		m.cfg.Log.Warn("cannot write the status of a SchedulerPlugin", "plugin", u.GetName(), "error", err)
		return
	}
	u = u.DeepCopy()
	u.Object["status"] = content
	_, err = m.cfg.Client.Update(because.WithObjects(ctx, u), schedulerplugin.Resource, u, metav1.UpdateOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		m.cfg.Log.Warn("cannot write the status of a SchedulerPlugin", "plugin", u.GetName(), "error", err)
	}
}

func loadedCondition(l *loaded) metav1.Condition {
	c := metav1.Condition{Type: schedulerplugin.Loaded, Status: metav1.ConditionTrue, Reason: schedulerplugin.ReasonLoaded, ObservedGeneration: l.generation}
	if l.err == nil {
		c.Message = "counts at " + strings.Join(l.guest.Points(), ", ")
		return c
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonOf(l.err), l.err.Error()
	if l.guest != nil {
		c.Message += "; the module " + l.spec.SHA256 + " of the former spec still decides"
	}
	return c
}

func (m *Manager) workingCondition(plugin string, generation int64) metav1.Condition {
	m.mu.Lock()
	f, bad := m.health[plugin]
	m.mu.Unlock()
	c := metav1.Condition{Type: schedulerplugin.Working, Status: metav1.ConditionTrue, Reason: schedulerplugin.ReasonWorking, Message: "answers", ObservedGeneration: generation}
	if bad {
		c.Status, c.Reason = metav1.ConditionFalse, schedulerplugin.ReasonSuspended
		c.Message = fmt.Sprintf("not called for %v at a time after %d failures in a row, the last one in %s: %v", suspension, mostFailures, f.Point, f.Err)
	}
	return c
}
