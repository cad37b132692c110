package config

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// ValueError is the error of an invalid value of a setting.
type ValueError struct {
	// Name is the setting's name without dashes. Key is its name as written: "--name" on the
	// command line, "name" in a file.
	Name, Key string
	Value     string
	// Allowed describes the allowed values. Near are similar allowed values.
	Allowed string
	Near    []string
}

func (e *ValueError) Error() string {
	key := e.Key
	if key == "" {
		key = e.Name
	}
	return fmt.Sprintf("%s: %q is not usable: %s%s", key, e.Value, e.Allowed, didYouMean("", e.Near))
}

// UnknownError is the error of an unknown flag or key.
type UnknownError struct {
	Name string
	text string
}

func (e *UnknownError) Error() string { return e.text }

// Explain turns an error of parsing flags into a message for users, with similar names or values.
func Explain(flags *pflag.FlagSet, err error) error {
	var missing *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var empty *pflag.ValueRequiredError
	switch {
	case errors.As(err, &missing):
		return unknownFlag(flags, missing)
	case errors.As(err, &invalid):
		return wrongValue(invalid.GetFlag(), "--"+invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	case errors.As(err, &empty):
		return fmt.Errorf("--%s needs a value: %s", empty.GetSpecifiedName(), HelpOf(empty.GetFlag()).Summary)
	}
	return err
}

func unknownFlag(flags *pflag.FlagSet, missing *pflag.NotExistError) error {
	name := missing.GetSpecifiedName()
	if missing.GetSpecifiedShortnames() != "" {
		return &UnknownError{Name: name, text: fmt.Sprintf("unknown flag -%s in -%s", name, missing.GetSpecifiedShortnames())}
	}
	text := "unknown flag --" + name
	if hint, ok := hints[name]; ok && flags.Lookup("runtime-config") != nil {
		return &UnknownError{Name: name, text: text + ": a flag of kube-apiserver that is not here: " + hint}
	}
	return &UnknownError{Name: name, text: text + didYouMean("--", Nearest(name, namesOf(flags)))}
}

// namesOf returns the names of flags that help shows, including their other names.
func namesOf(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			names = append(append(names, flag.Name), AliasesOf(flag)...)
		}
	})
	return names
}

func didYouMean(prefix string, near []string) string {
	if len(near) == 0 {
		return ""
	}
	marked := make([]string, len(near))
	for i, name := range near {
		marked[i] = prefix + name
	}
	return "; did you mean " + oneOf(marked) + "?"
}

// wrongValue describes what a flag accepts. The package's own value types describe that themselves.
func wrongValue(flag *pflag.Flag, key, value string, cause error) error {
	allowed, ok := allowedTexts[flag.Value.Type()]
	if list := flag.Annotations[valuesKey]; list != nil {
		allowed, ok = oneOfThese(flag, list), true
	}
	if !ok || isOurs(flag.Value) {
		allowed = cause.Error()
	}
	return &ValueError{Name: flag.Name, Key: key, Value: value, Allowed: allowed, Near: Nearest(value, flag.Annotations[valuesKey])}
}

func isOurs(value pflag.Value) bool {
	switch value.(type) {
	case *addressPart, *verbosity, *choice:
		return true
	}
	return false
}

// allowedTexts describe what a flag of a type accepts.
var allowedTexts = map[string]string{
	"bool":           "true or false",
	"int":            "a whole number",
	"int32":          "a whole number",
	"uint64":         "a whole number, 0 or more",
	"float32":        "a number",
	"float64":        "a number",
	"duration":       "a duration with its unit, such as 90s, 5m or 1h30m",
	"string":         "text",
	"stringSlice":    "a list of texts",
	"stringArray":    "a list of texts",
	"int32Slice":     "a list of whole numbers",
	"stringToString": "pairs KEY=VALUE",
}
