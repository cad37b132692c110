// Package settings reads and checks upstream's KubeSchedulerConfiguration
// (kubescheduler.config.k8s.io/v1), and completes it with upstream's defaults.
//
// In: the text of a file. Out: a configuration with all defaults, whose plugin arguments are
// decoded. The scheduler makes its profiles from it.
package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	configv1 "k8s.io/kube-scheduler/config/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/config"
)

const (
	kind = "KubeSchedulerConfiguration"
	// maxFile is the largest configuration file in bytes.
	maxFile = 1 << 20
)

// Configuration is a checked configuration with its defaults.
type Configuration struct {
	configv1.KubeSchedulerConfiguration
	// Given is the configuration without defaults.
	Given configv1.KubeSchedulerConfiguration
	// warmStandby is set if delayCacheUntilActive is false in the text, not just absent.
	warmStandby bool
}

// Default returns upstream's default configuration.
func Default() *Configuration {
	c := &Configuration{}
	complete(&c.KubeSchedulerConfiguration)
	return c
}

// Idle describes the given fields that have no effect here. Files for kube-scheduler have them, so
// they are not refused.
func (c *Configuration) Idle() (out []string) {
	if c.Given.Parallelism != nil {
		out = append(out, fmt.Sprintf("parallelism: %d has no effect: one goroutine decides about pods, and answers about unchanged nodes are kept", *c.Given.Parallelism))
	}
	if c.warmStandby {
		out = append(out, "delayCacheUntilActive: false has no effect: only the leader fills its caches, as with true")
	}
	return out
}

// ParseFile is Parse for the content of a file, which each error names.
func ParseFile(file string, text []byte) (*Configuration, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", file, maxFile)
	}
	c, err := Parse(text)
	if err != nil {
		var errs []error
		for _, one := range Each(err) {
			errs = append(errs, fmt.Errorf("%s: %w", file, one))
		}
		return nil, errors.Join(errs...)
	}
	return c, nil
}

