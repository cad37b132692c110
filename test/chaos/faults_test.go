package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// fault is one thing that goes wrong in a cluster.
type fault struct {
	name string
	// hits are the members whose process or disk the fault changes. Two faults never hit one member
	// at the same time.
	hits []int
	// strike lets the fault happen. end takes it back. An error means that the cluster has failed
	// the test.
	strike func(ctx context.Context, c *cluster) (end func() error, err error)
}

// draw makes a fault of one kind by random choices.
type draw func(random *rand.Rand, n int) fault

// draws are the kinds of faults. Some are there several times to be drawn more often.
var draws = []draw{
	crash, crash, crash, stop, freeze, freeze, freeze,
	cut, cut, cutPair, cutOneWay, cutOneWay, flap, slow,
	fillDisk, removeMember, loseDisk,
}

// named are the kinds of faults that KNARR_CHAOS_FAULTS chooses from.
var named = map[string]draw{
	"kill": crash, "stop": stop, "freeze": freeze,
	"cut": cut, "cut-pair": cutPair, "cut-one-way": cutOneWay, "flap": flap, "slow": slow,
	"full-disk": fillDisk, "remove": removeMember, "lose-disk": loseDisk,
}

// chooseFaults limits the kinds of faults to those of KNARR_CHAOS_FAULTS, and their mean time to
// KNARR_CHAOS_LENGTH, until the end of the test.
func chooseFaults(t *testing.T) {
	t.Helper()
	kinds, times := draws, lengths
	t.Cleanup(func() { draws, lengths = kinds, times })
	if text := os.Getenv("KNARR_CHAOS_FAULTS"); text != "" {
		draws = nil
		for name := range strings.SplitSeq(text, ",") {
			d, ok := named[name]
			if !ok {
				t.Fatalf("KNARR_CHAOS_FAULTS: %q is none of %v", name, slices.Sorted(maps.Keys(named)))
			}
			draws = append(draws, d)
		}
	}
	if text := os.Getenv("KNARR_CHAOS_LENGTH"); text != "" {
		mean, err := time.ParseDuration(text)
		if err != nil || mean <= 0 || mean > time.Minute {
			t.Fatalf("KNARR_CHAOS_LENGTH=%q: a time up to 1m is expected", text)
		}
		lengths = []time.Duration{mean}
	}
}

// lengths are the mean times of faults; a time between a half and one and a half of it is drawn.
var lengths = []time.Duration{
	300 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond,
	time.Second, time.Second, time.Second, time.Second, 3 * time.Second, 3 * time.Second, 7 * time.Second,
}

// planned is a fault with its time after the begin of a round.
type planned struct {
	fault
	at, lasts time.Duration
}

// plan draws faults. Equal random choices make equal plans.
func plan(random *rand.Rand, n int) (list []planned) {
	free := make([]time.Duration, n) // when a member has no fault any more
	for range 1 + random.IntN(3) {
		p := planned{fault: draws[random.IntN(len(draws))](random, n), at: calm + time.Duration(random.Int64N(int64(2*time.Second)))}
		p.lasts = lengths[random.IntN(len(lengths))]
		p.lasts = p.lasts/2 + time.Duration(random.Int64N(int64(p.lasts)))
		for _, i := range p.hits {
			p.at = max(p.at, free[i])
		}
		for _, i := range p.hits {
			free[i] = p.at + p.lasts + calm
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b planned) int { return int(a.at - b.at) })
	return list
}

// diary tells when faults began and ended.
type diary struct {
	began time.Time

	mu    sync.Mutex // guards lines
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%8.3f s  ", time.Since(d.began).Seconds())+fmt.Sprintf(format, args...))
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, "\n")
}

// run lets the faults of a plan happen, each in its time, and takes all of them back.
func (c *cluster) run(ctx context.Context, plan []planned, d *diary) error {
	var all sync.WaitGroup
	errs := make([]error, len(plan))
	for i, p := range plan {
		all.Go(func() { errs[i] = c.runOne(ctx, p, d) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (c *cluster) runOne(ctx context.Context, p planned, d *diary) error {
	wait := func(until time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(d.began.Add(until))):
		}
	}
	wait(p.at)
	slices.Sort(p.hits)
	for _, i := range p.hits { // an earlier fault may last longer than planned
		c.members[i].struck.Lock()
		defer c.members[i].struck.Unlock()
	}
	d.note("%s: begins", p.name)
	end, err := p.strike(ctx, c)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	wait(time.Since(d.began) + p.lasts)
	d.note("%s: ends", p.name)
	if err := end(); err != nil {
		return fmt.Errorf("end of %s: %w", p.name, err)
	}
	d.note("%s: has ended", p.name)
	return nil
}

func hit(random *rand.Rand, n int, format string) (i int, name string) {
	i = random.IntN(n)
	return i, fmt.Sprintf(format, fmt.Sprintf("s%d", i+1))
}

// crash kills a member. It starts again at the end.
func crash(random *rand.Rand, n int) fault {
	i, name := hit(random, n, "kill -9 of %s")
	return fault{name, []int{i}, ended(i, syscall.SIGKILL)}
}

// stop is a planned stop of a member. It starts again at the end.
func stop(random *rand.Rand, n int) fault {
	i, name := hit(random, n, "planned stop of %s")
	return fault{name, []int{i}, ended(i, syscall.SIGTERM)}
}

func ended(i int, signal syscall.Signal) func(context.Context, *cluster) (func() error, error) {
	return func(_ context.Context, c *cluster) (func() error, error) {
		c.endMember(c.members[i], signal)
		return func() error { c.members[i].launch(); return nil }, nil
	}
}

// freeze stops a member without its knowledge.
func freeze(random *rand.Rand, n int) fault {
	i, name := hit(random, n, "SIGSTOP of %s")
	return fault{name, []int{i}, func(_ context.Context, c *cluster) (func() error, error) {
		c.members[i].freeze()
		return func() error { c.members[i].thaw(); return nil }, nil
	}}
}
