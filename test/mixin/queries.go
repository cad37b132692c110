package mixin

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed queries.txt
var queryFile string

// selectors are kube-prometheus' values of the mixin's selectors.
var selectors = map[string]string{
	"KUBELET":     `job="kubelet", metrics_path="/metrics"`,
	"CADVISOR":    `job="kubelet", metrics_path="/metrics/cadvisor"`,
	"KSM":         `job="kube-state-metrics"`,
	"EXPORTER":    `job="node-exporter"`,
	"APISERVER":   `job="apiserver"`,
	"CONTROLLERS": `job="kube-controller-manager"`,
	"SCHEDULER":   `job="kube-scheduler"`,
	"READ":        `verb=~"LIST|GET"`,
	"WRITE":       `verb=~"POST|PUT|PATCH|DELETE"`,
	"STREAMLESS":  `subresource!~"proxy|attach|log|exec|portforward"`,
	"CONTAINER":   `container!=""`,
}

// query is one query of the mixin.
type query struct {
	name, expression string
	labels           [][2]string // that a recording rule adds
	record           bool
	maybe            bool   // it need not have data
	never            string // why it must be empty
}

var (
	choice = regexp.MustCompile(`<[^<>=~]+,[^<>]+>`)
	word   = regexp.MustCompile(`\b[A-Z]{3,}\b`)
	reason = regexp.MustCompile(`^(.*) \[([^\[\]]+)\]$`)
)

// parse reads lines of queries.txt.
func parse(text string) ([]query, error) {
	var out []query
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for _, one := range expand(line) {
			q, err := parseLine(one)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", one, err)
			}
			out = append(out, q)
		}
	}
	return out, nil
}

// expand replaces the choices of a line. Equal choices take the same value.
func expand(line string) []string {
	found := choice.FindString(line)
	if found == "" {
		return []string{line}
	}
	var out []string
	for value := range strings.SplitSeq(strings.Trim(found, "<>"), ",") {
		out = append(out, expand(strings.ReplaceAll(line, found, value))...)
	}
	return out
}

func parseLine(line string) (query, error) {
	var q query
	if rest, ok := strings.CutPrefix(line, "never "); ok {
		m := reason.FindStringSubmatch(rest)
		if m == nil {
			return q, fmt.Errorf("it has no reason")
		}
		line, q.never = m[1], m[2]
	}
	line, q.maybe = strings.CutPrefix(line, "maybe ")
	line, q.record = strings.CutPrefix(line, "record ")
	name, expression, ok := strings.Cut(line, ": ")
	if !ok {
		return q, fmt.Errorf("it has no expression")
	}
	q.name = name
	if q.record {
		fields := strings.Fields(name)
		q.name = fields[0]
		for _, label := range fields[1:] {
			key, value, ok := strings.Cut(label, "=")
			if !ok {
				return q, fmt.Errorf("%s is not a label", label)
			}
			q.labels = append(q.labels, [2]string{key, value})
		}
	}
	q.expression = word.ReplaceAllStringFunc(expression, func(w string) string {
		if s, ok := selectors[w]; ok {
			return s
		}
		return w
	})
	return q, nil
}
