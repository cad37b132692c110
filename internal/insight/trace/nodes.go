package trace

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/insight/spans"
)

const (
	// maxNodes bounds the nodes that are asked, askedAtOnce those that are asked side by side.
	maxNodes, askedAtOnce = 100, 16
	// nodeTimeout is how long a node may take to answer.
	nodeTimeout = 3 * time.Second
	// maxPodSpans bounds the steps of one pod: the first and the last ones are shown.
	maxPodSpans = 40
	// maxRuleNodes is the number of nodes up to which the rules of each are a hop of their own.
	maxRuleNodes = 8
)

// AskNode returns the spans of pods, by UID, and of objects that become packet rules, as
// NAMESPACE/NAME, from a node.
type AskNode func(ctx context.Context, node string, pods, objects []string) ([]spans.Span, error)

// nodeSpan is a span of a node.
type nodeSpan struct {
	node string
	spans.Span
}

// askNodes asks the nodes of the pods for their steps, and all nodes that the user may list for
// the packet rules. A node that does not answer is in facts.Silent.
func askNodes(ctx context.Context, c Reader, ask AskNode, answer causes.Answer, facts *Facts) {
	pods := map[string][]string{} // UIDs by node
	for uid, pod := range facts.Pods {
		if pod.Spec.NodeName != "" {
			facts.nodes[uid] = pod.Spec.NodeName
		}
	}
	for uid, node := range facts.nodes {
		pods[node] = append(pods[node], uid)
	}
	objects := ruledOf(answer)
	nodes := []string{}
	for node := range pods {
		nodes = append(nodes, node)
	}
	if len(objects) > 0 {
		all, _ := c.Nodes(ctx, maxNodes) // a user without the right sees the pods' nodes only
		for _, name := range all {
			if pods[name] == nil {
				nodes = append(nodes, name)
			}
		}
	}
	if len(nodes) > maxNodes {
		nodes = nodes[:maxNodes]
	}
	slots := make(chan struct{}, askedAtOnce)
	var group sync.WaitGroup
	var mu sync.Mutex
	for _, node := range nodes {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
			defer cancel()
			found, err := ask(ctx, node, pods[node], objects)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				facts.Silent[node] = err.Error()
				return
			}
			for _, s := range found {
				facts.keep(node, s, pods[node], objects)
			}
		})
	}
	group.Wait()
}

// keep adds a span of a node, unless it is of something that the node was not asked for.
func (f *Facts) keep(node string, s spans.Span, pods, objects []string) {
	switch {
	case s.OfObject() && slices.Contains(objects, s.Namespace+"/"+s.Object):
		f.rules = append(f.rules, nodeSpan{node, s})
	case !s.OfObject() && slices.Contains(pods, s.UID):
		f.steps[s.UID] = append(f.steps[s.UID], nodeSpan{node, s})
	}
}

// ruled are the resources that nodes turn into packet rules or answers of DNS.
var ruled = []string{"endpointslices", "networkpolicies", "policypeers", "services"}

// ruledOf returns the objects of an answer that nodes turn into packet rules or answers of DNS.
func ruledOf(answer causes.Answer) (list []string) {
	for _, r := range answer.Records {
		name := r.Namespace + "/" + r.Name
		if slices.Contains(ruled, r.Resource) && !slices.Contains(list, name) && len(list) < spans.MaxAsked {
			list = append(list, name)
		}
	}
	return list
}

// addSpans adds the steps that the node itself has told. It returns false if the node does not know
// how the pod began; then events tell it.
func (f *Facts) addSpans(uid string, step func(what string, begin, at time.Time, source Source)) bool {
	list := f.steps[uid]
	slices.SortStableFunc(list, func(a, b nodeSpan) int { return a.End.Compare(b.End) })
	whole := slices.ContainsFunc(list, func(s nodeSpan) bool { return s.Name == spans.Sandbox })
	for i := range list {
		s := &list[i].Span
		if len(list) > maxPodSpans && i >= maxPodSpans/2 && i < len(list)-maxPodSpans/2 {
			continue
		}
		if whole || s.Name == spans.Stop || s.Name == spans.Release {
			step(describe(s), s.Begin, s.End, FromNode)
		}
	}
	return whole
}

