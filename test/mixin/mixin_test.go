package mixin

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// manifest are the workloads: a Deployment with limits, probes and a Service, and a pod with a
// claim and a folder of the node that writes to both.
const manifest = `apiVersion: v1
kind: Namespace
metadata: {name: apps}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: apps}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 32Mi}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: apps}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: apps}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: test/load:v1
        args: [burn, fetch, "http://web.apps"]
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 20m, memory: 64Mi}}
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, timeoutSeconds: 5}
        livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 5, timeoutSeconds: 30, failureThreshold: 10}
---
apiVersion: v1
kind: Pod
metadata: {name: disk, namespace: apps}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: disk
    image: test/load:v1
    args: [write, /data/file]
    volumeMounts: [{name: data, mountPath: /data}, {name: scratch, mountPath: /scratch}]
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 500m, memory: 64Mi}}
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: scratch, emptyDir: {}}]
`

// exporter runs node-exporter as kube-prometheus does.
const exporter = `apiVersion: v1
kind: Namespace
metadata: {name: monitoring}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node-exporter, namespace: monitoring}
spec:
  selector: {matchLabels: {app: node-exporter}}
  template:
    metadata: {labels: {app: node-exporter}}
    spec:
      hostNetwork: true
      hostPID: true
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true, runAsUser: 65534, runAsGroup: 65534}
      containers:
      - name: node-exporter
        image: test/node-exporter:v1
        args: ["--web.listen-address=192.168.88.1:9100", --path.sysfs=/host/sys, --path.rootfs=/host/root, --no-collector.wifi, --no-collector.hwmon, --no-collector.btrfs]
        resources: {requests: {cpu: 10m, memory: 20Mi}, limits: {cpu: 250m, memory: 180Mi}}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {add: [SYS_TIME], drop: [ALL]}}
        readinessProbe: {httpGet: {host: 192.168.88.1, port: 9100, path: /}, periodSeconds: 1, timeoutSeconds: 10}
        volumeMounts:
        - {name: sys, mountPath: /host/sys, mountPropagation: HostToContainer, readOnly: true}
        - {name: root, mountPath: /host/root, mountPropagation: HostToContainer, readOnly: true}
      volumes: [{name: sys, hostPath: {path: /sys}}, {name: root, hostPath: {path: /}}]
`

// another is a pod that starts between two scrapes.
const another = `apiVersion: v1
kind: Pod
metadata: {name: another, namespace: apps}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: another, image: "test/load:v1"}]
  volumes: [{name: scratch, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: broken, namespace: apps}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: broken, image: "127.0.0.1:1/missing:v1"}]
`

// interval is that of kube-prometheus. The samples get times this far apart, so that the test does
// not wait for them.
const interval = 30 * time.Second

func TestNoQueryOfTheMixinIsEmpty(t *testing.T) {
	queries, err := parse(queryFile)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	db, err := open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer db.close()
	c.loadImage("test/load:v1", "./load")
	now := time.Now()
	s := &scraper{c, db, now.Add(-2 * interval)}
	c.loadImage("test/node-exporter:v1", "github.com/prometheus/node_exporter")
	c.apply(manifest)
	c.apply(exporter)
	c.kubectl("-n", "monitoring", "rollout", "status", "daemonset/node-exporter", "--timeout=100s")
	c.kubectl("-n", "apps", "wait", "--for=condition=Ready", "pods", "--all", "--timeout=100s")
	c.kubectl("-n", "apps", "rollout", "status", "deployment/web", "--timeout=100s")
	c.eventually("the volume is measured", func() error { return c.measured() })
	s.scrape()
	c.apply(another)
	c.kubectl("-n", "apps", "scale", "deployment/web", "--replicas=3")
	c.kubectl("-n", "apps", "rollout", "status", "deployment/web", "--timeout=100s")
	c.kubectl("-n", "apps", "wait", "--for=condition=Ready", "pod/another", "--timeout=100s")
	s.scrape()
	c.kubectl("-n", "apps", "delete", "pod/another", "--timeout=60s")
	s.scrape()

	at := s.next.Add(-interval)
	for range 2 { // some rules read others
		for i := range queries {
			if q := &queries[i]; q.record {
				if err := db.record(t.Context(), q, at); err != nil {
					t.Errorf("rule %s: %v", q.name, err)
				}
			}
		}
	}
	empty := 0
	for i := range queries {
		q := &queries[i]
		v, err := db.ask(t.Context(), q.expression, at)
		switch {
		case err != nil:
			t.Errorf("%s: %v", q.name, err)
		case len(v) == 0 && q.never == "" && !q.maybe:
			empty++
			t.Errorf("empty: %s: %s", q.name, q.expression)
		case len(v) > 0 && q.never != "":
			t.Errorf("%s has data: %v", q.name, v[0])
		}
	}
	t.Logf("%d queries, %d empty", len(queries), empty)
}

