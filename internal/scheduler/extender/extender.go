// Package extender asks scheduler extenders over HTTP: processes outside that filter and score
// nodes, choose victims of preemption, or bind pods. The wire types are upstream's
// (k8s.io/kube-scheduler/extender/v1).
package extender

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	configv1 "k8s.io/kube-scheduler/config/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

const (
	// defaultTimeout of a call is upstream's.
	defaultTimeout = 5 * time.Second
	// maxAnswer is the largest answer in bytes.
	maxAnswer = 64 << 20
)

// Name stands for all extenders where plugins are named.
const Name = "Extender"

// Extender is one extender. Safe for concurrent use.
type Extender struct {
	spec   configv1.Extender
	client *http.Client
}

// New makes the extenders of a configuration.
func New(specs []configv1.Extender) ([]*Extender, error) {
	var errs []error
	var out []*Extender
	for i := range specs {
		e, err := newExtender(specs[i])
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath("extenders").Index(i).Child("tlsConfig"), specs[i].URLPrefix, err.Error()))
			continue
		}
		out = append(out, e)
	}
	return out, errors.Join(errs...)
}

func newExtender(spec configv1.Extender) (*Extender, error) {
	var c rest.Config
	if t := spec.TLSConfig; t != nil {
		c.TLSClientConfig = rest.TLSClientConfig{
			Insecure: t.Insecure, ServerName: t.ServerName, CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.CAFile,
			CertData: t.CertData, KeyData: t.KeyData, CAData: t.CAData,
		}
	}
	if spec.EnableHTTPS && c.CAFile == "" && len(c.CAData) == 0 {
		c.Insecure = true // as upstream
	}
	secure, err := rest.TLSConfigFor(&c)
	if err != nil {
		return nil, err
	}
	transport := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: secure})
	return &Extender{spec, &http.Client{Transport: transport, Timeout: cmp.Or(spec.HTTPTimeout.Duration, defaultTimeout)}}, nil
}

// URL identifies the extender in messages.
func (e *Extender) URL() string { return e.spec.URLPrefix }

// Ignorable reports whether decisions go on without the extender when it fails.
func (e *Extender) Ignorable() bool { return e.spec.Ignorable }

// Binds and Preempts report what the extender is asked for.
func (e *Extender) Binds() bool    { return e.spec.BindVerb != "" }
func (e *Extender) Preempts() bool { return e.spec.PreemptVerb != "" }

// Interested reports whether the extender takes part in decisions about the pod.
func (e *Extender) Interested(pod *corev1.Pod) bool {
	if len(e.spec.ManagedResources) == 0 {
		return true
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			for _, list := range []corev1.ResourceList{containers[i].Resources.Requests, containers[i].Resources.Limits} {
				for name := range list {
					if slices.ContainsFunc(e.spec.ManagedResources, func(r configv1.ExtenderManagedResource) bool { return r.Name == string(name) }) {
						return true
					}
				}
			}
		}
	}
	return false
}

// arguments have the names of the nodes only, if the extender keeps the nodes itself.
func (e *Extender) arguments(pod *corev1.Pod, nodes []*framework.NodeInfo) *extenderv1.ExtenderArgs {
	args := &extenderv1.ExtenderArgs{Pod: pod}
	if e.spec.NodeCacheCapable {
		names := make([]string, len(nodes))
		for i, n := range nodes {
			names[i] = n.Name()
		}
		args.NodeNames = &names
		return args
	}
	args.Nodes = &corev1.NodeList{Items: make([]corev1.Node, len(nodes))}
	for i, n := range nodes {
		args.Nodes.Items[i] = *n.Node
	}
	return args
}

// Filter returns the nodes that the extender accepts, and why it refuses others.
func (e *Extender) Filter(ctx context.Context, pod *corev1.Pod, nodes []*framework.NodeInfo) ([]*framework.NodeInfo, map[string]*framework.Status, error) {
	if e.spec.FilterVerb == "" {
		return nodes, nil, nil
	}
	var result extenderv1.ExtenderFilterResult
	if err := e.send(ctx, e.spec.FilterVerb, e.arguments(pod, nodes), &result); err != nil {
		return nil, nil, err
	}
	if result.Error != "" {
		return nil, nil, e.failed(e.spec.FilterVerb, errors.New(result.Error))
	}
	accepted, err := e.accepted(nodes, &result)
	if err != nil {
		return nil, nil, err
	}
	refusals := map[string]*framework.Status{}
	for _, n := range nodes {
		if slices.Contains(accepted, n) {
			continue
		}
		status := framework.RefuseAlways()
		if reason, ok := result.FailedNodes[n.Name()]; ok {
			status = framework.Refuse(reason)
		}
		if reason, ok := result.FailedAndUnresolvableNodes[n.Name()]; ok {
			status = framework.RefuseAlways(reason)
		}
		status.Plugin = Name
		refusals[n.Name()] = status
	}
	return accepted, refusals, nil
}

