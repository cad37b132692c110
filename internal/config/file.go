package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// onlyKey is the annotation of flags that a file cannot set.
const onlyKey = "knarr_command_line"

// OnlyOnCommandLine marks a flag that a file cannot set, because it requests an action and is not a
// setting.
func OnlyOnCommandLine(flag *pflag.Flag) { annotate(flag, onlyKey, "true") }

// ReadFile sets flags from a YAML or JSON file whose keys are the flags' names. Flags and parts of
// an address from the command line take precedence. Keys of other commands are checked and have no
// effect, so that all commands of a cluster can share one file. The error lists every fault with
// its key.
func ReadFile(flags *pflag.FlagSet, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	var errs []error
	for _, err := range setAll(flags, data) {
		errs = append(errs, fmt.Errorf("%s: %w", path, err))
	}
	return errors.Join(errs...)
}

func setAll(flags *pflag.FlagSet, data []byte) (errs []error) {
	entries, err := entriesOf(data)
	if err != nil {
		return []error{err}
	}
	again := Given(flags)
	given := map[string]bool{}
	flags.Visit(func(flag *pflag.Flag) { given[flag.Name] = true })
	elsewhere := otherFlags()
	keys := map[*pflag.Flag]string{}
	for _, e := range inOrder(flags, entries) {
		flag := settable(flags, e.key)
		own := flag != nil
		for i := 0; flag == nil && i < len(elsewhere); i++ {
			flag = settable(elsewhere[i], e.key)
		}
		switch {
		case flag == nil:
			errs = append(errs, unknownKey(flags, elsewhere, e))
		case keys[flag] != "":
			errs = append(errs, fmt.Errorf("%s: the same setting as %s, which is given too", e.key, keys[flag]))
		default:
			keys[flag] = e.key
			if own && given[flag.Name] {
				// Without a flag this command does not use the value, but it is checked.
				if flag = elsewhere[0].Lookup(flag.Name); flag == nil {
					continue
				}
			}
			errs = append(errs, set(flag, e)...)
		}
	}
	return append(errs, withoutNil(again())...)
}

func withoutNil(err error) []error {
	if err == nil {
		return nil
	}
	return []error{err}
}

// entry is one line of the file.
type entry struct {
	key   string
	value any
}

func entriesOf(data []byte) ([]entry, error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	decode := json.NewDecoder(bytes.NewReader(text))
	decode.UseNumber() // keep numbers as written
	var all any
	if err := decode.Decode(&all); err != nil {
		return nil, err
	}
	object, ok := all.(map[string]any)
	if !ok && all != nil {
		return nil, errors.New("lines KEY: VALUE are expected, such as data-dir: /var/lib/knarr")
	}
	var entries []entry
	for key, value := range object {
		entries = append(entries, entry{key, value})
	}
	return entries, nil
}

// inOrder sorts by name. Settings that change a part of another setting come last.
func inOrder(flags *pflag.FlagSet, entries []entry) []entry {
	isPart := func(key string) int {
		if flag := flags.Lookup(key); flag != nil {
			switch flag.Value.(type) {
			case *addressPart, *verbosity:
				return 1
			}
		}
		return 0
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(isPart(a.key), isPart(b.key)), cmp.Compare(a.key, b.key))
	})
	return entries
}

// settable returns the flag of a key, or nil if a file cannot set a flag of that name.
func settable(flags *pflag.FlagSet, key string) *pflag.Flag {
	flag := flags.Lookup(key)
	if flag == nil || flag.Annotations[onlyKey] != nil || slices.Contains(notInFiles, flag.Name) {
		return nil
	}
	return flag
}

// notInFiles are flags of every command that are not settings.
var notInFiles = []string{"config", "help", "help-all"}

// otherFlags returns the settings of all commands, for an unused configuration.
func otherFlags() []*pflag.FlagSet {
	var sets []*pflag.FlagSet
	for _, groups := range allGroups {
		c := Default()
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.AddFlags(set, groups)
		sets = append(sets, set)
	}
	return sets
}

func unknownKey(flags *pflag.FlagSet, elsewhere []*pflag.FlagSet, e entry) error {
	if flag := flags.Lookup(e.key); flag != nil {
		return fmt.Errorf("%s: only on the command line, as --%s", e.key, e.key)
	}
	names := namesOf(flags)
	for _, set := range elsewhere {
		names = append(names, namesOf(set)...)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(notInFiles, name) })
	if _, nested := e.value.(map[string]any); nested {
		return fmt.Errorf("%s: unknown; settings are not nested: each is a line with its flag's name, such as audit-log-path: /var/log/audit.log", e.key)
	}
	near := Nearest(e.key, names)
	if formerly, ok := oldNames[e.key]; ok {
		near = []string{formerly}
	}
	return &UnknownError{Name: e.key, text: fmt.Sprintf("%s: unknown%s", e.key, didYouMean("", near))}
}

