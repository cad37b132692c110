package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Topic groups settings that readers look for together. Its value is the argument of
// `--help-all=TOPIC`.
type Topic string

const (
	Basics         Topic = "basics"
	NodeTopic      Topic = "node"
	Network        Topic = "network"
	StoreTopic     Topic = "store"
	SnapshotTopic  Topic = "snapshots"
	ServingTopic   Topic = "serving"
	Authenticating Topic = "authentication"
	AccountTokens  Topic = "accounts"
	Authorizing    Topic = "authorization"
	Admitting      Topic = "admission"
	Auditing       Topic = "audit"
	Encrypting     Topic = "encryption"
	Limits         Topic = "limits"
	Lifecycle      Topic = "shutdown"
	KubeletAccess  Topic = "kubelets"
	Aggregating    Topic = "aggregation"
	APIs           Topic = "apis"
	Diagnosing     Topic = "diagnostics"
	ControllerWork Topic = "controllers"
	Upstream       Topic = "upstream"
)

// Topics lists all topics with their titles, in the order of help and reference.
var Topics = []struct {
	Name  Topic
	Title string
}{
	{Basics, "Basics"},
	{NodeTopic, "Node"},
	{Network, "Network"},
	{StoreTopic, "Store"},
	{SnapshotTopic, "Snapshots"},
	{ServingTopic, "Serving and certificates"},
	{Authenticating, "Authentication"},
	{AccountTokens, "Service account tokens"},
	{Authorizing, "Authorization"},
	{Admitting, "Admission"},
	{Auditing, "Audit"},
	{Encrypting, "Encryption in the store"},
	{Limits, "Flow control and timeouts"},
	{Lifecycle, "Start and shutdown"},
	{KubeletAccess, "Connections to nodes"},
	{Aggregating, "Extension API servers"},
	{APIs, "APIs, features and events"},
	{Diagnosing, "Tracing and profiling"},
	{ControllerWork, "Controllers"},
	{Upstream, "Upstream's names and fixed values"},
}

// Keys of annotations of flags.
const (
	topicKey   = "knarr_topic"
	valueKey   = "knarr_value"
	valuesKey  = "knarr_values"
	aliasesKey = "knarr_aliases"
)

// topic adds to f the flags that declare declares, in that order, and notes their topic.
//
// A usage text has a summary of at most 15 words on its first line. A word in back quotes names the
// value, in capitals; FILE and DIR complete paths. Help shows it in the sentence in small letters,
// DIR as folder. A default that is computed ends the summary as "(default: the host's name)".
// Details follow on more lines.
func topic(f *pflag.FlagSet, name Topic, declare func(f *pflag.FlagSet)) {
	part := pflag.NewFlagSet("", pflag.ContinueOnError)
	part.SortFlags = false
	declare(part)
	part.VisitAll(func(flag *pflag.Flag) {
		annotate(flag, topicKey, string(name))
		Plain(flag)
	})
	f.AddFlagSet(part)
}

// values restricts a flag of f, or each element of a list flag, to the given values.
func values(f *pflag.FlagSet, name string, allowed ...string) {
	annotate(f.Lookup(name), valuesKey, allowed...)
}

// Enumerate restricts a flag, or each element of a list flag, to allowed. It is for values that
// this package does not know.
func Enumerate(flag *pflag.Flag, allowed ...string) { annotate(flag, valuesKey, allowed...) }

// CheckValues refuses values that are not enumerated, and suggests the nearest one.
func CheckValues(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(flag *pflag.Flag) { errs = append(errs, checkValues(flag)) })
	return errors.Join(errs...)
}

func annotate(flag *pflag.Flag, key string, values ...string) {
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	flag.Annotations[key] = values
}

// TopicOf returns the topic of a setting, or "" for a command's own flag.
func TopicOf(flag *pflag.Flag) Topic {
	return Topic(strings.Join(flag.Annotations[topicKey], ""))
}

// ValuesOf returns the values that a flag, or each element of a list flag, accepts. It is nil if
// they are not enumerated.
func ValuesOf(flag *pflag.Flag) []string {
	if list := flag.Annotations[valuesKey]; list != nil {
		return list
	}
	if flag.Value.Type() == "bool" {
		return []string{"true", "false"}
	}
	return nil
}

// AliasesOf returns upstream's names of a flag that has another name here.
func AliasesOf(flag *pflag.Flag) []string { return flag.Annotations[aliasesKey] }

