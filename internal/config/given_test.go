package config

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

func TestGivenFlagsCanBeRepeatedAndHoldNoSecret(t *testing.T) {
	c := Default()
	flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
	c.AddFlags(flags, Process|Server|Node|Joining)
	err := flags.Parse([]string{
		"--data-dir=/d", "--max-pods", "5", "--tls-san", "a,b", "--node-labels", "x=1", "--token", "abc.def.0", "--store", "https://u:secret@etcd:2379",
		"--manifest-url", "https://host/m?key=secret",
	})
	if err != nil {
		t.Fatal(err)
	}
	got := GivenFlags(flags, "data-dir")
	slices.Sort(got)
	if want := []string{"--max-pods=5", "--node-labels=x=1", "--tls-san=a,b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
