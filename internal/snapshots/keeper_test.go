package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

func entry(name string, good bool) Entry {
	e := Entry{Name: name, Size: 10, Record: &Record{Name: name, Taken: timeOfName(name), Size: 10, Checked: time.Now()}}
	if !good {
		e.Record.Size = 11
	}
	return e
}

func TestRetention(t *testing.T) {
	day := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	at := func(days int) string { return ScheduledName("one", day.AddDate(0, 0, -days)) + plainEnding }
	unchecked := Entry{Name: at(3), Size: 10}
	for name, tt := range map[string]struct {
		entries []Entry
		keep    Retention
		want    []string
	}{
		"the number":                       {[]Entry{entry(at(3), true), entry(at(2), true), entry(at(1), true)}, Retention{Keep: 2}, []string{at(3)}},
		"no limit":                         {[]Entry{entry(at(3), true), entry(at(2), true)}, Retention{}, nil},
		"the age":                          {[]Entry{entry(at(30), true), entry(at(20), true), entry(at(1), true)}, Retention{MaxAge: 10 * 24 * time.Hour}, []string{at(30), at(20)}},
		"the newest, however old":          {[]Entry{entry(at(30), true), entry(at(20), true)}, Retention{Keep: 1, MaxAge: time.Hour}, []string{at(30)}},
		"the newest good one":              {[]Entry{entry(at(3), true), entry(at(2), false), entry(at(1), false)}, Retention{Keep: 1, MaxAge: time.Hour}, []string{at(2), at(1)}},
		"bad ones take no place":           {[]Entry{entry(at(4), true), entry(at(3), false), entry(at(2), true), entry(at(1), true)}, Retention{Keep: 3}, []string{at(3)}},
		"one without a record is not good": {[]Entry{unchecked, entry(at(2), true)}, Retention{Keep: 5}, []string{at(3)}},
		"a newer one may not be finished":  {[]Entry{entry(at(2), true), entry(at(1), false)}, Retention{Keep: 1}, nil},
		"all are bad":                      {[]Entry{entry(at(30), false), entry(at(20), false)}, Retention{Keep: 1, MaxAge: time.Hour}, nil},
		"other names stay":                 {[]Entry{entry("knarr-20200101T000000Z.db", true), entry("before-v1.db", true), entry(at(1), true)}, Retention{Keep: 1, MaxAge: time.Hour}, nil},
		"other servers' stay":              {[]Entry{entry(ScheduledName("two", day.AddDate(0, 0, -9))+".tar.age", true), entry(at(2), true), entry(at(1), true)}, Retention{Keep: 1, Server: "one"}, []string{at(2)}},
	} {
		var got []string
		for _, e := range tt.keep.expired(tt.entries, day) {
			got = append(got, e.Name)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: removes %v, want %v", name, got, tt.want)
		}
	}
}

// keeper returns a keeper with a clock that the test moves.
func keeper(t *testing.T, db *etcd.Engine, server, dir string, clock *clocktesting.FakeClock) *Keeper {
	req := request(db, "")
	req.Server, req.Now = server, clock.Now
	return &Keeper{
		Schedule: cron.Every(6 * time.Hour), Store: db, Own: Folder(dir), Work: dir, Request: req, Retention: Retention{Keep: 2},
		Metrics: NewMetrics(), Failed: func(error) {}, Clock: clock, Log: quiet(),
	}
}

// start runs a keeper until the test ends.
// start runs a keeper until the test ends or calls stop.
func start(t *testing.T, k *Keeper) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// until moves the clock in steps until a condition holds.
func until(t *testing.T, clock *clocktesting.FakeClock, step time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("still waiting until %s", what)
		}
		if clock.HasWaiters() {
			clock.Step(step)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func goodIn(t *testing.T, place Place) (names []string) {
	t.Helper()
	entries, err := place.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Good() {
			names = append(names, e.Name)
		}
	}
	return names
}

func TestTheKeeperTakesAndRemovesSnapshots(t *testing.T) {
	db, dir := openStore(t), t.TempDir()
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	k := keeper(t, db, "one", dir, clock)
	start(t, k)
	first := ScheduledName("one", time.Date(2026, 1, 1, 6, 0, 0, 0, time.UTC)) + plainEnding
	until(t, clock, time.Hour, "the first is there", func() bool { return slices.Contains(goodIn(t, k.Own), first) })
	until(t, clock, time.Hour, "the first is removed", func() bool { return !slices.Contains(goodIn(t, k.Own), first) })
	if names := goodIn(t, k.Own); len(names) != 2 {
		t.Errorf("kept: %v", names)
	}
}

