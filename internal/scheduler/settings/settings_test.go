package settings

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

func TestDefaultsAreUpstreams(t *testing.T) {
	c, err := Parse([]byte(head))
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case *c.Parallelism != 16, *c.PercentageOfNodesToScore != 0, *c.PodInitialBackoffSeconds != 1, *c.PodMaxBackoffSeconds != 10:
		t.Errorf("numbers: %+v", c)
	case !*c.LeaderElection.LeaderElect, c.LeaderElection.LeaseDuration.Duration != 15*time.Second, c.LeaderElection.ResourceLock != "leases",
		c.LeaderElection.ResourceName != "kube-scheduler", c.LeaderElection.ResourceNamespace != "kube-system":
		t.Errorf("leaderElection: %+v", c.LeaderElection)
	case c.ClientConnection.QPS != 50, c.ClientConnection.Burst != 100, c.ClientConnection.ContentType != "application/vnd.kubernetes.protobuf":
		t.Errorf("clientConnection: %+v", c.ClientConnection)
	case len(c.Profiles) != 1, *c.Profiles[0].SchedulerName != corev1.DefaultSchedulerName:
		t.Errorf("profiles: %+v", c.Profiles)
	}
	args := map[string]any{}
	for _, p := range c.Profiles[0].PluginConfig {
		args[p.Name] = p.Args.Object
	}
	if a := args["DefaultPreemption"].(*configv1.DefaultPreemptionArgs); *a.MinCandidateNodesPercentage != 10 || *a.MinCandidateNodesAbsolute != 100 {
		t.Errorf("%+v", a)
	}
	if a := args["NodeResourcesFit"].(*configv1.NodeResourcesFitArgs); a.ScoringStrategy.Type != configv1.LeastAllocated || len(a.ScoringStrategy.Resources) != 2 {
		t.Errorf("%+v", a.ScoringStrategy)
	}
	if a := args["VolumeBinding"].(*configv1.VolumeBindingArgs); *a.BindTimeoutSeconds != 600 || a.Shape != nil {
		t.Errorf("%+v", a)
	}
	if a := args["DynamicResources"].(*configv1.DynamicResourcesArgs); a.FilterTimeout.Duration != 10*time.Second || a.BindingTimeout.Duration != 10*time.Minute {
		t.Errorf("%+v", a)
	}
	if len(args) != 8 {
		t.Errorf("arguments of %d plugins", len(args))
	}
}

