package process

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
)

type eventLog struct {
	mu    sync.Mutex
	lines []string
}

func (d *eventLog) note(s string) {
	d.mu.Lock()
	d.lines = append(d.lines, s)
	d.mu.Unlock()
}

func (d *eventLog) component(name string) Component {
	return Component{Name: name, Start: func(ctx context.Context) (func() error, error) {
		d.note("start " + name)
		return func() error { <-ctx.Done(); d.note("stop " + name); return nil }, nil
	}}
}

func TestComponentsStopInReverseOrder(t *testing.T) {
	var d eventLog
	ctx, cancel := context.WithCancel(t.Context())
	err := Run(ctx, []Phase{{d.component("store")}, {d.component("server")}, {d.component("node")}}, nil, cancel, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"start store", "start server", "start node", "stop node", "stop server", "stop store"}
	if !slices.Equal(d.lines, want) {
		t.Errorf("got %v, want %v", d.lines, want)
	}
}

func TestADeadComponentStopsTheProcess(t *testing.T) {
	var d eventLog
	broken := Component{Name: "broken", Start: func(context.Context) (func() error, error) {
		return func() error { return errors.New("disk full") }, nil
	}}
	err := Run(t.Context(), []Phase{{d.component("store")}, {broken}}, nil, nil, slog.Default())
	if err == nil || !strings.Contains(err.Error(), "broken died: disk full") {
		t.Errorf("got %v", err)
	}
	if !slices.Contains(d.lines, "stop store") {
		t.Errorf("the store was not stopped: %v", d.lines)
	}
}

func TestAFailedStartStopsWhatHasStarted(t *testing.T) {
	var d eventLog
	broken := Component{Name: "broken", Start: func(context.Context) (func() error, error) { return nil, errors.New("port taken") }}
	err := Run(t.Context(), []Phase{{d.component("store")}, {broken, d.component("beside")}, {d.component("never")}}, nil, nil, slog.Default())
	if err == nil || !strings.Contains(err.Error(), "broken: port taken") {
		t.Errorf("got %v", err)
	}
	if slices.Contains(d.lines, "start never") || !slices.Contains(d.lines, "stop beside") || !slices.Contains(d.lines, "stop store") {
		t.Errorf("wrong order of things: %v", d.lines)
	}
}
