package api

import (
	batchv1 "k8s.io/api/batch/v1"
)

// batchKinds are the kinds of the group batch.
var batchKinds = []Kind{
	{
		Kind: batchv1.SchemeGroupVersion.WithKind("CronJob"), Resource: "cronjobs", Singular: "cronjob",
		Object: &batchv1.CronJob{}, Namespaced: true, ShortNames: []string{"cj"}, Categories: []string{"all"}, Served: []string{"v1"},
		Prefix: "/registry/cronjobs",
		Subresources: []Subresource{
			{Name: "status", Kind: batchv1.SchemeGroupVersion.WithKind("CronJob"), Verbs: updateVerbs},
		},
	},
	{
		Kind: batchv1.SchemeGroupVersion.WithKind("Job"), Resource: "jobs", Singular: "job",
		Object: &batchv1.Job{}, Namespaced: true, Categories: []string{"all"}, Served: []string{"v1"},
		Prefix: "/registry/jobs",
		Subresources: []Subresource{
			{Name: "status", Kind: batchv1.SchemeGroupVersion.WithKind("Job"), Verbs: updateVerbs},
		},
	},
}
