package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// sweep removes clusters of judges that were killed.
func sweep() error {
	old, err := filepath.Glob(filepath.Join(os.TempDir(), "kf-*"))
	if err != nil {
		return err
	}
	for _, state := range old {
		owner, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(state), "kf-"))
		if err != nil {
			continue
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", owner)); err == nil {
			continue
		}
		progress("removing %s, left by a judge that was killed", state)
		for _, name := range []string{"server", "east", "south", "west"} {
			m := &machine{name: name, disk: filepath.Join(state, name), cgroup: fmt.Sprintf("%s%d-%s", cgroups, owner, name)}
			err = errors.Join(err, m.stop())
		}
		if err := errors.Join(err, left(state, fmt.Sprintf("%s%d", cgroups, owner))); err != nil {
			return err
		}
	}
	return nil
}

// kubectl runs the bundled kubectl on the server.
func (c *cluster) kubectl(args ...string) (string, error) { return c.kubectlWith("", args...) }

func (c *cluster) kubectlWith(stdin string, args ...string) (string, error) {
	var out, complaint bytes.Buffer
	cmd := c.server.space.command(knarr, append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaint
	cmd.WaitDelay = time.Second // nsenter's child has the pipes, too
	err := cmd.Start()
	if err == nil {
		ended := make(chan struct{})
		go func() {
			select {
			case <-stopped:
				_ = cmd.Process.Kill()
			case <-ended:
			}
		}()
		err = cmd.Wait()
		close(ended)
	}
	if err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s%s", strings.Join(args, " "), err, out.String(), complaint.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func (c *cluster) apply(manifest string) error {
	_, err := c.kubectlWith(manifest, "apply", "--server-side", "-f", "-")
	return err
}

// get reads an object, or the answer of a path, into an object of Go.
func (c *cluster) get(into any, args ...string) error {
	out, err := c.kubectl(append([]string{"get"}, args...)...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// field reads one field by its JSONPath.
func (c *cluster) field(path string, args ...string) (string, error) {
	return c.kubectl(append(append([]string{"get"}, args...), "-o", "jsonpath={"+path+"}")...)
}

// want waits until a field has a value.
func (c *cluster) want(limit time.Duration, value, path string, args ...string) error {
	return eventually(limit, strings.Join(args, " "), func() error {
		have, err := c.field(path, args...)
		if err == nil && have != value {
			err = fmt.Errorf("%s is %q, wanted %q", path, have, value)
		}
		return err
	})
}

// ready waits until a pod is ready.
func (c *cluster) ready(limit time.Duration, namespace, pod string) error {
	return c.want(limit, "True", `.status.conditions[?(@.type=="Ready")].status`, "-n", namespace, "pod", pod)
}

// explain writes the state of the cluster into the folder of logs.
func (c *cluster) explain() {
	if c.server == nil || c.server.space == nil {
		return
	}
	path := filepath.Join(cache, "explain.log")
	f, err := os.Create(path)
	if err != nil {
		return
	}
	defer f.Close()
	for _, args := range []string{
		"get nodes,pv -o wide", "get pods,pvc,pdb,endpointslices,jobs -A -o wide", "describe pods,pvc -n shop", "get events -A --sort-by=.metadata.creationTimestamp",
		"get clusters.postgresql.cnpg.io -A -o yaml", "logs -n cnpg-system deployment/cnpg-controller-manager --tail=400", "logs -n shop -l field=writer --tail=100",
		"logs -n shop -l cnpg.io/cluster=db --all-containers --tail=200 --prefix", "logs -n shop -l app=maria --all-containers --tail=200 --prefix",
	} {
		cmd := c.server.space.command(knarr, append([]string{"kubectl", "--request-timeout=20s"}, strings.Fields(args)...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig())
		out, _ := cmd.CombinedOutput()
		fmt.Fprintf(f, "--- kubectl %s\n%s\n", args, out)
	}
	fmt.Fprintf(os.Stderr, "field: %s has the state of the cluster, %s the logs of its machines\n", path, cache)
}
