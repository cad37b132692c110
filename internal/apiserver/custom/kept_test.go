package custom_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/custom"
)

func TestAKeptValueGoesWhenNobodyAsksForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		k := custom.NewKept(func() int { made++; return made })
		if made != 0 {
			t.Fatal("made before anybody asked")
		}
		for range 10 { // in use: asked for at least every 25 s
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
