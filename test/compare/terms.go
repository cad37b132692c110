package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// terms measures the costs from which docs/internals/scale.md computes what a cluster of 100,000
// nodes needs: the server's CPU of each kind of write, and the bytes and memory of each kind of
// object. All controllers run beside, so a kind that they read costs its copy there too.
func terms(ctx context.Context, o *options) error {
	var table strings.Builder
	table.WriteString("| side | object | bytes sent | heap of one | create: CPU | heartbeat: CPU | heartbeats/s |\n|---|---|---:|---:|---:|---:|---:|\n")
	var failures []error
	for _, s := range o.schedulingSides() {
		for _, t := range termKinds {
			line, err := o.term(ctx, s, t)
			if err != nil {
				failures = append(failures, fmt.Errorf("%s: %s: %w", s.name(), t.name, err))
				continue
			}
			progress("%s", line)
			table.WriteString(line + "\n")
		}
		line, err := o.handshakes(ctx, s)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: connections: %w", s.name(), err))
		}
		progress("%s", line)
		table.WriteString(line + "\n")
		sweep()
	}
	fmt.Print(table.String())
	if o.out != "" {
		failures = append(failures, os.WriteFile(o.out, []byte(table.String()), 0o644))
	}
	return errors.Join(failures...)
}

// termKind is a kind of object that a large cluster has many of.
type termKind struct {
	name  string
	count int
	make  func(i int) object
	// beat is the patch of a heartbeat; nil if the object has none. It goes to the path below the
	// object.
	beat  func(i int) []byte
	below string
}

var termKinds = []termKind{
	{name: "lease", count: 20000, make: lease, beat: func(int) []byte {
		return fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	}},
	{name: "node", count: 5000, make: realNode, below: "/status", beat: func(int) []byte {
		now := time.Now().UTC().Format(time.RFC3339)
		return fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"kubelet is posting ready status","lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`, now, now)
	}},
	{name: "pod", count: 20000, make: func(i int) object { return object{podsPath, realPod(i)} }},
	{name: "event", count: 20000, make: realEvent},
	{name: "endpoint slice of 100", count: 2000, make: endpoints},
}

// term measures one kind on a control plane of its own.
func (o *options) term(ctx context.Context, s side, t termKind) (string, error) {
	c, err := begin(ctx, o, s.name()+"-term", s.startControl)
	if err != nil {
		return "", err
	}
	defer c.stop()
	load, err := loadOn(ctx, c)
	if err != nil {
		return "", err
	}
	n := max(inFlight, int(math.Round(float64(t.count)*o.scale)))
	// The first objects of a kind also cost what exists once.
	if _, err := load.each(ctx, inFlight, inFlight, func(w *wire, i int) error { return w.postAll([]object{t.make(i)}) }); err != nil {
		return "", err
	}
	before, err := load.heap(ctx)
	if err != nil {
		return "", err
	}
	spent := stopwatch(c.control)
	if _, err := load.each(ctx, n, inFlight, func(w *wire, i int) error { return w.postAll([]object{t.make(inFlight + i)}) }); err != nil {
		return "", err
	}
	created, _ := spent()
	if err := pause(ctx, 5*time.Second); err != nil {
		return "", err
	}
	after, err := load.heap(ctx)
	if err != nil {
		return "", err
	}
	raw, err := runtime.Encode(wireFormat, t.make(0).obj)
	if err != nil {
		return "", err
	}
	line := fmt.Sprintf("| %s | %s | %d | %.0f B | %.0f µs |", s.name(), t.name, len(raw), (after-before)/float64(n), micros(created, n))
	if t.beat == nil {
		return line + " — | — |", nil
	}
	spent = stopwatch(c.control)
	rate, err := load.each(ctx, n, inFlight, func(w *wire, i int) error {
		o := t.make(i)
		_, err := w.do("PATCH", o.path+"/"+o.obj.GetName()+t.below, mergePatch, protobufType, t.beat(i))
		return err
	})
	if err != nil {
		return "", err
	}
	beaten, _ := spent()
	return line + fmt.Sprintf(" %.0f µs | %.0f |", micros(beaten, n), rate), nil
}

