package why

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/schedulerplugin"
)

// Causes of pods that a plugin in WebAssembly keeps from the nodes.
const (
	causePluginRefuses = "pod-scheduler-plugin-refuses"
	causePluginFails   = "pod-scheduler-plugin-fails"
)

// schedulerPluginKind is the Kind of a Ref to a SchedulerPlugin.
const schedulerPluginKind = "SchedulerPlugin.scheduling.knarr.io"

// The scheduler's words about a plugin in WebAssembly in the condition PodScheduled. The group is
// the plugin's name.
var (
	pluginFails   = regexp.MustCompile(`plugin ([a-z0-9.-]+) failed in [a-z]+: `)
	pluginRefuses = regexp.MustCompile(`(?:\(plugin|refused by plugin) ([a-z0-9.-]*[a-z0-9])`)
)

// byPlugin explains a pod by the last word of a plugin in WebAssembly. Only the scheduler runs
// these, so that their verdicts cannot be asked for again.
func byPlugin(s *Snapshot, scheduled *corev1.PodCondition) []Finding {
	if scheduled == nil || scheduled.Status != corev1.ConditionFalse {
		return nil
	}
	message := oneLine(scheduled.Message)
	if plugin, object, ok := namedPlugin(s, pluginFails, message); ok {
		f := one(causePluginFails, plugin.String()+" gave no verdict, which refuses the pod: "+message,
			"Correct the plugin, or set spec.failurePolicy: Ignore in "+plugin.String()+" to schedule without it.")
		f[0].Evidence = pluginFacts(plugin, object)
		return f
	}
	if plugin, object, ok := namedPlugin(s, pluginRefuses, message); ok {
		f := one(causePluginRefuses, plugin.String()+" refuses it: "+message,
			"Change the pod or the nodes as the reason says, or correct "+plugin.String()+".")
		f[0].Evidence = pluginFacts(plugin, object)
		return f
	}
	return nil
}

// namedPlugin finds the plugin that a message names. A plugin that is gone refuses no more.
func namedPlugin(s *Snapshot, words *regexp.Regexp, message string) (Ref, runtime.Object, bool) {
	found := words.FindStringSubmatch(message)
	if found == nil {
		return Ref{}, nil, false
	}
	object, presence := s.lookup(schedulerplugin.Resource.GroupResource(), "", found[1])
	return Ref{schedulerPluginKind, "", found[1]}, object, presence != Absent
}

// pluginFacts are the conditions of a plugin, whose object may be unknown.
func pluginFacts(ref Ref, object runtime.Object) (out []Fact) {
	u, ok := object.(runtime.Unstructured)
	if !ok {
		return nil
	}
	p, err := schedulerplugin.From(u)
	if err != nil {
		return nil
	}
	for _, name := range []string{schedulerplugin.Loaded, schedulerplugin.Working} {
		if c := meta.FindStatusCondition(p.Status.Conditions, name); c != nil {
			text := ref.String() + ": condition " + name + " is " + string(c.Status)
			if c.Status != metav1.ConditionTrue {
				text += ": " + strings.TrimSuffix(oneLine(clean(c.Message, maxText)), ".")
			}
			out = append(out, Fact{Text: text, Object: &ref})
		}
	}
	return out
}
