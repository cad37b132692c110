package version

import (
	"runtime/debug"
	"testing"
)

func TestABuildNamesItsSource(t *testing.T) {
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "c0ffee"}, {Key: "vcs.time", Value: "2030-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"}}
	for name, test := range map[string]struct {
		info                       *debug.BuildInfo
		knarr, commit, date, state string
	}{
		"the Go command's record": {
			&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs},
			"v1.36.3+knarr-devel", "c0ffee", "2030-01-02T03:04:05Z", "dirty",
		},
		"an installed module":             {&debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}, "v0.1.0", "unknown", "unknown", "unknown"},
		"a source without its history":    {&debug.BuildInfo{}, "v1.36.3+knarr-devel", "unknown", "unknown", "unknown"},
		"a binary without any build info": {nil, "v1.36.3+knarr-devel", "unknown", "unknown", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			b := build(test.info)
			if b.Knarr != test.knarr || b.Commit != test.commit || b.Date != test.date || b.Tree != test.state {
				t.Errorf("got %+v", b)
			}
		})
	}
}

func TestWhatTheMakefileSetsWins(t *testing.T) {
	release, commit, date, tree = "v9", "beef", "2031-01-01T00:00:00Z", "clean"
	defer func() { release, commit, date, tree = "", "", "", "" }()
	b := build(&debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "c0ffee"}, {Key: "vcs.modified", Value: "true"}}})
	if b.Knarr != "v9" || b.Commit != "beef" || b.Date != "2031-01-01T00:00:00Z" || b.Tree != "clean" {
		t.Errorf("got %+v", b)
	}
}
