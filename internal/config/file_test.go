package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// read returns what a file sets in the flags of a server with a node, after the command line.
func read(t *testing.T, text string, args ...string) (*Config, error) {
	t.Helper()
	c := Default()
	flags := flagsOf(&c)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "knarr.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return &c, ReadFile(flags, path)
}

func TestKeysOfTheFileAreNamesOfFlags(t *testing.T) {
	c, err := read(t, `
data-dir: /srv/one
max-pods: 50
tls-san: [a.example.com, 192.0.2.1]
store: https://a:2379,https://b:2379
node-labels: {zone: a, rack: "7"}
compaction-interval: 90s
event-ttl: 0s
goaway-chance: 0.01
anonymous-auth: false
tls-curve-preferences: [29]
secure-port: 7443
v: 4
service-cluster-ip-range: 10.96.0.0/12
enable-admission-plugins: []
`)
	if err != nil {
		t.Fatal(err)
	}
	a := c.APIServer
	if c.DataDir != "/srv/one" || c.MaxPods != 50 || !slices.Equal(c.TLSNames, []string{"a.example.com", "192.0.2.1"}) || len(c.StoreEndpoints) != 2 ||
		c.NodeLabels["rack"] != "7" || c.CompactionInterval.Duration != 90*time.Second || a.EventTTL.Duration != 0 || a.Front.GoAway != 0.01 ||
		*a.Authentication.Anonymous || a.TLSCurves[0] != 29 || c.Listen != "0.0.0.0:7443" || c.LogLevel != "debug" || c.ServiceCIDR != "10.96.0.0/12" {
		t.Errorf("got %+v", c)
	}
}

func TestTheCommandLineWinsOverTheFile(t *testing.T) {
	c, err := read(t, "listen: 127.0.0.1:1\ntls-san: [x]\nnode-labels: {a: b}\nlog-level: error\n", "--secure-port=7443", "--tls-san=y", "--node-labels=c=d", "-v=4")
	if err != nil || c.Listen != "127.0.0.1:7443" || !slices.Equal(c.TLSNames, []string{"y"}) || len(c.NodeLabels) != 1 || c.LogLevel != "debug" {
		t.Errorf("got %s, %v, %v, %s, %v", c.Listen, c.TLSNames, c.NodeLabels, c.LogLevel, err)
	}
}

