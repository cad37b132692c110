// Package plugintest has what tests with plugins of the node agent share: folders for sockets,
// loops that end with the test, and conditions to wait for.
package plugintest

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Dir makes a folder for sockets, which the test's end removes. The names of t.TempDir are too long
// for the path of a socket.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kub")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Until waits for a condition.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Run runs loops until stop is called, which waits for their ends.
func Run(ctx context.Context, t testing.TB, loops ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, loop := range loops {
		wg.Go(func() {
			if err := loop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// Touched records the pods that a manager reports. It is safe for concurrent use.
type Touched struct {
	mu   sync.Mutex
	pods []types.UID
}

// Touch adds pods.
func (p *Touched) Touch(pods []types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods = append(p.pods, pods...)
}

// Pods returns the pods so far.
func (p *Touched) Pods() []types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.pods)
}
