package config

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// NoteGiven records which flags are given or set in a file.
func (c *Config) NoteGiven(flags *pflag.FlagSet) {
	c.given = map[string]bool{}
	flags.Visit(func(f *pflag.Flag) { c.given[f.Name] = true })
}

// IsGiven reports whether the flag is given or set in a file, and thus wins over other sources.
func (c *Config) IsGiven(name string) bool { return c.given[name] }

// GivenFlags returns the given flags as --name=value, so that the command can be repeated. It
// leaves out the flags named in without, and secrets that Settings hides.
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
