package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// complaints are warnings and errors in logs, and requests that the API server refused. The key is
// their shape, without names, numbers and times; the value is the first example.
type complaints map[string]string

// complaints reads the logs of all parts and the audit log of the API server.
func (m *mixed) complaints() (complaints, error) {
	found := complaints{}
	logs, err := filepath.Glob(filepath.Join(m.dir, "*.log"))
	if err != nil {
		return nil, err
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		part := strings.TrimSuffix(filepath.Base(path), ".log")
		switch part {
		case "audit":
			err = found.readAudit(text)
		case "containerd", "etcd": // the same on both sides, and independent of both
		default:
			err = found.readLog(part, text)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return found, nil
}

var (
	klogLine = regexp.MustCompile(`^([EWF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ([\w.]+\.go:\d+)\] (.*)$`)
	slogLine = regexp.MustCompile(`^(?:time=\S+ level=|\d{4}/\d\d/\d\d \d\d:\d\d:\d\d )(WARN|ERROR) (.*)$`)
	varies   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{12,}|\d+(\.\d+)*[a-zµ]*|-[bcdfghjklmnpqrstvwxz2456789]{5,10}\b`)
)

// readLog collects the warnings and errors of klog and of slog.
func (c complaints) readLog(part string, text []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if f := klogLine.FindStringSubmatch(line); f != nil {
			c.add(part+" "+f[1]+" "+f[2], f[3])
		} else if f := slogLine.FindStringSubmatch(line); f != nil {
			c.add(part+" "+f[1], f[2])
		} else if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			c.add(part, line)
		}
	}
	return lines.Err()
}

func (c complaints) add(where, text string) {
	key := where + " " + varies.ReplaceAllString(text, "#")
	if _, ok := c[key]; !ok {
		c[key] = where + ": " + text
	}
}

// readAudit collects answers that no healthy part should get. Conflicts, missing objects and
// existing objects are normal in Kubernetes, but a missing resource is not.
func (c complaints) readAudit(text []byte) error {
	type event struct {
		Verb           string
		RequestURI     string
		User           struct{ Username string }
		ObjectRef      *struct{ Resource, Subresource, APIGroup, Name string }
		ResponseStatus struct {
			Code            int
			Message, Reason string
		}
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the last line is still being written
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%w: %.200s", err, line)
		}
		code := e.ResponseStatus.Code
		if code < 400 || code == 409 || e.User.Username == "admin" || code == 404 && e.ObjectRef != nil && e.ObjectRef.Name != "" ||
			strings.Contains(e.ResponseStatus.Message, "because it is being terminated") {
			continue
		}
		what := strings.SplitN(e.RequestURI, "?", 2)[0]
		if e.ObjectRef != nil {
			what = strings.Trim(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")
		}
		key := fmt.Sprintf("API answered %d to %s %s %s", code, e.User.Username, e.Verb, what)
		if _, ok := c[key]; !ok {
			c[key] = fmt.Sprintf("%s: %s (%s)", key, e.ResponseStatus.Message, e.RequestURI)
		}
	}
	return nil
}

// explanations has one pattern per line; comment lines before it (#) give the reason.
//
//go:embed complaints.txt
var explanations string

func explained(example string) bool {
	for line := range strings.Lines(explanations) {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' && regexp.MustCompile(line).MatchString(example) {
			return true
		}
	}
	return false
}

// without removes the complaints that other has too, and those with an explanation.
func (c complaints) without(other complaints) complaints {
	left := complaints{}
	for key, example := range c {
		if _, ok := other[key]; !ok && !explained(example) {
			left[key] = example
		}
	}
	return left
}

// error returns nil if there are no complaints.
func (c complaints) error() error {
	if len(c) == 0 {
		return nil
	}
	var errs []error
	for _, example := range slices.Sorted(maps.Values(c)) {
		errs = append(errs, fmt.Errorf("%.400s", example))
	}
	return errors.Join(errs...)
}
