package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// testSide is a side that cannot start.
type testSide struct{}

func (testSide) name() string { return "upstream" }
func (testSide) startControl(context.Context, string) (*cluster, error) {
	return nil, errors.New("no disk")
}
func (testSide) startNode(context.Context, string) (*cluster, error) {
	return nil, errors.New("no disk")
}
func (testSide) startSeveral(context.Context, string) (*cluster, error) {
	return nil, errors.New("no disk")
}
func (testSide) size() (int64, error) { return 0, nil }

// silent returns a measurement of a server that never answers.
func silent(t *testing.T) *measurement {
	t.Helper()
	server, err := start(t.TempDir(), "server", "/bin/sleep", nil, "infinity")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.stop)
	return &measurement{o: &options{skip: map[string]bool{}}, side: testSide{}, f: figures{}, c: &cluster{control: []*process{server}}, load: &clients{meter: &meter{}}}
}

func TestAPartIsCutOffWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	m := silent(t)
	err := m.within(t.Context(), part{key: "storm", run: func(ctx context.Context, m *measurement) error {
		<-ctx.Done()
		return ctx.Err()
	}}, time.Millisecond, time.Minute)
	var cut *cutOff
	if !errors.As(err, &cut) {
		t.Fatalf("the error is %v, wanted a cut", err)
	}
	if m.c.control[0].ended() {
		t.Error("the server of a part that ended in time was killed")
	}
}

func TestAPartWithoutAnswersEndsWithItsServer(t *testing.T) {
	t.Parallel()
	m := silent(t)
	server := m.c.control[0]
	m.measureParts(t.Context(), []part{
		{"storm", []string{"storm"}, time.Millisecond, func(ctx context.Context, m *measurement) error {
			m.load.meter.begin(3)
			<-server.done // as a connection that ends with its server, ignoring the context
			return errors.New("connection reset")
		}},
		{"relist", []string{"relist"}, time.Minute, func(context.Context, *measurement) error { t.Error("a part ran without a server"); return nil }},
	})
	table := render(map[string]figures{"upstream": m.f})
	for _, wanted := range []string{"| cut off after 1ms: 0 of 3 calls |", "| left out: the server ended in storm |"} {
		if !strings.Contains(table, wanted) {
			t.Errorf("%q is missing in\n%s", wanted, table)
		}
	}
}

func TestAFailedPartDoesNotPreventTheTable(t *testing.T) {
	t.Parallel()
	m := silent(t)
	m.measureParts(t.Context(), []part{
		{"requests", []string{"create"}, time.Minute, func(context.Context, *measurement) error { return errors.New("500") }},
		{"watch", []string{"watch"}, time.Minute, func(_ context.Context, m *measurement) error { m.f["watch"] = figure{value: 3}; return nil }},
	})
	if m.f["create"].note != "failed: 500" || m.f["watch"].value != 3 {
		t.Errorf("figures: %v", m.f)
	}
	f := figures{}
	err := (&options{state: t.TempDir()}).measureSystem(t.Context(), testSide{}, f, systems[0])
	if err == nil || f["schedule"].note != "not started: no disk" {
		t.Errorf("%v, figures %v", err, f)
	}
}

// The size is measured from files, without a part.
func TestEveryRowHasAPart(t *testing.T) {
	t.Parallel()
	given := map[string]bool{"size": true}
	for _, s := range systems {
		for _, p := range s.parts {
			if p.limit <= 0 {
				t.Errorf("%s has no limit", p.key)
			}
			for _, row := range p.rows {
				given[row] = true
			}
		}
	}
	for _, row := range rows {
		if !given[row.key] {
			t.Errorf("no part gives %s", row.key)
		}
		delete(given, row.key)
	}
	for row := range given {
		if row != "size" {
			t.Errorf("the table has no row %s", row)
		}
	}
}