// Parse decodes YAML or JSON strictly, sets the defaults and checks the result. The error joins all
// faults.
func Parse(text []byte) (*Configuration, error) {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, notYAML(err)
	}
	c := &Configuration{}
	if err := decode(asJSON, &c.KubeSchedulerConfiguration, ""); err != nil {
		return nil, err
	}
	var given struct {
		DelayCacheUntilActive *bool `json:"delayCacheUntilActive"`
	}
	if err := json.Unmarshal(asJSON, &given); err != nil {
		return nil, err
	}
	c.warmStandby = given.DelayCacheUntilActive != nil && !*given.DelayCacheUntilActive
	if want := configv1.SchemeGroupVersion.String(); c.APIVersion != want || c.Kind != kind {
		return nil, fmt.Errorf("apiVersion %q, kind %q: wanted apiVersion: %s and kind: %s", c.APIVersion, c.Kind, want, kind)
	}
	var errs []error
	for i := range c.Profiles {
		for j := range c.Profiles[i].PluginConfig {
			errs = append(errs, decodeArgs(&c.Profiles[i].PluginConfig[j], fmt.Sprintf("profiles[%d].pluginConfig[%d].args", i, j)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c.KubeSchedulerConfiguration.DeepCopyInto(&c.Given)
	complete(&c.KubeSchedulerConfiguration)
	if err := validate(&c.KubeSchedulerConfiguration); err != nil {
		return nil, err
	}
	return c, nil
}

// notYAML joins the lines of the library's error.
func notYAML(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n")
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return errors.New(strings.Join(lines, "; "))
}

// argsOf returns an empty value of a plugin's arguments; nil means that the plugin is not
// upstream's, or has none.
func argsOf(plugin string) runtime.Object {
	switch plugin {
	case "DefaultPreemption":
		return &configv1.DefaultPreemptionArgs{}
	case "InterPodAffinity":
		return &configv1.InterPodAffinityArgs{}
	case "NodeAffinity":
		return &configv1.NodeAffinityArgs{}
	case "NodeResourcesBalancedAllocation":
		return &configv1.NodeResourcesBalancedAllocationArgs{}
	case "NodeResourcesFit":
		return &configv1.NodeResourcesFitArgs{}
	case "PodTopologySpread":
		return &configv1.PodTopologySpreadArgs{}
	case "VolumeBinding":
		return &configv1.VolumeBindingArgs{}
	case "DynamicResources":
		return &configv1.DynamicResourcesArgs{}
	}
	return nil
}

// decodeArgs decodes the arguments of a plugin. Those of an unknown plugin stay as they are, for
// the plugin to decode.
func decodeArgs(c *configv1.PluginConfig, at string) error {
	args := argsOf(c.Name)
	if args == nil {
		if len(c.Args.Raw) > 0 {
			c.Args.Object = &runtime.Unknown{Raw: c.Args.Raw, ContentType: runtime.ContentTypeJSON}
		}
		return nil
	}
	if len(c.Args.Raw) > 0 {
		if err := decode(c.Args.Raw, args, at); err != nil {
			return err
		}
	}
	want := configv1.SchemeGroupVersion.WithKind(c.Name + "Args")
	if got := args.GetObjectKind().GroupVersionKind(); !got.Empty() && got != want {
		return fmt.Errorf("%s: apiVersion %q, kind %q: wanted apiVersion: %s and kind: %s", at, got.GroupVersion(), got.Kind, want.GroupVersion(), want.Kind)
	}
	args.GetObjectKind().SetGroupVersionKind(want)
	c.Args = runtime.RawExtension{Object: args}
	return nil
}

// decode decodes JSON strictly. Errors name the field below at.
func decode(text []byte, into any, at string) error {
	strict, err := kjson.UnmarshalStrict(text, into)
	if err != nil {
		return wrongType(err, at)
	}
	for i, err := range strict {
		strict[i] = inWords(err, reflect.TypeOf(into), at)
	}
	return errors.Join(strict...)
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// strictError is the text of the library's errors: what, and the quoted path of the field.
var strictError = regexp.MustCompile(`^(unknown|duplicate) field "(.*)"$`)

// inWords names the field of a strict error, and for an unknown field the nearest known ones.
func inWords(err error, of reflect.Type, at string) error {
	parts := strictError.FindStringSubmatch(err.Error())
	if parts == nil {
		return fmt.Errorf("%s: %w", orElse(at, "configuration"), err)
	}
	path := parts[2]
	if parts[1] == "duplicate" {
		return fmt.Errorf("%s: given twice", join(at, path))
	}
	parent, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, name = path[:i], path[i+1:]
	}
	text := join(at, path) + ": unknown field"
	known := fieldsAt(of, parent)
	switch near := config.Nearest(name, known); {
	case len(near) > 0:
		text += "; the nearest is " + strings.Join(near, ", ")
	case len(known) > 0:
		text += "; known are " + strings.Join(known, ", ")
	}
	return errors.New(text)
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// fieldsAt returns the JSON names of the fields at a path such as profiles[0].plugins.
func fieldsAt(t reflect.Type, path string) []string {
	for _, name := range strings.Split(path, ".") {
		t = structOf(t)
		name, _, _ = strings.Cut(name, "[")
		if t == nil || name == "" {
			continue
		}
		f, ok := fieldNamed(t, name)
		if !ok {
			return nil
		}
		t = f
	}
	if t = structOf(t); t == nil {
		return nil
	}
	return names(t)
}

// structOf looks through pointers and lists; nil if there is no struct below.
func structOf(t reflect.Type) reflect.Type {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

func fieldNamed(t reflect.Type, name string) (reflect.Type, bool) {
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == name:
			return f.Type, true
		case tag == "" && f.Anonymous:
			if found, ok := fieldNamed(f.Type, name); ok {
				return found, true
			}
		}
	}
	return nil, false
}

func names(t reflect.Type) (out []string) {
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag != "" && tag != "-":
			out = append(out, tag)
		case f.Anonymous:
			out = append(out, names(f.Type)...)
		}
	}
	return out
}

// wrongType names the field of a value of another type, without Go's words.
func wrongType(err error, at string) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("%s: %w", orElse(at, "configuration"), err)
	}
	wanted := map[reflect.Kind]string{
		reflect.Bool: "true or false", reflect.String: "text", reflect.Slice: "a list", reflect.Map: "a map", reflect.Struct: "a map",
		reflect.Int32: "a number", reflect.Int64: "a number", reflect.Float32: "a number", reflect.Float64: "a number",
	}[wrong.Type.Kind()]
	if wanted == "" {
		wanted = wrong.Type.String()
	}
	return fmt.Errorf("%s: a %s is not usable: %s is wanted", join(at, wrong.Field), wrong.Value, wanted)
}

// Each returns the parts of a joined error.
func Each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if joined, ok := err.(utilerrors.Aggregate); ok {
		return joined.Errors()
	}
	return []error{err}
}