// Plain removes the back quotes from a flag's usage text and keeps the value's name that was in
// them.
func Plain(flag *pflag.Flag) {
	if flag.Annotations[valueKey] != nil {
		return
	}
	before, rest, _ := strings.Cut(flag.Usage, "`")
	if name, after, quoted := strings.Cut(rest, "`"); quoted {
		annotate(flag, valueKey, name)
		flag.Usage = before + wordFor(name) + after
	}
}

// Help is the help text of a flag.
type Help struct {
	// Value names the value, in upper case. It is "" for a flag without a value.
	Value string
	// Default is the value without the flag, or "".
	Default string
	// Summary is one line. Details is the rest, or "".
	Summary, Details string
}

// HelpOf parses a flag's usage text.
func HelpOf(flag *pflag.Flag) Help {
	var h Help
	Plain(flag)
	if named := flag.Annotations[valueKey]; named != nil {
		h.Value, h.Summary = named[0], flag.Usage
	} else {
		h.Value, h.Summary = pflag.UnquoteUsage(flag)
	}
	h.Summary, h.Details, _ = strings.Cut(h.Summary, "\n")
	if before, computed, ok := strings.Cut(h.Summary, " (default: "); ok {
		h.Summary, h.Default = before, strings.TrimSuffix(computed, ")")
	} else {
		h.Default = defaultOf(flag)
	}
	if name, ok := valueNames[h.Value]; ok {
		h.Value = name
	}
	return h
}

// wordFor returns the word for a value inside a sentence.
func wordFor(value string) string {
	switch {
	case value == "DIR":
		return "folder"
	case value == "URLS":
		return "URLs"
	case len(value) > 2 && value != "URL" && value != "CIDR" && !strings.ContainsFunc(value, func(r rune) bool { return r < 'A' || r > 'Z' }):
		return strings.ToLower(value)
	}
	return value
}

// valueNames replace the names of types.
var valueNames = map[string]string{
	"string": "TEXT", "int": "N", "int32": "N", "uint": "N", "float": "X", "float32": "X", "float64": "X", "duration": "DURATION",
	"strings": "A,B", "stringArray": "TEXT", "stringToString": "K=V", "int32Slice": "N,N", "ip": "ADDRESS", "level": "N",
}

// defaultOf returns the value before the command line. Maps, lists and durations are in the syntax
// of the command line.
func defaultOf(flag *pflag.Flag) string {
	text := flag.DefValue
	switch kind := flag.Value.Type(); {
	case text == "[]" || text == "<nil>":
		return ""
	case kind == "duration":
		return shortDuration(text)
	case strings.HasSuffix(kind, "Slice") || strings.HasSuffix(kind, "Array") || strings.HasPrefix(kind, "stringTo"):
		return strings.Trim(text, "[]")
	}
	return text
}

// shortDuration shortens 5m0s to 5m.
func shortDuration(text string) string {
	if text == "0s" {
		return "0"
	}
	for _, zero := range []struct{ long, short string }{{"m0s", "m"}, {"h0m", "h"}} {
		if strings.HasSuffix(text, zero.long) {
			text = strings.TrimSuffix(text, zero.long) + zero.short
		}
	}
	return text
}

// checkValues refuses a value that is not enumerated, and suggests the nearest one.
func checkValues(flag *pflag.Flag) error {
	allowed := flag.Annotations[valuesKey]
	if allowed == nil {
		return nil
	}
	given := []string{flag.Value.String()}
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		given = list.GetSlice()
	}
	for _, value := range given {
		if value != "" && !slices.Contains(allowed, value) {
			return &ValueError{Name: flag.Name, Value: value, Allowed: oneOfThese(flag, allowed), Near: Nearest(value, allowed)}
		}
	}
	return nil
}

// maxListed is the maximum number of allowed values that an error lists.
const maxListed = 12

// oneOfThese lists the allowed values, or names the help topic that does.
func oneOfThese(flag *pflag.Flag, list []string) string {
	if len(list) > maxListed {
		return "one of the values that --help-all=" + string(TopicOf(flag)) + " lists"
	}
	return oneOf(list)
}

func oneOf(list []string) string {
	if last := len(list) - 1; last > 0 {
		return strings.Join(list[:last], ", ") + " or " + list[last]
	}
	return strings.Join(list, "")
}