// pages are the targets of kube-prometheus, with the labels that it adds to their samples.
var pages = []struct{ job, address, path string }{
	{"kubelet", "192.168.88.1:10250", "/metrics"},
	{"kubelet", "192.168.88.1:10250", "/metrics/cadvisor"},
	{"kubelet", "192.168.88.1:10250", "/metrics/probes"},
	{"kubelet", "192.168.88.1:10250", "/metrics/resource"},
	{"kubelet", "192.168.88.1:10250", "/metrics/slis"},
	{"node-exporter", "192.168.88.1:9100", "/metrics"},
	{"apiserver", "192.168.88.1:6443", "/metrics"},
	{"kube-controller-manager", "192.168.88.1:6443", "/metrics"},
	{"kube-scheduler", "192.168.88.1:6443", "/metrics"},
}

type scraper struct {
	*cluster
	db   *database
	next time.Time // of the next samples
}

// scrape reads all pages and stores them.
func (s *scraper) scrape() {
	s.t.Helper()
	s.get("https://192.168.88.1:10250/healthz")
	for _, p := range pages {
		began := time.Now()
		scheme := "https://"
		if p.job == "node-exporter" {
			scheme = "http://"
		}
		page := s.get(scheme + p.address + p.path)
		took := time.Since(began)
		target := map[string]string{"job": p.job, "instance": p.address, "metrics_path": p.path}
		if p.job == "kubelet" {
			target["node"] = "one"
		}
		if p.job == "node-exporter" {
			pod := s.kubectl("-n", "monitoring", "get", "pods", "-o", "jsonpath={.items[0].metadata.name}")
			target["instance"], target["namespace"], target["pod"], target["node"] = "one", "monitoring", string(pod), "one"
		}
		samples, err := s.db.scraped(s.t.Context(), page, target, s.next)
		if err != nil {
			s.t.Fatalf("%s %s: %v", p.job, p.path, err)
		}
		s.t.Logf("%s %s: %d samples, %d bytes, %s", p.job, p.path, samples, len(page), took.Round(time.Millisecond))
		up := series{"up", 1, []string{"metrics_path", p.path}}
		if err := s.db.stored(s.t.Context(), p.job, []series{up}, s.next); err != nil {
			s.t.Fatal(err)
		}
	}
	all, err := states(s.kubectl("get", "pods,replicasets,nodes", "-A", "-o", "json"))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.db.stored(s.t.Context(), "kube-state-metrics", all, s.next); err != nil {
		s.t.Fatal(err)
	}
	s.next = s.next.Add(interval)
}

// measured returns an error until the node has measured the claim's volume. It does that in the
// background.
func (c *cluster) measured() error {
	var summary struct {
		Pods []struct {
			Volume []struct {
				PVCRef *struct{ Name string }
			}
		}
	}
	if err := json.Unmarshal(c.get("https://192.168.88.1:10250/stats/summary"), &summary); err != nil {
		return err
	}
	for _, pod := range summary.Pods {
		for _, v := range pod.Volume {
			if v.PVCRef != nil {
				return nil
			}
		}
	}
	return fmt.Errorf("no volume of a claim")
}
