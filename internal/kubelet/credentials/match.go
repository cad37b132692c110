package credentials

import (
	"errors"
	"net/url"
	"path"
	"strings"
)

// pattern is a pattern of images: a host whose labels can have wildcards, a port and a path.
type pattern struct {
	host       []string
	port, path string
}

// parse parses HOST[:PORT][/PATH].
func parse(text string) (pattern, error) {
	u, err := url.Parse("https://" + strings.TrimPrefix(text, "https://"))
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return pattern{}, errors.New("HOST[:PORT][/PATH], such as *.registry.io/team")
	}
	p := pattern{strings.Split(u.Hostname(), "."), u.Port(), u.Path}
	for _, label := range p.host {
		if _, err := path.Match(label, ""); err != nil {
			return pattern{}, errors.New("labels with wildcards, such as app*.registry.io")
		}
	}
	return p, nil
}

// Matches reports whether a pattern matches an image without tag and digest. Each wildcard stands
// for a part of one label of the host. The path is a prefix.
func Matches(patternText, image string) bool {
	p, err := parse(patternText)
	if err != nil {
		return false
	}
	i, err := parse(image)
	if err != nil || p.port != i.port || len(p.host) != len(i.host) || !strings.HasPrefix(i.path, p.path) {
		return false
	}
	for n := range p.host {
		if ok, err := path.Match(p.host[n], i.host[n]); err != nil || !ok {
			return false
		}
	}
	return true
}
