// Package why makes broken situations with known causes on a cluster, and judges whether
// `knarr why` names them. The situations are in testdata, one file per area.
//
// A file has situations, each with a title, a header and objects:
//
//	=== title
//	ask: KIND/NAME        the subject; or deny: POD POD PORT, or deny: USER VERB RESOURCE
//	cause: NAME           the expected root cause
//	nodes: N              a cluster of its own with N hollow nodes; otherwise a shared one
//	first: patch|tls      a step before the objects are created
//	do: patch|delete|csr  a step after the objects are created
//	later: DURATION       judge as if it were later
//	---
//	an object as YAML
//
// In it, NS stands for the situation's namespace, TIME and MICROTIME for the present. CABUNDLE is
// the CA of certificates, OTHERBUNDLE another one, and OLDBUNDLE one that has expired. A step tls
// NAME BEGIN END HOST makes a TLS Secret; BEGIN and END are durations from now.
package why

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// situation is one broken situation.
type situation struct {
	title, file string
	ask, deny   []string
	cause       string
	nodes       int // -1 for the shared cluster
	first       []string
	steps       []string
	later       time.Duration
	objects     []string // YAML
}

// readSituations reads the files of a folder.
func readSituations(folder string) ([]situation, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	var out []situation
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, part := range strings.Split("\n"+string(data), "\n=== ")[1:] {
			s, err := parseSituation(part)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			s.file = strings.TrimSuffix(filepath.Base(file), ".txt")
			out = append(out, s)
		}
	}
	return out, nil
}

func parseSituation(text string) (situation, error) {
	header, objects, _ := strings.Cut(text, "\n---\n")
	lines := strings.Split(strings.TrimSpace(header), "\n")
	s := situation{title: lines[0], nodes: -1}
	for _, line := range lines[1:] {
		key, value, _ := strings.Cut(line, ": ")
		var err error
		switch key {
		case "ask":
			s.ask = strings.Fields(value)
		case "deny":
			s.deny = strings.Fields(value)
		case "cause":
			s.cause = value
		case "nodes":
			s.nodes, err = strconv.Atoi(value)
		case "first":
			s.first = append(s.first, value)
		case "do":
			s.steps = append(s.steps, value)
		case "later":
			s.later, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %s: %w", s.title, line, err)
		}
	}
	if s.cause == "" || len(s.ask) == 0 && len(s.deny) == 0 {
		return s, fmt.Errorf("%s: ask or deny, and cause, are needed", s.title)
	}
	for _, o := range strings.Split(objects, "\n---\n") {
		if strings.TrimSpace(o) != "" {
			s.objects = append(s.objects, o)
		}
	}
	return s, nil
}