// handshakes measures the CPU of new connections, each with one small request, and their memory.
func (o *options) handshakes(ctx context.Context, s side) (string, error) {
	c, err := begin(ctx, o, s.name()+"-term", s.startControl)
	if err != nil {
		return "", err
	}
	defer c.stop()
	load, err := loadOn(ctx, c)
	if err != nil {
		return "", err
	}
	n := max(inFlight, int(math.Round(5000*o.scale)))
	before, err := load.heap(ctx)
	if err != nil {
		return "", err
	}
	wires := make([]*wire, n)
	spent := stopwatch(c.control)
	began := time.Now()
	err = parallel(n, inFlight, func(i int) (err error) {
		if wires[i], err = load.dial(); err != nil {
			return err
		}
		_, err = wires[i].do("GET", "/readyz", "", jsonType, nil)
		return err
	})
	took := time.Since(began)
	used, _ := spent()
	for _, w := range wires {
		if w != nil {
			defer w.conn.Close()
		}
	}
	if err != nil {
		return "", err
	}
	after, err := load.heap(ctx)
	return fmt.Sprintf("| %s | connection, with a request | — | %.0f B | %.0f µs | — | %.0f |", s.name(), (after-before)/float64(n), micros(used, n), float64(n)/took.Seconds()), err
}

func micros(d time.Duration, n int) float64 { return d.Seconds() * 1e6 / float64(n) }

var heapBytes = regexp.MustCompile(`(?m)^go_memstats_heap_alloc_bytes ([0-9.e+]+)$`)

// heap returns the API server's live heap in bytes, after a garbage collection.
func (c *clients) heap(ctx context.Context) (float64, error) {
	get := c.set.CoreV1().RESTClient().Get()
	if _, err := get.AbsPath("/debug/pprof/heap").Param("gc", "1").DoRaw(ctx); err != nil {
		return 0, fmt.Errorf("heap: %w", err)
	}
	text, err := c.set.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	found := heapBytes.FindSubmatch(bytes.TrimSpace(text))
	if found == nil {
		return 0, errors.New("metrics: no go_memstats_heap_alloc_bytes")
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

func lease(i int) object {
	holder, seconds, now := fmt.Sprintf("node-%d", i), int32(40), metav1.NowMicro()
	return object{"/apis/coordination.k8s.io/v1/namespaces/" + space + "/leases", &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: holder, Namespace: space},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}}
}

// realNode is a node with the labels, addresses, conditions and fifty images that a kubelet writes.
func realNode(i int) object {
	n := hollowNode(fmt.Sprintf("node-%d", i))
	for key, value := range map[string]string{
		corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", corev1.LabelInstanceTypeStable: "m5.4xlarge",
		corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3), corev1.LabelTopologyRegion: "region",
	} {
		n.Labels[key] = value
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}, {Type: corev1.NodeHostName, Address: n.Name}}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: "KubeletHasNoPressure", Message: "kubelet has no pressure of this kind",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		})
	}
	for image := range 50 {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 50 << 20, Names: []string{
			fmt.Sprintf("registry.example.com/team/application-%02d@sha256:%064d", image, image), fmt.Sprintf("registry.example.com/team/application-%02d:v1.2.3", image),
		}})
	}
	return object{"/api/v1/nodes", n}
}

// realPod is a pod as Deployments make them, that no scheduler takes.
func realPod(i int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("application-5d8f7c9b4-%06d", i), Namespace: space, Labels: map[string]string{
		"app.kubernetes.io/name": "application", "app.kubernetes.io/version": "v1.2.3", "pod-template-hash": "5d8f7c9b4",
	}}}
	plain(i, p)
	p.Spec.SchedulerName = "nobody"
	c := &p.Spec.Containers[0]
	for e := range 8 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: "http://service.namespace.svc.cluster.local:8080"})
	}
	return p
}

func realEvent(i int) object {
	now := metav1.NowMicro()
	return object{"/api/v1/namespaces/" + space + "/events", &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("application-5d8f7c9b4-abcde.%016x", i), Namespace: space},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: space, Name: "application-5d8f7c9b4-abcde", UID: "8a2f0f6e-8d62-4f9c-a5d8-1f8e2b0c7d11"},
		Reason:         "Scheduled", Message: "Successfully assigned compare/application-5d8f7c9b4-abcde to node-12345", Type: corev1.EventTypeNormal,
		EventTime: now, Action: "Binding", ReportingController: "default-scheduler", ReportingInstance: "server-0",
	}}
}

// endpoints is a slice with a hundred addresses.
func endpoints(i int) object {
	ready, port, name, protocol := true, int32(8080), "http", corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: fmt.Sprintf("application-%d", i), Namespace: space, Labels: map[string]string{discoveryv1.LabelServiceName: "application"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	for e := range 100 {
		node, zone := fmt.Sprintf("node-%d", i*100+e), fmt.Sprintf("zone-%d", e%3)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.1.%d.%d", i%256, e)}, NodeName: &node, Zone: &zone, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: space, Name: fmt.Sprintf("application-5d8f7c9b4-%06d", e), UID: "8a2f0f6e-8d62-4f9c-a5d8-1f8e2b0c7d11"},
		})
	}
	return object{"/apis/discovery.k8s.io/v1/namespaces/" + space + "/endpointslices", s}
}
