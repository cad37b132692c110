package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// hidden stands for a secret.
const hidden = "<hidden>"

// Settings are the values in force of what the flags set, by their names, for /flagz: whoever may read that page may know where secrets lie, not what
// they are. The token that joins a cluster and passwords in URLs are not told.
func Settings(flags *pflag.FlagSet) map[string]string {
	told := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) {
		list, isList := f.Value.(pflag.SliceValue)
		switch {
		case f.Name == "token" && f.Value.String() != "":
			told[f.Name] = hidden
		case isList:
			values := slices.Clone(list.GetSlice())
			for i := range values {
				values[i] = withoutPassword(values[i])
			}
			told[f.Name] = "[" + strings.Join(values, ",") + "]"
		default:
			told[f.Name] = withoutPassword(f.Value.String())
		}
	})
	return told
}

// Given remembers the flags that were given; again sets them once more, over what a file says. A list of the file's is replaced, and values that have commas
// in them stay whole.
func Given(flags *pflag.FlagSet) (again func() error) {
	var set []func() error
	flags.Visit(func(f *pflag.Flag) {
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values := slices.Clone(list.GetSlice())
			set = append(set, func() error { return named(f, list.Replace(values)) })
			return
		}
		value := f.Value.String()
		if strings.HasPrefix(f.Value.Type(), "stringTo") { // a map, which shows itself in brackets
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

// named tells whose value could not be set.
func named(f *pflag.Flag, err error) error {
	if err != nil {
		return fmt.Errorf("--%s: %w", f.Name, err)
	}
	return nil
}

// withoutPassword hides what stands before the '@' of a URL, and what follows its '?' or '#'. What looks like a URL and can not be read as one is
// not told at all.
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
