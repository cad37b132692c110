package config

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// GivenFlags are the flags that were given, as --name=value, so that the same command can be typed
// again. Those named in without are left out, and so is what Settings would hide.
func GivenFlags(flags *pflag.FlagSet, without ...string) []string {
	values := Settings(flags)
	var given []string
	flags.Visit(func(f *pflag.Flag) {
		value := values[f.Name]
		if slices.Contains(without, f.Name) || strings.Contains(value, hidden) || strings.Contains(value, "hidden@") || strings.Contains(value, "?hidden") || strings.Contains(value, "#hidden") {
			return
		}
		if _, list := f.Value.(pflag.SliceValue); list || strings.HasPrefix(f.Value.Type(), "stringTo") {
			value = strings.TrimSuffix(strings.TrimPrefix(value, "["), "]")
		}
		given = append(given, "--"+f.Name+"="+value)
	})
	return given
}
