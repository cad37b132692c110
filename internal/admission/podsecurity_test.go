package admission

import (
	"testing"

	psapi "k8s.io/pod-security-admission/api"
)

func TestVersionLabelsAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		level   psapi.LevelVersion
		version string
	}{
		"latest":                            {psapi.LevelVersion{Level: psapi.LevelBaseline, Version: psapi.LatestVersion()}, "latest"},
		"an old version":                    {psapi.LevelVersion{Level: psapi.LevelRestricted, Version: psapi.MajorMinorVersion(1, 22)}, "v1.22"},
		"this server's version":             {psapi.LevelVersion{Level: psapi.LevelRestricted, Version: psapi.MajorMinorVersion(1, 36)}, "v1.36"},
		"a future version":                  {psapi.LevelVersion{Level: psapi.LevelRestricted, Version: psapi.MajorMinorVersion(1, 37)}, "future"},
		"a version far in the future":       {psapi.LevelVersion{Level: psapi.LevelBaseline, Version: psapi.MajorMinorVersion(1, 123456)}, "future"},
		"privileged, which has one version": {psapi.LevelVersion{Level: psapi.LevelPrivileged, Version: psapi.MajorMinorVersion(1, 22)}, "latest"},
	} {
		if got := evaluatedVersion(tc.level); got != tc.version {
			t.Errorf("%s: %s, want %s", name, got, tc.version)
		}
	}
}
