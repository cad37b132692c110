package e2e

import (
	"strings"
)

// get and post send HTTP requests from the cluster's network namespace, as a process of the
// machine.
func (c *cluster) get(url string) (string, error) { return c.curl(url) }

func (c *cluster) post(url, body string) error {
	_, err := c.curl("-X", "POST", "-d", body, url)
	return err
}

func (m *machine) curl(args ...string) (string, error) {
	out, err := m.inside("curl", append([]string{"-fsS", "-m", "3"}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
