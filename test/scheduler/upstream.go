package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// theirs is upstream's scheduler with a case's cluster.
type theirs struct {
	scheduler *scheduler.Scheduler
	profile   framework.Framework
	snapshot  *cache.Snapshot
	pod       *corev1.Pod
}

// newTheirs makes upstream's scheduler with its default profile. It ends with ctx.
func newTheirs(ctx context.Context, c *Case) (*theirs, error) {
	var objects []runtime.Object
	for _, claim := range c.DeviceClaims { // PostFilter writes them
		objects = append(objects, claim)
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	showAll(factory, c)
	s, err := scheduler.New(ctx, client, factory, nil, func(string) events.EventRecorderLogger { return &events.FakeRecorder{} })
	if err != nil {
		return nil, err
	}
	t := &theirs{scheduler: s, profile: s.Profiles[corev1.DefaultSchedulerName], pod: c.Pod}
	t.snapshot = t.profile.SnapshotSharedLister().(*cache.Snapshot)
	return t, s.Cache.UpdateSnapshot(klog.FromContext(ctx), t.snapshot)
}

// Upstream returns upstream's verdict.
func Upstream(c *Case) (*Verdict, error) {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	defer cancel()
	t, err := newTheirs(ctx, c)
	if err != nil {
		return nil, err
	}
	v := &Verdict{Refused: map[string]string{}, Scores: map[string]map[string]int64{}, Victims: map[string][]string{}}
	for _, p := range t.profile.PreEnqueuePlugins() {
		v.Gated = v.Gated || !p.PreEnqueue(ctx, c.Pod).IsSuccess()
	}
	if v.Gated {
		return v, nil
	}
	state := framework.NewCycleState()
	info, err := framework.NewPodInfo(c.Pod)
	if err != nil {
		v.Error = err.Error()
		return v, nil
	}
	result, err := t.scheduler.SchedulePod(ctx, t.profile, state, &framework.QueuedPodInfo{PodInfo: info})
	var misfit *framework.FitError
	switch {
	case errors.As(err, &misfit):
		return v, t.refused(ctx, v, state, misfit)
	case errors.Is(err, scheduler.ErrNoNodesAvailable):
		v.Message = err.Error()
		return v, nil
	case err != nil:
		v.Error = err.Error()
		return v, nil
	}
	if result.FeasibleNodes == 1 {
		v.Best = []string{result.SuggestedHost}
	}
	return v, t.examine(ctx, v)
}

// noPostFilter stands for the text of PostFilter if DynamicResources fails there: it misses its
// state after another plugin's refusal in PreFilter. Upstream's message then ends with "not found".
// It also stands for the failure of a plugin in a trial of preemption.
const noPostFilter = "(no PostFilter)"

// taken replaces what DynamicResources says after it took devices from a claim. knarr does this in
// the background; Verdict.InTheWay has the claims.
var taken = strings.NewReplacer("deallocation of ResourceClaim completed", "still not schedulable", "deletion of ResourceClaim completed", "still not schedulable")

// refused notes the refusals, the message and what preemption does.
func (t *theirs) refused(ctx context.Context, v *Verdict, state fwk.CycleState, misfit *framework.FitError) (err error) {
	if misfit.Diagnosis.PreFilterMsg != "" {
		v.Everywhere = line(misfit.Diagnosis.NodeToStatus.AbsentNodesStatus())
	} else {
		for _, node := range t.nodes() {
			v.Refused[node.Node().Name] = line(misfit.Diagnosis.NodeToStatus.Get(node.Node().Name))
		}
	}
	if v.InTheWay, err = inTheWay(state); err != nil {
		return err
	}
	if err := t.preempt(ctx, v, misfit.Diagnosis.NodeToStatus); err != nil {
		return err
	}
	if len(v.Preempts) == 0 {
		_, status := t.profile.RunPostFilterPlugins(ctx, state, t.pod, misfit.Diagnosis.NodeToStatus)
		misfit.Diagnosis.PostFilterMsg = taken.Replace(status.Message())
		if status.Code() == fwk.Error && (v.Everywhere != "" || v.trialFailed) {
			misfit.Diagnosis.PostFilterMsg = noPostFilter
		}
	}
	v.Message = misfit.Error()
	return nil
}

func (t *theirs) nodes() []fwk.NodeInfo {
	nodes, _ := t.snapshot.NodeInfos().List() // a snapshot has no errors
	return nodes
}

// line formats a status without the plugin's name if the framework made it.
func line(status *fwk.Status) string {
	return refusal(status.Code().String(), status.Plugin(), status.Reasons())
}

// examine filters all nodes and scores the feasible ones. SchedulePod does not report the scores.
func (t *theirs) examine(ctx context.Context, v *Verdict) (err error) {
	state := framework.NewCycleState()
	allowed, status, by := t.profile.RunPreFilterPlugins(ctx, state, t.pod)
	if !status.IsSuccess() {
		return fmt.Errorf("PreFilter decides in two ways: %w", status.AsError())
	}
	var feasible []fwk.NodeInfo
	for _, node := range t.nodes() {
		name := node.Node().Name
		if !allowed.AllNodes() && !allowed.NodeNames.Has(name) {
			v.Refused[name] = refusal(fwk.UnschedulableAndUnresolvable.String(), "", []string{fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", slices.Sorted(maps.Keys(by)))})
			continue
		}
		switch status := t.profile.RunFilterPluginsWithNominatedPods(ctx, state, t.pod, node); {
		case status.IsSuccess():
			feasible = append(feasible, node)
		case status.Code() == fwk.Error && len(v.Best) > 0:
			v.Refused = nil // it fails on a node that was not looked at: the nominated one fits
			return nil
		default:
			v.Refused[name] = line(status)
		}
	}
	if v.Devices, err = devicesFound(state, feasible); err != nil || len(v.Best) > 0 {
		return err
	}
	if status := t.profile.RunPreScorePlugins(ctx, state, t.pod, feasible); !status.IsSuccess() {
		return status.AsError()
	}
	sums, status := t.profile.RunScorePlugins(ctx, state, t.pod, feasible)
	if !status.IsSuccess() {
		return status.AsError()
	}
	for _, node := range sums {
		for _, s := range node.Scores {
			if v.Scores[s.Name] == nil {
				v.Scores[s.Name] = map[string]int64{}
			}
			v.Scores[s.Name][node.Name] = s.Score
		}
		if node.TotalScore > v.Score || len(v.Best) == 0 {
			v.Best, v.Score = nil, node.TotalScore
		}
		if node.TotalScore == v.Score {
			v.Best = append(v.Best, node.Name)
		}
	}
	slices.Sort(v.Best)
	zeros(v.Scores)
	return nil
}

// preempt notes the victims on each node, and the nodes that upstream may choose. It evicts no pod.
func (t *theirs) preempt(ctx context.Context, v *Verdict, refusals *framework.NodeToStatus) error {
	// These are the defaults.
	args := &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100}
	plugin, err := defaultpreemption.New(ctx, args, t.profile, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	if err != nil {
		return err
	}
	if ok, _ := plugin.PodEligibleToPreemptOthers(ctx, t.pod, refusals.Get(t.pod.Status.NominatedNodeName)); !ok {
		return nil
	}
	resolvable, err := refusals.NodesForStatusCode(t.snapshot.NodeInfos(), fwk.Unschedulable)
	if err != nil || len(resolvable) == 0 {
		return err
	}
	state := framework.NewCycleState() // DynamicResources changes it in each trial
	if _, status, _ := t.profile.RunPreFilterPlugins(ctx, state, t.pod); !status.IsSuccess() {
		return status.AsError()
	}
	budgets, err := plugin.Evaluator.PdbLister.List(labels.Everything())
	if err != nil {
		return err
	}
	candidates, _, err := plugin.Evaluator.DryRunPreemption(ctx, state, t.pod, resolvable, budgets, 0, int32(len(resolvable)))
	if err != nil && len(candidates) == 0 {
		v.trialFailed = true
		return nil
	}
	for _, c := range candidates {
		var names []string
		for _, p := range c.Victims().Pods {
			names = append(names, p.Name)
		}
		v.Victims[c.Name()] = names
	}
	v.Preempts = equals(ctx, plugin.Evaluator, candidates)
	return nil
}

// equals returns all nodes that upstream chooses among at random. A node that loses once against
// another is not one of these.
func equals(ctx context.Context, evaluator *preemption.Evaluator, candidates []preemption.Candidate) []string {
	const tries = 40 // the iteration over a map of two begins with either
	var best []string
	if len(candidates) == 0 {
		return nil
	}
	chosen := evaluator.SelectCandidate(ctx, candidates)
	for _, c := range candidates {
		equal := c.Name() == chosen.Name()
		for i := 0; i < tries && !equal; i++ {
			equal = evaluator.SelectCandidate(ctx, []preemption.Candidate{c, chosen}).Name() == c.Name()
		}
		if equal {
			best = append(best, c.Name())
		}
	}
	slices.Sort(best)
	return best
}
