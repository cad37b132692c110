package check

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// problem is one error of an API server with the path of a field.
type problem struct {
	path, message string
	kind          problemKind
}

type problemKind int

const (
	otherProblem problemKind = iota
	unknownField
	unsupported
	conflict
)

var (
	// strictText finds the errors of strict decoding in a message.
	strictText = regexp.MustCompile(`(unknown|duplicate) field ("(?:[^"\\]|\\.)*")`)
	// typedText finds the errors of server-side apply, which name fields of the applied object.
	typedText = regexp.MustCompile(`(?m)(?:^|[\s:])(\.[a-zA-Z][^\s:]*(?:="[^"]*"[^\s:]*)*): (field not declared in schema|expected [^\n]+|unable to [^\n]+|duplicate [^\n]+|missing [^\n]+|element [^\n]+)`)
)

// problemsOf returns the problems of an error that name a field.
func problemsOf(s *metav1.Status) (list []problem) {
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			p := problem{path: c.Field, message: c.Message}
			switch {
			case c.Field == "" || c.Field == "<nil>":
				continue
			case c.Type == metav1.CauseTypeFieldManagerConflict:
				p.kind = conflict
			case c.Type == metav1.CauseTypeFieldValueNotSupported:
				p.kind = unsupported
			}
			list = append(list, p)
		}
	}
	if len(list) > 0 {
		return list
	}
	return append(strictProblems(s.Message), typedProblems(s.Message)...)
}

func strictProblems(message string) (list []problem) {
	for _, m := range strictText.FindAllStringSubmatch(message, -1) {
		path, err := strconv.Unquote(m[2])
		if err != nil {
			continue
		}
		p := problem{path: path, message: m[1] + " field"}
		if m[1] == "unknown" {
			p.kind = unknownField
		}
		list = append(list, p)
	}
	return list
}

func typedProblems(message string) (list []problem) {
	for _, m := range typedText.FindAllStringSubmatch(message, -1) {
		p := problem{path: m[1], message: m[2]}
		if strings.HasPrefix(p.message, "field not declared") {
			p.kind = unknownField
		}
		list = append(list, p)
	}
	return list
}

// resolve turns a path of managed fields, such as .spec.ports[port=80,protocol="TCP"].name, into
// one with indexes. Other paths stay as they are.
func resolve(root *goyaml.Node, path string) string {
	path = strings.TrimPrefix(path, ".")
	out, rest := "", path
	for {
		before, after, found := strings.Cut(rest, "[")
		inside, behind, closed := cutBracket(after)
		if !found || !closed || !strings.Contains(inside, "=") {
			if !found {
				return out + rest
			}
			out += before + "["
			rest = after
			continue
		}
		list := find(root, out+before)
		i := -1
		if list.whole {
			i = itemWith(follow(list.value), inside)
		}
		if i < 0 {
			return out + before // the list is the nearest place
		}
		out += fmt.Sprintf("%s[%d]", before, i)
		rest = behind
	}
}

// cutBracket cuts at the next ] outside of quotes.
func cutBracket(text string) (inside, rest string, ok bool) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
		case text[i] == '"':
			quoted = !quoted
		case text[i] == ']' && !quoted:
			return text[:i], text[i+1:], true
		}
	}
	return text, "", false
}

var keyText = regexp.MustCompile(`([^=,]*)=("(?:[^"\\]|\\.)*"|[^,]*)`)

// itemWith returns the index of a list's item by its keys; -1 if there is none. Keys that the item
// leaves out have their default, so they fit.
func itemWith(list *goyaml.Node, keys string) int {
	if list.Kind != goyaml.SequenceNode {
		return -1
	}
	wanted := keyText.FindAllStringSubmatch(keys, -1)
	for i, item := range list.Content {
		item, fits := follow(item), len(wanted) > 0
		present := 0
		for _, w := range wanted {
			value := w[2]
			if text, err := strconv.Unquote(value); err == nil {
				value = text
			}
			at := item
			if w[1] != "" {
				p := find(item, w[1])
				if !p.whole {
					continue
				}
				at = follow(p.value)
			}
			present++
			fits = fits && at.Value == value
		}
		if fits && present > 0 {
			return i
		}
	}
	return -1
}

var (
	// containerText finds what Pod Security demands of a container, such as
	// container "web" must set securityContext.runAsNonRoot=true.
	containerText = regexp.MustCompile(`containers? ((?:"[^"]+"(?:, | and )?)+) must(?: not)? set ([a-zA-Z.]+)([^,);]*)`)
	quotedText    = regexp.MustCompile(`"([^"]+)"`)
)

// denied reports a denial by admission: at the containers that it names, else at the object.
func (e *explanation) denied(message string) {
	_, text, ok := strings.Cut(message, " is forbidden: ")
	if !ok {
		text = message
	}
	found := false
	for _, m := range containerText.FindAllStringSubmatch(text, -1) {
		for _, name := range quotedText.FindAllStringSubmatch(m[1], -1) {
			if path := e.containerNamed(name[1]); path != "" {
				_, demand, _ := strings.Cut(m[0], m[1])
				e.object.note(Error, path, fmt.Sprintf("the container %q%s", name[1], " "+strings.TrimSpace(demand)))
				found = true
			}
		}
	}
	if !found {
		e.object.note(Error, "", text)
	}
}

// containerNamed returns the path of a pod's container by its name; "" if there is none.
func (e *explanation) containerNamed(name string) string {
	for _, spec := range []string{"spec", "spec.template.spec", "spec.jobTemplate.spec.template.spec"} {
		for _, list := range []string{"containers", "initContainers"} {
			path := spec + "." + list
			if at := find(e.object.node, path); at.whole {
				if i := itemWith(follow(at.value), fmt.Sprintf("name=%q", name)); i >= 0 {
					return fmt.Sprintf("%s[%d]", path, i)
				}
			}
		}
	}
	return ""
}
