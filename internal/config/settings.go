package config

import (
	"net/url"
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
		value := f.Value.String()
		switch {
		case f.Name == "token" && value != "":
			value = hidden
		case strings.Contains(value, "://"):
			value = withoutPasswords(value)
		}
		told[f.Name] = value
	})
	return told
}

// withoutPasswords hides what stands before the '@' of URLs, alone or in a list, and what follows their '?'.
func withoutPasswords(value string) string {
	list, isList := strings.CutPrefix(value, "[")
	if isList {
		list = strings.TrimSuffix(list, "]")
	}
	urls := strings.Split(list, ",")
	for i, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			if strings.Contains(text, "@") || strings.Contains(text, "?") {
				urls[i] = hidden
			}
			continue
		}
		if u.User == nil && u.RawQuery == "" && u.Fragment == "" {
			continue
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
		urls[i] = u.String()
	}
	value = strings.Join(urls, ",")
	if isList {
		value = "[" + value + "]"
	}
	return value
}
