package trace

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/insight/causes"
)

const (
	// maxPods bounds the pods whose steps are asked for.
	maxPods = 50
	// maxEvents bounds the events of one pod.
	maxEvents = 100
)

// Reader reads objects of the API with the rights of the user.
type Reader interface {
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Events returns at most limit events about the object with this UID.
	Events(ctx context.Context, namespace, uid string, limit int64) ([]corev1.Event, error)
	// Nodes returns the names of at most limit nodes.
	Nodes(ctx context.Context, limit int64) ([]string, error)
}

// ReadFacts reads the pods of a story and their events with the rights of the user. What cannot
// be read is left out. ask asks the nodes of these pods; nil asks none.
func ReadFacts(ctx context.Context, c Reader, ask AskNode, answer causes.Answer) *Facts {
	facts := &Facts{Pods: map[string]*corev1.Pod{}, Events: map[string][]corev1.Event{}, Silent: map[string]string{}, steps: map[string][]nodeSpan{}, nodes: nodesOf(answer)}
	asked := 0
	for uid, object := range podsOf(answer) {
		if asked++; asked > maxPods {
			delete(facts.nodes, uid)
			continue
		}
		if pod, err := c.Pod(ctx, object.Namespace, object.Name); err == nil && string(pod.UID) == uid {
			facts.Pods[uid] = pod
		}
		if events, err := c.Events(ctx, object.Namespace, uid, maxEvents); err == nil {
			facts.Events[uid] = events
		}
	}
	if ask != nil {
		askNodes(ctx, c, ask, answer, facts)
	}
	return facts
}

// nodesOf returns the nodes whose agents wrote to the pods of an answer, by the pods' UIDs.
func nodesOf(answer causes.Answer) map[string]string {
	nodes := map[string]string{}
	for _, r := range answer.Records {
		if node, ok := strings.CutPrefix(r.Actor, "system:node:"); ok && r.Resource == "pods" && r.Group == "" && r.UID != "" {
			nodes[r.UID] = node
		}
	}
	return nodes
}

// podsOf returns the pods of an answer: their names by UID.
func podsOf(answer causes.Answer) map[string]causes.Object {
	pods := map[string]causes.Object{}
	for _, r := range answer.Records {
		if r.Resource == "pods" && r.Group == "" && r.UID != "" {
			pods[r.UID] = r.Object
		}
	}
	return pods
}
