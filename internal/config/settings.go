package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// hidden replaces a secret.
const hidden = "<hidden>"

// Settings returns the effective values of the flags, by name, for /flagz. Readers of that page may
// know where secrets are, but not their content. Therefore the join token and passwords in URLs are
// hidden.
func Settings(flags *pflag.FlagSet) map[string]string {
	effective := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) {
		list, isList := f.Value.(pflag.SliceValue)
		switch {
		case f.Name == "token" && f.Value.String() != "":
			effective[f.Name] = hidden
		case isList:
			values := slices.Clone(list.GetSlice())
			for i := range values {
				values[i] = withoutPassword(values[i])
			}
			effective[f.Name] = "[" + strings.Join(values, ",") + "]"
		default:
			effective[f.Name] = withoutPassword(f.Value.String())
		}
	})
	return effective
}

// Given records the given flags. again sets them once more, over the values of a file. It replaces
// a file's lists, and keeps values with commas whole.
func Given(flags *pflag.FlagSet) (again func() error) {
	var set []func() error
	flags.Visit(func(f *pflag.Flag) {
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values := slices.Clone(list.GetSlice())
			set = append(set, func() error { return named(f, list.Replace(values)) })
			return
		}
		value := f.Value.String()
		if strings.HasPrefix(f.Value.Type(), "stringTo") { // the text of a map value is in brackets
			value = strings.TrimSuffix(strings.TrimPrefix(value, "["), "]")
		}
		set = append(set, func() error { return named(f, f.Value.Set(value)) })
	})
	return func() error {
		for _, one := range set {
			if err := one(); err != nil {
				return err
			}
		}
		return nil
	}
}

// named adds the flag's name to the error.
func named(f *pflag.Flag, err error) error {
	if err != nil {
		return fmt.Errorf("--%s: %w", f.Name, err)
	}
	return nil
}

// withoutPassword hides the part of a URL before '@', and the part after '?' or '#'. It hides
// allGroups that looks like a URL but cannot be parsed.
func withoutPassword(value string) string {
	if !strings.Contains(value, "://") {
		return value
	}
	u, err := url.Parse(value)
	if err != nil {
		return hidden
	}
	if u.User == nil && u.RawQuery == "" && u.Fragment == "" {
		return value
	}
	if u.User != nil {
		u.User = url.User("hidden")
	}
	if u.RawQuery != "" {
		u.RawQuery = "hidden"
	}
	if u.Fragment != "" {
		u.Fragment = "hidden"
	}
	return u.String()
}