func TestFaultsNameFieldAndAllowedValues(t *testing.T) {
	profile := func(rest string) string { return "profiles:\n- schedulerName: s\n" + rest }
	args := func(plugin, rest string) string {
		return profile("  pluginConfig:\n  - name: " + plugin + "\n    args: {" + rest + "}\n")
	}
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a mistyped field":              {"paralelism: 3", []string{"paralelism: unknown field", "the nearest is parallelism"}},
		"a mistyped field of a profile": {"profiles: [{schedulername: x}]", []string{"profiles[0].schedulername: unknown field", "schedulerName"}},
		"a mistyped field of arguments": {args("VolumeBinding", "bindTimeoutSecond: 3"), []string{"profiles[0].pluginConfig[0].args.bindTimeoutSecond", "bindTimeoutSeconds"}},
		"a value of another type":       {"parallelism: many", []string{"parallelism: a string is not usable: a number is wanted"}},
		"a repeated field":              {"parallelism: 3\nparallelism: 4", []string{"parallelism"}},
		"no parallelism":                {"parallelism: 0", []string{"parallelism", "greater than 0"}},
		"a percentage above 100":        {"percentageOfNodesToScore: 101", []string{"percentageOfNodesToScore: Invalid value: 101", "from 0 to 100"}},
		"a percentage of a profile":     {profile("  percentageOfNodesToScore: -1\n"), []string{"profiles[0].percentageOfNodesToScore", "from 0 to 100"}},
		"no initial backoff":            {"podInitialBackoffSeconds: 0", []string{"podInitialBackoffSeconds", "greater than 0"}},
		"the backoffs reversed":         {"podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 4", []string{"podMaxBackoffSeconds", "podInitialBackoffSeconds"}},
		"another lock":                  {"leaderElection: {resourceLock: endpoints}", []string{"leaderElection.resourceLock", `"leases"`}},
		"a short lease":                 {"leaderElection: {leaseDuration: 5s}", []string{"leaderElection.leaseDuration", "renewDeadline"}},
		"two profiles of a name":        {"profiles: [{schedulerName: a}, {schedulerName: a}]", []string{"profiles[1].schedulerName: Duplicate", "profiles[0].schedulerName"}},
		"a profile without a name":      {"profiles: [{schedulerName: a}, {}]", []string{"profiles[1].schedulerName: Required"}},
		"different orders of the queue": {"profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {enabled: [{name: X}]}}}]", []string{"profiles[1].plugins.queueSort", "same in all profiles"}},
		"arguments given twice":         {profile("  pluginConfig: [{name: X}, {name: X}]\n"), []string{"profiles[0].pluginConfig[1].name: Duplicate"}},
		"arguments of another kind":     {args("VolumeBinding", "kind: NodeAffinityArgs, apiVersion: kubescheduler.config.k8s.io/v1"), []string{"kind: VolumeBindingArgs"}},
		"a removed plugin":              {profile("  pluginConfig: [{name: EBSLimits}]\n"), []string{"EBSLimits", "NodeVolumeLimits"}},
		"a scoring strategy":            {args("NodeResourcesFit", "scoringStrategy: {type: Least}"), []string{"scoringStrategy.type: Unsupported value", "MostAllocated"}},
		"a strategy without its shape":  {args("NodeResourcesFit", "scoringStrategy: {type: RequestedToCapacityRatio}"), []string{"scoringStrategy.requestedToCapacityRatio: Required"}},
		"a falling utilization": {
			args("NodeResourcesFit", "scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 9, score: 1}, {utilization: 3, score: 1}]}}"),
			[]string{"shape[1].utilization", "greater than the one before"},
		},
		"a resource group with a slash": {args("NodeResourcesFit", "ignoredResourceGroups: [a.b/c]"), []string{"ignoredResourceGroups[0]"}},
		"a weight of balance":           {args("NodeResourcesBalancedAllocation", "resources: [{name: cpu, weight: 2}]"), []string{"resources[0].weight", "must be 1"}},
		"a weight of hard affinity":     {args("InterPodAffinity", "hardPodAffinityWeight: 101"), []string{"hardPodAffinityWeight", "from 0 to 100"}},
		"no candidates":                 {args("DefaultPreemption", "minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0"), []string{"minCandidateNodesPercentage", "minCandidateNodesAbsolute"}},
		"system defaults and a list":    {args("PodTopologySpread", "defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: ScheduleAnyway}]"), []string{"defaultingType", "must be List"}},
		"a selector of a default":       {args("PodTopologySpread", "defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}]"), []string{"defaultConstraints[0].labelSelector: Forbidden"}},
		"an added affinity":             {args("NodeAffinity", "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: k, operator: Near}]}]}}"), []string{"addedAffinity", "Near"}},
		"a gated field":                 {args("VolumeBinding", "shape: [{utilization: 0, score: 1}]"), []string{"shape", "StorageCapacityScoring"}},
		"a short binding timeout":       {args("DynamicResources", "bindingTimeout: 1ms"), []string{"bindingTimeout", "at least 1s"}},
		"an extender without weight":    {"extenders: [{urlPrefix: http://x, prioritizeVerb: p}]", []string{"extenders[0].weight", "greater than 0"}},
		"two binding extenders":         {"extenders: [{urlPrefix: http://x, bindVerb: b}, {urlPrefix: http://y, bindVerb: b}]", []string{"extenders[1].bindVerb", "only one"}},
		"a field given twice":           {"parallelism: 1\nparallelism: 2", []string{`line 4: key "parallelism" already set in map`}},
		"a native managed resource":     {"extenders: [{urlPrefix: http://x, managedResources: [{name: cpu}]}]", []string{"extenders[0].managedResources[0].name", "extended resource"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(head + c.text))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
		})
	}
}

func TestAnotherKindIsRefused(t *testing.T) {
	for _, text := range []string{"", "kind: KubeSchedulerConfiguration", "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration", "- 1"} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestFieldsWithoutEffectAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"delayCacheUntilActive: true":  "",
		"delayCacheUntilActive: false": "delayCacheUntilActive",
		"parallelism: 16":              "parallelism: 16",
		"podInitialBackoffSeconds: 1":  "",
		"leaderElection: {}":           "",
	} {
		c, err := Parse([]byte(head + text))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.Idle(), "; "); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "profiles: [{schedulerName: a, plugins: {score: {disabled: [{name: '*'}], enabled: [{name: X, weight: 3}]}}}]"))
	f.Add([]byte(head + "extenders: [{urlPrefix: 'http://x', tlsConfig: {caData: aGk=}}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text)
		if (c == nil) == (err == nil) {
			t.Fatalf("configuration %v, error %v", c, err)
		}
	})
}