// oldNames maps old names of settings in files to new ones that do not resemble them.
var oldNames = map[string]string{
	"tlsNames": "tls-san", "storeEndpoints": "store", "storeOverrides": "etcd-servers-overrides", "storePrefix": "etcd-prefix",
	"admissionConfig": "admission-control-config-file", "enableAdmission": "enable-admission-plugins", "disableAdmission": "disable-admission-plugins",
	"legacyTokenCleanUpPeriod": "legacy-service-account-token-clean-up-period",
}

// set sets a flag to a value from the file.
func set(flag *pflag.Flag, e entry) []error {
	var err error
	kind := flag.Value.Type()
	switch value := e.value.(type) {
	case nil:
		return []error{fmt.Errorf("%s: has no value: %s", e.key, allowedFor(flag))}
	case []any:
		err = setList(flag, e.key, value)
	case map[string]any:
		err = setMap(flag, e.key, value)
	case bool:
		if kind != "bool" {
			return []error{wrongType(flag, e.key, strconv.FormatBool(value))}
		}
		err = setText(flag, e.key, strconv.FormatBool(value))
	case json.Number:
		switch kind {
		case "string", "ip", "bool", "stringSlice", "stringArray", "stringToString":
			return []error{wrongType(flag, e.key, value.String())}
		}
		err = setText(flag, e.key, value.String())
	case string:
		switch kind {
		case "bool":
			return []error{&ValueError{Name: flag.Name, Key: e.key, Value: value, Allowed: "true or false, without quotes"}}
		case "string", "stringSlice", "stringArray":
			if value == "" && kind != "string" {
				err = flag.Value.(pflag.SliceValue).Replace(nil)
				flag.Changed = true
				break
			}
			fallthrough
		default:
			err = setText(flag, e.key, value)
		}
	}
	if err == nil {
		err = keyed(checkValues(flag), e.key)
	}
	return withoutNil(err)
}

func keyed(err error, key string) error {
	var value *ValueError
	if errors.As(err, &value) {
		value.Key = key
	}
	return err
}

func setText(flag *pflag.Flag, key, text string) error {
	if err := flag.Value.Set(text); err != nil {
		return wrongValue(flag, key, text, err)
	}
	flag.Changed = true // Visit includes it although the command line does not give it
	return nil
}

func setList(flag *pflag.Flag, key string, list []any) error {
	target, ok := flag.Value.(pflag.SliceValue)
	if !ok {
		return wrongType(flag, key, compact(list))
	}
	texts := make([]string, len(list))
	for i, item := range list {
		switch item := item.(type) {
		case string:
			texts[i] = item
		case json.Number:
			texts[i] = item.String()
			if flag.Value.Type() != "int32Slice" {
				return wrongType(flag, key, item.String())
			}
		default:
			return wrongType(flag, key, compact(item))
		}
	}
	if err := target.Replace(texts); err != nil {
		return wrongValue(flag, key, strings.Join(texts, ","), err)
	}
	flag.Changed = true
	return nil
}

func setMap(flag *pflag.Flag, key string, pairs map[string]any) error {
	if !strings.HasPrefix(flag.Value.Type(), "stringTo") {
		return wrongType(flag, key, compact(pairs))
	}
	var words []string
	for name, value := range pairs {
		text, ok := value.(string)
		if !ok {
			return wrongType(flag, key, name+": "+compact(value))
		}
		words = append(words, name+"="+text)
	}
	slices.Sort(words)
	return setText(flag, key, csvLine(words))
}

// csvLine joins words in the format that map flags parse.
func csvLine(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = word
		if strings.ContainsAny(word, ",\"\n") {
			quoted[i] = `"` + strings.ReplaceAll(word, `"`, `""`) + `"`
		}
	}
	return strings.Join(quoted, ",")
}

// wrongType describes what a setting accepts if the value has another type. Text that YAML parses
// as a number needs quotes.
func wrongType(flag *pflag.Flag, key, value string) error {
	allowed := allowedFor(flag)
	if strings.Contains(allowed, "text") {
		allowed += ", in quotes where YAML reads a number, true or false"
	}
	return &ValueError{Name: flag.Name, Key: key, Value: value, Allowed: allowed}
}

func allowedFor(flag *pflag.Flag) string {
	if list := ValuesOf(flag); list != nil {
		return oneOf(list)
	}
	return cmp.Or(allowedTexts[flag.Value.Type()], HelpOf(flag).Summary)
}

func compact(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}
