package scheduler

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/knarr-project/knarr/internal/scheduler/extender"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
	"github.com/knarr-project/knarr/internal/scheduler/settings"
)

// setup is all of a configuration that the scheduler uses.
type setup struct {
	profiles                   []*framework.Profile
	extenders                  []*extender.Extender
	initialBackoff, maxBackoff time.Duration
}

// Configure replaces the configuration, also while Run runs. Pods that are being bound keep the old
// one; all waiting pods are tried again. After an error nothing has changed. More are plugins
// besides the built-in ones; they may be nil.
func (s *Scheduler) Configure(c *settings.Configuration, more plugins.Factories) error {
	made, err := s.setup(c, more)
	if err != nil {
		return err
	}
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if !running {
		s.use(made)
		return nil
	}
	s.post(func(now time.Time) {
		s.use(made)
		s.reconsider(s.pods.List("", nil), now)
	})
	return nil
}

// setup makes the plugins of a configuration. It does not change the scheduler.
func (s *Scheduler) setup(c *settings.Configuration, more plugins.Factories) (*setup, error) {
	known := s.factories()
	for name, factory := range more {
		if known[name] != nil {
			return nil, fmt.Errorf("plugin %s: there is a built-in plugin of this name; use another one", name)
		}
		known[name] = factory
	}
	made := &setup{
		initialBackoff: time.Duration(*c.PodInitialBackoffSeconds) * time.Second,
		maxBackoff:     time.Duration(*c.PodMaxBackoffSeconds) * time.Second,
	}
	extenders, err := extender.New(c.Extenders)
	errs := []error{err}
	made.extenders = extenders
	for i := range c.Profiles {
		spec := settings.WithIgnored(c.Profiles[i].DeepCopy(), c.Extenders)
		if spec.PercentageOfNodesToScore == nil {
			spec.PercentageOfNodesToScore = c.PercentageOfNodesToScore
		}
		if s.gang {
			spec.Plugins = plugins.Merge(&configv1.Plugins{MultiPoint: configv1.PluginSet{Enabled: []configv1.Plugin{{Name: framework.GangScheduling}}}}, spec.Plugins)
		}
		path := field.NewPath("profiles").Index(i)
		profile, err := known.Profile(path, spec, handle{s})
		errs = append(errs, err)
		if err == nil {
			errs = append(errs, missing(path.Child("plugins"), &profile))
		}
		made.profiles = append(made.profiles, &profile)
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return nil, utilerrors.Flatten(err)
	}
	return made, nil
}

// missing reports the extension points that need a plugin.
func missing(path *field.Path, p *framework.Profile) error {
	var errs []error
	if p.QueueSort == nil {
		errs = append(errs, field.Required(path.Child("queueSort", "enabled"), "a profile needs a QueueSort plugin, such as PrioritySort"))
	}
	if len(p.Binds) == 0 {
		errs = append(errs, field.Required(path.Child("bind", "enabled"), "a profile needs a Bind plugin, such as "+framework.DefaultBinder))
	}
	return errors.Join(errs...)
}

// use replaces the configuration.
func (s *Scheduler) use(made *setup) {
	s.profiles, s.requeues, s.evaluations = map[string]*framework.Profile{}, map[string]requeues{}, map[*framework.Profile]*evaluations{}
	s.configured, s.extenders, s.classes = made, made.extenders, NewClasses()
	for _, p := range made.profiles {
		if len(s.added) > 0 {
			p = p.Extend(s.added)
		}
		s.profiles[p.SchedulerName], s.requeues[p.SchedulerName] = p, requeuesOf(p)
		s.evaluations[p] = s.metrics.evaluationsOf(p)
		for _, f := range p.PostFilters {
			if preemption, ok := f.(*defaultPreemption); ok {
				preemption.profile = p
			}
		}
		s.queue.sortBy(p.QueueSort)
	}
	s.queue.initialBackoff, s.queue.maxBackoff = made.initialBackoff, made.maxBackoff
}

// reconsider tries all waiting pods again, takes in those of all pods that have a new profile, and
// leaves those of removed profiles alone.
func (s *Scheduler) reconsider(all []*corev1.Pod, now time.Time) {
	for uid, p := range s.queue.pods {
		if s.profiles[p.info.Pod.Spec.SchedulerName] == nil && p.place != inFlight {
			s.queue.remove(uid)
		}
	}
	for _, pod := range all {
		if _, known := s.queue.pods[pod.UID]; !known && pod.Spec.NodeName == "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			s.onPod(nil, pod, false, now)
		}
	}
	for _, p := range s.queue.waiting {
		s.queue.retry(p, "ConfigurationChanged", now)
	}
}
