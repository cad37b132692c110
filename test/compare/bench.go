package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// bench runs the workloads of interchange on a cluster, as its administrator.
type bench struct {
	*mixed
	set *kubernetes.Clientset
}

// check is one expected behaviour. Checks run concurrently, each in its own namespace.
type check struct {
	name string
	run  func(ctx context.Context, b *bench, namespace string) error
	// node means that the check needs running pods.
	node bool
}

// patience limits each wait of a check.
const patience = 100 * time.Second

func newBench(ctx context.Context, m *mixed) (*bench, error) {
	config, err := clientcmd.BuildConfigFromFlags("", m.admin())
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &bench{mixed: m, set: set}, ctx.Err()
}

// run runs all checks that the layout has the parts for. It waits for the node first, since no pod
// runs without it.
func (b *bench) run(ctx context.Context) []result {
	var results []result
	if b.node != "" {
		err := nodeReady(ctx, b)
		results = append(results, result{b.name, "the node becomes ready, with addresses for pods and a lease", err})
	}
	list := append(append([]check{}, controllerChecks...), nodeChecks...)
	errs := make([]error, len(list))
	limit := make(chan struct{}, 8)
	var group sync.WaitGroup
	for i, c := range list {
		if c.node && b.node == "" {
			continue
		}
		group.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			errs[i] = b.check(ctx, c, fmt.Sprintf("check-%d", i))
		})
	}
	group.Wait()
	for i, c := range list {
		if !c.node || b.node != "" {
			results = append(results, result{b.name, c.name, errs[i]})
		}
	}
	return append(results, result{b.name, "namespaces end with all that is in them", b.namespacesEnd(ctx, len(list))})
}

func (b *bench) check(ctx context.Context, c check, namespace string) error {
	began := time.Now()
	if err := b.apply(ctx, "", fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", namespace)); err != nil {
		return err
	}
	err := b.eventually(ctx, func() error { return accountReady(ctx, b, namespace) })
	if err == nil {
		err = c.run(ctx, b, namespace)
	}
	word := "held"
	if err != nil {
		word = "NOT held: " + err.Error()
	}
	progress("%s: %s: %s (%.1f s)", b.layout.name, c.name, word, time.Since(began).Seconds())
	return err
}

// eventually repeats done until it returns no error, and returns its last error when the time is
// up.
func (b *bench) eventually(ctx context.Context, done func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := done()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
}

// kubectl runs upstream's kubectl as the administrator and returns its output.
func (b *bench) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(b.o.upstream, "kubectl"), append([]string{"--kubeconfig", b.admin(), "--cache-dir", filepath.Join(b.dir, "kubectl")}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

func (b *bench) apply(ctx context.Context, namespace, manifest string) error {
	args := []string{"apply", "-f", "-"}
	if namespace != "" {
		args = append(args, "-n", namespace)
	}
	_, err := b.kubectl(ctx, manifest, args...)
	return err
}

// makes applies a manifest, and waits for an object's field.
func (b *bench) makes(ctx context.Context, namespace, manifest, object, path, wanted string) error {
	if err := b.apply(ctx, namespace, manifest); err != nil {
		return err
	}
	return b.becomes(ctx, namespace, object, path, wanted)
}

// field returns the value of a JSONPath in an object.
func (b *bench) field(ctx context.Context, namespace, object, path string) (string, error) {
	out, err := b.kubectl(ctx, "", "get", "-n", namespace, object, "-o", "jsonpath="+path)
	return strings.TrimSpace(out), err
}

// becomes waits until a JSONPath has the wanted value.
func (b *bench) becomes(ctx context.Context, namespace, object, path, wanted string) error {
	return b.eventually(ctx, func() error {
		got, err := b.field(ctx, namespace, object, path)
		if err == nil && got != wanted {
			err = fmt.Errorf("%s: %s is %q, wanted %q", object, path, got, wanted)
		}
		return err
	})
}
