package batch_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func cronJob(spec string) string {
	return "apiVersion: batch/v1\nkind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure, containers: [{name: c, image: i}]}}}}" + spec + "}\n"
}

func job(spec string) string {
	return "apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}" + spec + "}\n"
}

func TestErrorsOfNewCronJobsComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a cron job", cronJob(`, schedule: "*/5 * * * *", timeZone: Etc/UTC`), nil},
		{"a cron job without schedule", cronJob(""), []string{"spec.schedule: Required value"}},
		{"a cron job with an invalid schedule", cronJob(`, schedule: "often"`),
			[]string{`spec.schedule: Invalid value: "often": expected exactly 5 fields, found 1: [often]`}},
		{"a cron job with a time zone as schedule", cronJob(`, schedule: "CRON_TZ=UTC"`), []string{
			`spec.schedule: Invalid value: "CRON_TZ=UTC": expected exactly 5 fields, found 0: []`, `spec.schedule: Invalid value: "CRON_TZ=UTC": cannot use TZ or CRON_TZ in schedule, use timeZone field instead`}},
		{"a cron job with an unknown time zone", cronJob(`, schedule: "* * * * *", timeZone: Mars/Base`),
			[]string{`spec.timeZone: Invalid value: "Mars/Base": unknown time zone Mars/Base`}},
		{"a cron job with two zones", cronJob(`, schedule: "TZ=UTC * * * * *", timeZone: Etc/UTC`),
			[]string{`spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use both timeZone field and TZ or CRON_TZ in schedule`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}

func TestNewCronJobsAreValidated(t *testing.T) {
	cron := func(spec string) string {
		return "apiVersion: batch/v1\nkind: CronJob\nspec: {schedule: '* * * * *', jobTemplate: {spec: {" + spec + ", template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a negative backoff limit per index, without indexes", cron("backoffLimitPerIndex: -1"), []string{"spec.jobTemplate.spec.backoffLimitPerIndex: Invalid value: -1: must be greater than or equal to 0", "spec.jobTemplate.spec.backoffLimitPerIndex: Invalid value: -1: requires indexed completion mode"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestWarningsOfCronJobs(t *testing.T) {
	const many = "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
	job := "spec: {completionMode: Indexed, completions: 200000, parallelism: 20000, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a cron job with very many indexes", "apiVersion: batch/v1\nkind: CronJob\nspec: {schedule: '* * * * *', jobTemplate: {" + job + "}}\n", []string{"spec.jobTemplate.spec: " + many}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectWarnings(t, s.Warnings(obj, nil), c.want)
		})
	}
}
