package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

func rollout(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, deployment("web", 2)); err != nil {
		return err
	}
	wait := func() error {
		_, err := b.kubectl(ctx, "", "rollout", "status", "-n", namespace, "deployment/web", "--timeout", patience.String())
		return err
	}
	steps := [][]string{{"set", "env", "deployment/web", "ROUND=2"}, {"rollout", "undo", "deployment/web"}, {"scale", "deployment/web", "--replicas=1"}}
	err := wait()
	for _, step := range steps {
		if err != nil {
			return err
		}
		if _, err = b.kubectl(ctx, "", append(step, "-n", namespace)...); err == nil {
			err = wait()
		}
	}
	if err != nil {
		return err
	}
	return b.eventually(ctx, func() error {
		sets, err := b.kubectl(ctx, "", "get", "rs", "-n", namespace, "-o", `jsonpath={range .items[*]}{.metadata.annotations.deployment\.kubernetes\.io/revision}:{.status.replicas} {end}`)
		if err == nil && sets != "2:0 3:1 " && sets != "3:1 2:0 " {
			err = fmt.Errorf("ReplicaSets by revision: %q, wanted 2:0 and 3:1", sets)
		}
		return err
	})
}

func ordered(ctx context.Context, b *bench, namespace string) error {
	if err := b.makes(ctx, namespace, volumes(namespace, 2)+strings.NewReplacer("NS", namespace, "IMAGE", podImage).Replace(`
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], storageClassName: NS, resources: {requests: {storage: 1Mi}}}}]
  template:
    metadata: {labels: {app: db}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: a, image: "IMAGE", imagePullPolicy: Never, volumeMounts: [{name: d, mountPath: /d}]}]}
`), "statefulset/db", "{.status.readyReplicas} {.status.availableReplicas}", "2 2"); err != nil {
		return err
	}
	return b.becomes(ctx, namespace, "pvc/d-db-1", "{.status.phase}", "Bound")
}

func daemon(ctx context.Context, b *bench, namespace string) error {
	return b.makes(ctx, namespace, withImage(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: d}
spec: {selector: {matchLabels: {app: d}}, template: {metadata: {labels: {app: d}}, spec: {terminationGracePeriodSeconds: 1, containers: [{name: a, image: "IMAGE", imagePullPolicy: Never}]}}}
`), "daemonset/d", "{.status.desiredNumberScheduled} {.status.numberAvailable}", "1 1")
}

func jobDone(ctx context.Context, b *bench, namespace string) error {
	if err := b.makes(ctx, namespace, withImage(`
apiVersion: batch/v1
kind: Job
metadata: {name: kept}
spec: {completions: 2, completionMode: Indexed, template: {spec: {restartPolicy: Never, containers: [{name: a, image: "IMAGE", imagePullPolicy: Never, args: [say, done]}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: short}
spec: {ttlSecondsAfterFinished: 1, template: {spec: {restartPolicy: Never, containers: [{name: a, image: "IMAGE", imagePullPolicy: Never, args: [say, done]}]}}}
`), "job/kept", `{.status.completedIndexes} {.status.succeeded} {.status.conditions[?(@.type=="Complete")].status}`, "0,1 2 True"); err != nil {
		return err
	}
	return b.gone(ctx, namespace, "job/short")
}

func cron(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, withImage(`
apiVersion: batch/v1
kind: CronJob
metadata: {name: c}
spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: "IMAGE", imagePullPolicy: Never, args: [say, done]}]}}}}}
`)); err != nil {
		return err
	}
	return b.eventually(ctx, func() error {
		last, err := b.field(ctx, namespace, "cronjob/c", "{.status.lastSuccessfulTime}")
		if err == nil && last == "" {
			err = errors.New("no job has succeeded")
		}
		return err
	})
}

func service(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, deployment("web", 2)+`---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
`); err != nil {
		return err
	}
	if err := b.eventually(ctx, func() error {
		ready, err := b.kubectl(ctx, "", "get", "endpointslices", "-n", namespace, "-l", "kubernetes.io/service-name=web", "-o", "jsonpath={.items[*].endpoints[*].conditions.ready}")
		if err == nil && ready != "true true" {
			err = fmt.Errorf("endpoints that are ready: %q", ready)
		}
		return err
	}); err != nil {
		return err
	}
	ip, err := b.field(ctx, namespace, "service/web", "{.spec.clusterIP}")
	if err != nil {
		return err
	}
	return b.eventually(ctx, func() error { return answers(ctx, "http://"+ip+"/", "web-") })
}

// answers asks an URL and wants the text in what it says.
func answers(ctx context.Context, url, text string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && !strings.Contains(string(body), text) {
		err = fmt.Errorf("%s answered %d %q", url, resp.StatusCode, body)
	}
	return err
}

func autoscaler(ctx context.Context, b *bench, namespace string) error {
	if err := b.makes(ctx, namespace, deployment("web", 1)+`---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {minReplicas: 2, maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}
`, "deployment/web", "{.spec.replicas} {.status.availableReplicas}", "2 2"); err != nil {
		return err
	}
	return b.becomes(ctx, namespace, "hpa/web", `{.status.conditions[?(@.type=="AbleToScale")].status}`, "True")
}