// accepted finds the nodes of an answer, in their own order.
func (e *Extender) accepted(nodes []*framework.NodeInfo, result *extenderv1.ExtenderFilterResult) ([]*framework.NodeInfo, error) {
	names := map[string]bool{}
	switch {
	case e.spec.NodeCacheCapable && result.NodeNames != nil:
		for _, name := range *result.NodeNames {
			names[name] = true
		}
	case result.Nodes != nil:
		for i := range result.Nodes.Items {
			names[result.Nodes.Items[i].Name] = true
		}
	}
	var out []*framework.NodeInfo
	for _, n := range nodes {
		if names[n.Name()] {
			out = append(out, n)
			delete(names, n.Name())
		}
	}
	for name := range names {
		return nil, e.failed(e.spec.FilterVerb, fmt.Errorf("node %q was not among the nodes of the question", name))
	}
	return out, nil
}

// Prioritize returns weighted scores by node; nil if the extender does not score.
func (e *Extender) Prioritize(ctx context.Context, pod *corev1.Pod, nodes []*framework.NodeInfo) (map[string]int64, error) {
	if e.spec.PrioritizeVerb == "" {
		return nil, nil
	}
	var result extenderv1.HostPriorityList
	if err := e.send(ctx, e.spec.PrioritizeVerb, e.arguments(pod, nodes), &result); err != nil {
		return nil, err
	}
	scores := make(map[string]int64, len(result))
	for _, r := range result {
		scores[r.Host] += r.Score * e.spec.Weight * (framework.MaxNodeScore / extenderv1.MaxExtenderPriority)
	}
	return scores, nil
}

// Bind lets the extender write the binding.
func (e *Extender) Bind(ctx context.Context, pod *corev1.Pod, node string) error {
	var result extenderv1.ExtenderBindingResult
	err := e.send(ctx, e.spec.BindVerb, &extenderv1.ExtenderBindingArgs{PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node}, &result)
	if err == nil && result.Error != "" {
		err = e.failed(e.spec.BindVerb, errors.New(result.Error))
	}
	return err
}

// Victims are the pods to evict from a node.
type Victims struct {
	Pods       []*corev1.Pod
	Violations int // of disruption budgets
}

// Preempt lets the extender change the victims by node. It may leave out nodes. find returns the
// pod with a UID on a node.
func (e *Extender) Preempt(ctx context.Context, pod *corev1.Pod, victims map[string]Victims, find func(node, uid string) (*corev1.Pod, bool)) (map[string]Victims, error) {
	args := &extenderv1.ExtenderPreemptionArgs{Pod: pod}
	if e.spec.NodeCacheCapable {
		args.NodeNameToMetaVictims = map[string]*extenderv1.MetaVictims{}
	} else {
		args.NodeNameToVictims = map[string]*extenderv1.Victims{}
	}
	for node, v := range victims {
		if !e.spec.NodeCacheCapable {
			args.NodeNameToVictims[node] = &extenderv1.Victims{Pods: v.Pods, NumPDBViolations: int64(v.Violations)}
			continue
		}
		meta := &extenderv1.MetaVictims{Pods: []*extenderv1.MetaPod{}, NumPDBViolations: int64(v.Violations)}
		for _, p := range v.Pods {
			meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: string(p.UID)})
		}
		args.NodeNameToMetaVictims[node] = meta
	}
	var result extenderv1.ExtenderPreemptionResult
	if err := e.send(ctx, e.spec.PreemptVerb, args, &result); err != nil {
		return nil, err
	}
	out := map[string]Victims{}
	for node, meta := range result.NodeNameToMetaVictims {
		v, err := e.victimsOf(node, meta, find)
		switch {
		case err != nil:
			return nil, err
		case len(v.Pods) > 0:
			out[node] = v
		case !e.spec.Ignorable:
			return nil, e.failed(e.spec.PreemptVerb, fmt.Errorf("node %q has no victims; at least one is expected", node))
		}
	}
	return out, nil
}

func (e *Extender) victimsOf(node string, meta *extenderv1.MetaVictims, find func(node, uid string) (*corev1.Pod, bool)) (Victims, error) {
	if meta == nil {
		return Victims{}, nil
	}
	v := Victims{Violations: int(meta.NumPDBViolations)}
	for _, p := range meta.Pods {
		if p == nil {
			continue
		}
		found, ok := find(node, p.UID)
		if !ok {
			return v, e.failed(e.spec.PreemptVerb, fmt.Errorf("pod %s is not on node %q", p.UID, node))
		}
		v.Pods = append(v.Pods, found)
	}
	return v, nil
}

func (e *Extender) failed(verb string, err error) error {
	return fmt.Errorf("extender %s, %s: %w", e.spec.URLPrefix, verb, err)
}

// send posts a question as JSON and decodes the answer.
func (e *Extender) send(ctx context.Context, verb string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return e.failed(verb, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(e.spec.URLPrefix, "/")+"/"+verb, bytes.NewReader(body))
	if err != nil {
		return e.failed(verb, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		return e.failed(verb, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return e.failed(verb, fmt.Errorf("status %s", resp.Status))
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(answer); err != nil {
		return e.failed(verb, fmt.Errorf("decode the answer: %w", err))
	}
	return nil
}
