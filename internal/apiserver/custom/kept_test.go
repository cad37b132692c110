package custom_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/custom"
)

func TestAnUnusedValueIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		k := custom.NewKept(func() int { made++; return made })
		if made != 0 {
			t.Fatal("made before the first use")
		}
		for range 10 { // in use: at least once in 25 s
			if got := k.Get(); got != 1 {
				t.Fatalf("value %d while it was in use, want the first", got)
			}
			time.Sleep(25 * time.Second)
		}
		time.Sleep(time.Minute)
		if got := k.Get(); got != 2 {
			t.Errorf("value %d a minute after the last use, want a new one", got)
		}
		time.Sleep(2 * time.Minute) // no timer is left
	})
}

// useManyOthers uses more new values than are kept, once each.
func useManyOthers() {
	for range 1000 {
		custom.NewKept(func() int { return 0 }).Get()
	}
}

func TestTheOldestNewcomerIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		k := custom.NewKept(func() int { made++; return made })
		for range 3 { // as by one request
			k.Get()
		}
		useManyOthers()
		if got := k.Get(); got != 2 {
			t.Errorf("value %d after many others were made, want a new one", got)
		}
		useManyOthers()
		if got := k.Get(); got != 2 {
			t.Errorf("value %d, want the second: it is in use", got)
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestAValueInUseIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		k := custom.NewKept(func() int { made++; return made })
		k.Get()
		time.Sleep(5 * time.Second)
		k.Get()
		useManyOthers()
		if got := k.Get(); got != 1 {
			t.Errorf("value %d, want the first: it was used on two occasions", got)
		}
		time.Sleep(3 * time.Minute)
		k.Get() // long after that, it is a newcomer again
		useManyOthers()
		if got := k.Get(); got != 3 {
			t.Errorf("value %d, want the third", got)
		}
		time.Sleep(2 * time.Minute)
	})
}
