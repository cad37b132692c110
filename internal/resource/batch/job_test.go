package batch_test

import (
	"strings"
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

// Legal and illegal statuses of a Job.
func TestStatusesOfJobsEndInOrder(t *testing.T) {
	cases := []struct {
		name, status string
		want         []string
	}{
		{"complete before its criteria are met", "{startTime: '2024-01-01T00:00:00Z', completionTime: '2024-01-01T00:00:00Z', conditions: [{type: Complete, status: 'True'}]}",
			[]string{"status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition"}},
		{"failed without FailureTarget", "{startTime: '2024-01-01T00:00:00Z', conditions: [{type: Failed, status: 'True'}]}",
			[]string{"status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition"}},
		{"more ready than active", "{active: 1, ready: 2}", []string{"status.ready: Invalid value: 2: cannot set more ready pods than active"}},
		{"an index beyond the job", "{completedIndexes: '7'}", []string{`status.completedIndexes: Invalid value: "7": error parsing completedIndexes: too large index: "7"`}},
		{"an index completed and failed", "{completedIndexes: '0-1', failedIndexes: '1'}", []string{`status.failedIndexes: Invalid value: "1": failedIndexes and completedIndexes overlap at index: 1`}},
	}
	const job = "apiVersion: batch/v1\nkind: Job\nspec: {completionMode: Indexed, completions: 3, backoffLimitPerIndex: 1}\n"
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, job)
			obj, _ := resourcetest.Read(t, rules.For, job+"status: "+c.status+"\n")
			resourcetest.Expect(t, s.ValidateStatus(obj, old), c.want...)
		})
	}
}

func TestErrorsOfNewJobsComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a job", job(""), nil},
		{"a job with restart policy Always", strings.Replace(job(""), "restartPolicy: Never, ", "", 1),
			[]string{`spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`}},
		{"an indexed job without completions", job(", completionMode: Indexed, parallelism: 2"),
			[]string{"spec.completions: Required value: when completion mode is Indexed"}},
		{"a limit per index without indexes", job(", backoffLimitPerIndex: 1"),
			[]string{"spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"}},
		{"an incomplete failure policy", job(", podFailurePolicy: {rules: [{action: FailJob}, {action: FailIndex, onExitCodes: {operator: In, values: [2, 0, 2]}}, {onPodConditions: [{type: A}]}]}"),
			[]string{"spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
				`spec.podFailurePolicy.rules[1].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set`,
				"spec.podFailurePolicy.rules[1].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
				"spec.podFailurePolicy.rules[1].onExitCodes.values[2]: Duplicate value: 2",
				"spec.podFailurePolicy.rules[1].onExitCodes.values: Invalid value: [2,0,2]: must be ordered",
				`spec.podFailurePolicy.rules[2].action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]`}},
		{"a success policy beyond the job", job(", completionMode: Indexed, completions: 5, successPolicy: {rules: [{succeededIndexes: \"0-2\", succeededCount: 4}, {succeededIndexes: \"7\"}, {}]}"),
			[]string{"spec.successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of indexes in the specified succeededIndexes field)",
				`spec.successPolicy.rules[1].succeededIndexes: Invalid value: "7": error parsing succeededIndexes: too large index: "7"`,
				"spec.successPolicy.rules[2]: Required value: at least one of succeededCount or succeededIndexes must be specified"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}

func TestErrorsOfUpdatesOfJobsComeInOrder(t *testing.T) {
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"an indexed job changes completions with parallelism", job(", completionMode: Indexed, completions: 2, parallelism: 2"), job(", completionMode: Indexed, completions: 3, parallelism: 3"), nil},
		{"an indexed job changes completions alone", job(", completionMode: Indexed, completions: 2, parallelism: 2"), job(", completionMode: Indexed, completions: 3, parallelism: 2"),
			[]string{"spec.completions: Invalid value: 3: can only be modified in tandem with spec.parallelism"}},
		{"a job's completions are immutable", job(", completions: 2"), job(", completions: 3"), []string{"spec.completions: Invalid value: 3: field is immutable"}},
		{"a suspended job changes its node selector", job(", suspend: true"), strings.Replace(job(", suspend: true"), "{containers", "{nodeSelector: {x: z}, containers", 1), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.ExpectInOrder(t, resourcetest.Update(s, obj, old), c.want)
		})
	}
}

func TestNewJobsAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a job with an unknown restart policy", "apiVersion: batch/v1\nkind: Job\nspec: {podFailurePolicy: {rules: []}, selector: {matchLabels: {a: b}}, manualSelector: true, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: x, containers: [{name: c, image: i}]}}}\n", []string{`restartPolicy: Unsupported value: "x": supported values: "Always", "OnFailure", "Never"`, `restartPolicy: Unsupported value: "x": supported values: "OnFailure", "Never"`}},
		{"a job may restart the containers of its indexes", "apiVersion: batch/v1\nkind: Job\nspec: {completionMode: Indexed, completions: 2, backoffLimitPerIndex: 1, selector: {matchLabels: {a: b}}, manualSelector: true, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: OnFailure, containers: [{name: c, image: i}]}}}\n", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestStatusesOfJobsAreValidated(t *testing.T) {
	job := func(status string) string {
		return "apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\nstatus: " + status + "\n"
	}
	shrunk := func(status string) string {
		return "apiVersion: batch/v1\nkind: Job\nspec: {completionMode: Indexed, completions: 3, parallelism: 3, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\nstatus: " + status + "\n"
	}
	empty := func(status string) string {
		return "apiVersion: batch/v1\nkind: Job\nspec: {suspend: true, completions: 0, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\nstatus: " + status + "\n"
	}
	const complete = "conditions: [{type: SuccessCriteriaMet, status: 'True'}, {type: Complete, status: 'True'}]"
	const begun = "startTime: '2024-01-01T00:00:00Z'"
	const failed = "conditions: [{type: FailureTarget, status: 'True'}, {type: Failed, status: 'True'}]"
	cases := []struct {
		name, was, is string
		want          []string
	}{
		{"counters cannot decrease", job("{succeeded: 2, failed: 2}"), job("{succeeded: 1, failed: 1}"), []string{"status.succeeded: Invalid value: 1: cannot decrease the succeeded counter", "status.failed: Invalid value: 1: cannot decrease the failed counter"}},
		{"succeeded indexes beyond a shrunken job do not count", shrunk("{succeeded: 2}"), shrunk("{succeeded: 0}"), nil},
		{"a suspended job with nothing to do is complete without having begun", empty("{}"), empty("{completionTime: '2024-01-01T00:00:00Z', " + complete + "}"), nil},
		{"startTime is immutable", job("{" + begun + "}"), job("{}"), []string{"status.startTime: Invalid value: null: field is immutable for unsuspended job once set"}},
		{"FailureTarget cannot be removed", job("{conditions: [{type: FailureTarget, status: 'True'}]}"), job("{}"), []string{"status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition"}},
		{"SuccessCriteriaMet cannot be removed", job("{conditions: [{type: SuccessCriteriaMet, status: 'True'}]}"), job("{}"), []string{"status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition"}},
		{"success and failure exclude each other", job("{" + begun + "}"), job("{" + begun + ", conditions: [{type: SuccessCriteriaMet, status: 'True'}, {type: FailureTarget, status: 'True'}, {type: Failed, status: 'True'}]}"),
			[]string{"cannot set SuccessCriteriaMet=True and Failed=true conditions", "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"}},
		{"a finished job has no pods left", job("{" + begun + "}"), job("{" + begun + ", terminating: 1, uncountedTerminatedPods: {failed: [a]}, " + failed + "}"),
			[]string{"status.terminating: Invalid value: 1: terminating>0 is invalid for finished job", "status.uncountedTerminatedPods: Invalid value: {\"failed\":[\"a\"]}: must be empty for finished job"}},
		{"completionTime is immutable", job("{" + begun + ", completionTime: '2024-01-02T00:00:00Z', " + complete + "}"), job("{" + begun + ", completionTime: '2024-01-03T00:00:00Z', " + complete + "}"), []string{"status.completionTime: Invalid value: \"2024-01-03T00:00:00Z\": field is immutable"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.was)
			obj, _ := resourcetest.Read(t, rules.For, c.is)
			resourcetest.Expect(t, s.ValidateStatus(obj, old), c.want...)
		})
	}
}

func TestUpdatesOfJobsAreValidated(t *testing.T) {
	job := func(grace string, status string) string {
		return "apiVersion: batch/v1\nkind: Job\nspec: {suspend: true, selector: {matchLabels: {a: b}}, manualSelector: true, template: {metadata: {labels: {a: b}}, spec: {terminationGracePeriodSeconds: " + grace + ", restartPolicy: Never, containers: [{name: c, image: i}]}}}\nstatus: " + status + "\n"
	}
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"the template of a suspended job", job("5", "{}"), job("6", "{}"), []string{"spec.template.spec: Invalid value"}},
		{"the template of a suspended job with running pods", job("5", "{active: 1}"), job("6", "{active: 1}"), []string{"spec.template: Invalid value"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}

func TestWarningsOfJobs(t *testing.T) {
	const many = "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
	job := "spec: {completionMode: Indexed, completions: 200000, parallelism: 20000, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a job with very many indexes", "apiVersion: batch/v1\nkind: Job\n" + job + "\n", []string{"spec: " + many}},
		{"a job with a name unfit for hostnames", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a.b}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n", []string{
			"metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectWarnings(t, s.Warnings(obj, nil), c.want)
		})
	}
}
