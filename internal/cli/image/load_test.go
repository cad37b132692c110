package image

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/clusters"
	images "github.com/knarr-project/knarr/internal/image"
)

func TestTheErrorOfALimitNamesItsFlag(t *testing.T) {
	err := withFlag(fmt.Errorf("load x.tar: %w", &images.LimitError{Field: images.FieldEntries, Value: 11, Allowed: 10}))
	if want := "load x.tar: entries: found 11, allowed are 10 (--max-entries allows more)"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	for _, other := range []error{errors.New("x"), &images.LimitError{Field: "bytes of a path"}} {
		if got := withFlag(other); !errors.Is(got, other) || strings.Contains(got.Error(), "--") {
			t.Errorf("%v became %v", other, got)
		}
	}
}

func TestInvalidLimitsAreRefused(t *testing.T) {
	for _, flag := range []string{"--max-unpacked=lots", "--max-unpacked=-1", "--max-unpacked=2Ei", "--max-entries=0", "--max-ratio=-3", "--max-layers=0"} {
		command := Command(func(string, bool) (*clusters.Record, error) { return nil, errors.New("there is no cluster") })
		command.SetArgs([]string{"load", "none.tar", flag})
		command.SilenceErrors, command.SilenceUsage = true, true
		if err := command.Execute(); err == nil || !strings.Contains(err.Error(), "allowed are") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
