package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	classifier "github.com/google/licenseclassifier/v2"
	"github.com/google/licenseclassifier/v2/assets"
)

// licences finds and identifies the licence texts of modules.
type licences struct{ classifier *classifier.Classifier }

func newLicences() (*licences, error) {
	c, err := assets.DefaultClassifier()
	if err != nil {
		return nil, err
	}
	return &licences{c}, nil
}

// named matches the licence files in a module's top folder.
var named = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)`)

// find sets a module's texts and licence. A module without any text is an error, because it must
// not be released.
func (l *licences) find(m *module) error {
	dir, err := folder(m)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() || !named.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.Texts = append(m.Texts, text{e.Name(), string(content)})
		for _, match := range l.classifier.Match(content).Matches {
			if match.MatchType == "License" && !slices.Contains(ids, match.Name) {
				ids = append(ids, match.Name)
			}
		}
	}
	if len(m.Texts) == 0 {
		return fmt.Errorf("%s@%s has no licence file", m.Path, m.Version)
	}
	slices.Sort(ids)
	m.Licence = "NOASSERTION"
	if len(ids) > 0 {
		m.Licence = strings.Join(ids, " AND ")
	}
	return nil
}

// folder returns the folder of a module's source on this machine.
func folder(m *module) (string, error) {
	if m.Path == standard {
		out, err := exec.Command("go", "env", "GOROOT").Output()
		return strings.TrimSpace(string(out)), err
	}
	out, err := exec.Command("go", "mod", "download", "-json", m.Path+"@"+m.Version).Output()
	if err != nil {
		return "", fmt.Errorf("%s@%s: %w", m.Path, m.Version, err)
	}
	var found struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &found); err != nil {
		return "", err
	}
	if found.Sum != m.Sum {
		return "", fmt.Errorf("%s@%s: the module's hash is %s, the binary was built from %s", m.Path, m.Version, found.Sum, m.Sum)
	}
	return found.Dir, nil
}