func TestAMissedSnapshotIsTakenAfterTheStart(t *testing.T) {
	db, dir := openStore(t), t.TempDir()
	now := time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)
	clock := clocktesting.NewFakeClock(now.AddDate(0, 0, -2))
	k := keeper(t, db, "one", dir, clock)
	if err := k.takeNow(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	clock.SetTime(now)
	start(t, k)
	until(t, clock, time.Minute, "another is there", func() bool { return len(goodIn(t, k.Own)) == 2 })
	if took := clock.Now().Sub(now); took < settle || took > 3*time.Hour {
		t.Errorf("it was taken %s after the start", took)
	}
}

func TestServersTakeTurnsAndOneUploads(t *testing.T) {
	db, shared := openStore(t), Folder(t.TempDir())
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var own []Place
	for _, server := range []string{"one", "two", "three"} {
		k := keeper(t, db, server, t.TempDir(), clock)
		k.Shared = shared
		own = append(own, k.Own)
		start(t, k)
	}
	until(t, clock, 5*time.Minute, "each server has two", func() bool {
		return !slices.ContainsFunc(own, func(p Place) bool { return len(goodIn(t, p)) < 2 })
	})
	perSlot := map[string]int{}
	for _, name := range goodIn(t, shared) {
		perSlot[timeOfName(name).Add(-time.Minute).Truncate(6*time.Hour).String()]++
	}
	if len(perSlot) == 0 {
		t.Error("nothing was uploaded")
	}
	for slot, n := range perSlot {
		if n > 1 {
			t.Errorf("%d uploads at %s: %v", n, slot, goodIn(t, shared))
		}
	}
	if kv, _, err := db.Get(t.Context(), turnKey, 0); err != nil {
		t.Errorf("the turn: %v, %v", kv, err)
	}
}

func TestATurnExcludesOthers(t *testing.T) {
	db := openStore(t)
	err := turn(t.Context(), db, "one", quiet(), func(ctx context.Context) error {
		err := turn(ctx, db, "two", quiet(), func(context.Context) error { t.Error("both have the turn"); return nil })
		if !errors.Is(err, errTaken) {
			t.Errorf("the other: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ran := false
	if err := turn(t.Context(), db, "two", quiet(), func(context.Context) error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("after the turn's end: %v, %v", ran, err)
	}
}

func TestAFailureIsReportedAndTriedAgain(t *testing.T) {
	db, dir := openStore(t), t.TempDir()
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	k := keeper(t, db, "one", dir, clock)
	failures := make(chan error, 100)
	k.Failed = func(err error) { failures <- err }
	fails := make(chan bool, 1)
	fails <- true
	whole := k.Request.Stream
	k.Request.Stream = func(ctx context.Context, w io.Writer) error {
		select {
		case <-fails:
			return fmt.Errorf("no: %w", store.ErrUnavailable)
		default:
			return whole(ctx, w)
		}
	}
	stop := start(t, k)
	until(t, clock, 10*time.Minute, "a snapshot is there", func() bool { return len(goodIn(t, k.Own)) == 1 })
	if err := <-failures; !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("reported: %v", err)
	}
	stop() // the snapshot is there before its work folder is removed
	for _, name := range visible(t, dir) {
		if strings.HasPrefix(name, workPrefix) {
			t.Errorf("left behind: %s", name)
		}
	}
}

func TestWhatAKilledProcessLeavesIsRemoved(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, workPrefix+"dead")
	if err := errors.Join(os.MkdirAll(filepath.Join(dead, "scratch-1", "etcd"), 0o700), os.WriteFile(filepath.Join(dead, databaseName), []byte("half"), 0o600)); err != nil {
		t.Fatal(err)
	}
	orphan := filepath.Join(dir, "scheduled-20260101T000000Z-one.db.json")
	if err := os.WriteFile(orphan, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	alive := newWork(t, dir)
	if list, err := Folder(dir).List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("listed: %v, %v", list, err)
	}
	if err := Folder(dir).Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names := visible(t, dir); !slices.Equal(names, []string{filepath.Base(alive.Dir)}) {
		t.Errorf("left: %v", names)
	}
}

func TestNewestAtOrBefore(t *testing.T) {
	entries := []Entry{entry("knarr-20260101T000000Z.db", true), entry("knarr-20260102T000000Z.db", true), entry("knarr-20260103T000000Z.db", false)}
	for at, want := range map[string]string{
		"": "knarr-20260102T000000Z.db", "20260102T000000Z": "knarr-20260102T000000Z.db", "20260101T235959Z": "knarr-20260101T000000Z.db", "20251231T000000Z": "",
	} {
		var when time.Time
		if at != "" {
			var err error
			if when, err = time.Parse(TimeFormat, at); err != nil {
				t.Fatal(err)
			}
		}
		if e, ok := Newest(entries, when); e.Name != want || ok != (want != "") {
			t.Errorf("at %s: %q, want %q", at, e.Name, want)
		}
	}
}