func TestFileErrorsNameKeyValueAndAllowedValues(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"an old name":                  {"dataDir: /x", "dataDir: unknown; did you mean data-dir?"},
		"an old name unlike the new":   {"tlsNames: [x]", "tlsNames: unknown; did you mean tls-san?"},
		"old nested settings":          {"apiServer: {audit: {logPath: x}}", "settings are not nested"},
		"a mistyped name":              {"node-nmae: x", "node-nmae: unknown; did you mean node-name?"},
		"a name of nothing":            {"qqqqqq: x", "qqqqqq: unknown"},
		"a text for a number":          {"max-pods: many", `max-pods: "many" is not usable: a whole number`},
		"a number for a text":          {"node-name: 12", `node-name: "12" is not usable: text, in quotes`},
		"a truth for a text":           {"node-name: on", `node-name: "true" is not usable: text, in quotes`},
		"a text for a truth":           {`profiling: "yes"`, `profiling: "yes" is not usable: true or false, without quotes`},
		"a list for a text":            {"data-dir: [a]", `data-dir: "[\"a\"]" is not usable: text`},
		"a map for a list":             {"tls-san: {a: b}", "tls-san: "},
		"a number in a list of texts":  {"tls-san: [7]", `tls-san: "7" is not usable: a list of texts, in quotes`},
		"a text in a list of numbers":  {"tls-curve-preferences: [x]", "a list of whole numbers"},
		"a time without a unit":        {"event-ttl: 60", `event-ttl: "60" is not usable: a duration with its unit`},
		"no value":                     {"data-dir:", "data-dir: has no value: text"},
		"a value near one":             {"log-level: wran", `log-level: "wran" is not usable: debug, info, warn or error; did you mean warn?`},
		"a value of a list near one":   {"authorization-mode: [RBCA]", "did you mean RBAC?"},
		"a value that cannot be":       {"watch-cache: false", "it can only be true"},
		"one setting twice":            {"store: [a]\netcd-servers: [b]", "the same setting as"},
		"one key twice":                {"store: [a]\nstore: [b]", "already"},
		"no lines at all":              {"- a", "lines KEY: VALUE are expected"},
		"a value of another component": {"use-service-account-credentials: perhaps", "true or false"},
		"help":                         {"config: x", "config: only on the command line"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(t, tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "knarr.yaml: ") {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestAllErrorsOfTheFileAreReported(t *testing.T) {
	_, err := read(t, "dataDir: /x\nmax-pods: x\n")
	if err == nil || !strings.Contains(err.Error(), "data-dir?") || !strings.Contains(err.Error(), "max-pods") {
		t.Errorf("got %v", err)
	}
}

func TestOneFileServesAllCommands(t *testing.T) {
	c := Default()
	flags := flagsOfGroups(&c, Process|SchedulerAlone)
	path := filepath.Join(t.TempDir(), "knarr.yaml")
	if err := os.WriteFile(path, []byte("data-dir: /srv/one\nmax-pods: 50\nallocate-node-cidrs: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadFile(flags, path); err != nil || c.DataDir != "/srv/one" || c.MaxPods != 110 {
		t.Errorf("got %s, %d, %v", c.DataDir, c.MaxPods, err)
	}
}

func TestEverySettingHasATopicAndAShortText(t *testing.T) {
	known := map[Topic]bool{}
	for _, topic := range Topics {
		known[topic.Name] = true
	}
	for _, groups := range allGroups {
		c := Default()
		flagsOfGroups(&c, groups).VisitAll(func(f *pflag.Flag) {
			h := HelpOf(f)
			if !known[TopicOf(f)] {
				t.Errorf("--%s has no topic: declare it in a function given to topic()", f.Name)
			}
			if words := len(strings.Fields(h.Summary)); words == 0 || words > 15 {
				t.Errorf("--%s: the first line of its usage text has %d words, 15 are most", f.Name, words)
			}
			if strings.HasSuffix(h.Summary, ".") || h.Details != "" && !strings.HasSuffix(h.Details, ".") {
				t.Errorf("--%s: the summary is no sentence, the details are: %q, %q", f.Name, h.Summary, h.Details)
			}
		})
	}
}

func TestHelpOfAFlag(t *testing.T) {
	c := Default()
	flags := flagsOf(&c)
	for name, want := range map[string]Help{
		"run-dir":                    {"DIR", "a folder in /run/knarr", "folder for sockets and pid files, at most 60 characters", "The default is /run/knarr/default, or another folder below /run/knarr for another data folder."},
		"max-pods":                   {"N", "110", "largest number of pods on this node", ""},
		"compaction-interval":        {"DURATION", "5m", "time between compactions of old revisions; 0 turns compaction off", ""},
		"oidc-signing-algs":          {"ALGORITHMS", "RS256", "algorithms of accepted signatures", ""},
		"encryption-provider-config": {"FILE", "", "EncryptionConfiguration file: which kinds are encrypted in the store, and how", "Without it nothing is encrypted."},
	} {
		if got := HelpOf(flags.Lookup(name)); got != want {
			t.Errorf("--%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestNearestName(t *testing.T) {
	known := []string{"data-dir", "run-dir", "pod-cidr", "service-cidr", "tls-cert-file", "tls-private-key-file", "log-level", "up"}
	for given, want := range map[string]string{
		"datadir": "data-dir", "dataDir": "data-dir", "data_dir": "data-dir", "data-dri": "data-dir", "cidr": "pod-cidr service-cidr",
		"tls-cert": "tls-cert-file", "loglevel": "log-level", "pu": "up", "xyz": "", "": "", "x": "",
	} {
		if got := strings.Join(Nearest(given, known), " "); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}