// words are what a span did, and what a failed one is called. %s is the container.
var words = map[string][2]string{
	spans.Volumes:   {"volumes mounted", "mount of volumes"},
	spans.Network:   {"network connected", "connection to the network"},
	spans.Sandbox:   {"sandbox ready", "sandbox"},
	spans.Create:    {"container %s created", "creation of container %s"},
	spans.Start:     {"container %s started", "start of container %s"},
	spans.PostStart: {"postStart hook of %s ended", "postStart hook of %s"},
	spans.Ready:     {"ready", "ready"},
	spans.Stop:      {"container %s stopped", "stop of container %s"},
	spans.Release:   {"sandbox, network and volumes released", "release"},
}

// describe says what a span did.
func describe(s *spans.Span) string {
	text := ""
	switch s.Name {
	case spans.Image:
		text = "image " + lastPart(s.Detail) + " is present"
	case spans.Pull:
		text = "image " + lastPart(s.Detail) + " pulled"
		if s.Bytes > 0 {
			text += " (" + size(s.Bytes) + ")"
		}
		if s.Error != "" {
			text = "pull of image " + lastPart(s.Detail)
		}
	case spans.Probe:
		text = s.Container + " " + s.Detail
	default:
		pair, known := words[s.Name]
		if !known {
			return s.Name // of a newer node agent
		}
		text = pair[0]
		if s.Error != "" {
			text = pair[1]
		}
		text = strings.Replace(text, "%s", s.Container, 1)
	}
	if s.Error != "" {
		text += " failed: " + s.Error
	}
	return text
}

// lastPart is an image's name without its registry and folders.
func lastPart(image string) string {
	return image[strings.LastIndexByte(image, '/')+1:]
}

// size is a number of bytes for people.
func size(bytes int64) string {
	switch {
	case bytes >= 10<<20:
		return strconv.FormatInt(bytes>>20, 10) + " MiB"
	case bytes >= 10<<10:
		return strconv.FormatInt(bytes>>10, 10) + " KiB"
	}
	return strconv.FormatInt(bytes, 10) + " bytes"
}

// addRules adds the packet rules and names of objects below the writes that they follow.
func (f *Facts) addRules(b *builder) {
	if f == nil {
		return
	}
	type effect struct {
		revision int64
		name     string
	}
	byWrite := map[effect][]nodeSpan{}
	for _, s := range f.rules {
		for _, revision := range s.Revisions {
			if r := b.records[revision]; r != nil && r.Name == s.Object && r.Namespace == s.Namespace {
				of := effect{revision, s.Name}
				byWrite[of] = append(byWrite[of], s)
			}
		}
	}
	for of, list := range byWrite {
		revision, what := of.revision, map[string]string{spans.Rules: "rules", spans.Names: "DNS"}[of.name]
		slices.SortFunc(list, func(a, b nodeSpan) int { return a.End.Compare(b.End) })
		record, parent := b.records[revision], b.by[revision]
		add := func(text string, s nodeSpan) {
			at := s.End
			if at.Before(record.Time) {
				at = record.Time // the clocks of machines differ
			}
			parent.Hops = append(parent.Hops, &Hop{
				Object: record.Object, What: text, Maker: "node:" + s.node, Because: []int64{revision}, Source: FromNode, Begin: record.Time, At: at,
			})
		}
		if last := list[len(list)-1]; len(list) > maxRuleNodes {
			add(fmt.Sprintf("%s on %d nodes, the last on %s", what, len(list), last.node), last)
			continue
		}
		for _, s := range list {
			add(what+" on "+s.node, s)
		}
	}
}
