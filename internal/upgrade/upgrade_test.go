package upgrade

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/version"
)

func build(knarr, kubernetes string) version.Build {
	return version.Build{Knarr: knarr, Kubernetes: kubernetes, Platform: version.Current().Platform}
}

func check(t *testing.T, name string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

func TestAServerIsUpgradedByOneMinorVersionAtMost(t *testing.T) {
	for _, c := range []struct{ from, to, kubernetes, want string }{
		{"v1.36.3+knarr0", "v1.36.3+knarr0", "v1.36.3", ""},
		{"v1.36.3+knarr0", "v1.36.3+knarr10", "v1.36.3", ""},
		{"v1.36.3+knarr2", "v1.36.3+knarr10", "v1.36.3", ""},
		{"v1.36.3+knarr2", "v1.36.3+knarr1", "v1.36.3", "older"},
		{"v1.36.3+knarr2", "v1.36.3+knarr-devel", "v1.36.3", ""},
		{"v1.36.3+knarr2", "v1.36.2+knarr9", "v1.36.2", "older"},
		{"v1.36.3+knarr2", "v1.37.0+knarr0", "v1.37.0", ""},
		{"v1.36.3+knarr2", "v1.38.0+knarr0", "v1.38.0", "skips"},
		{"v1.36.3+knarr2", "v2.0.0+knarr0", "v2.0.0", "skips"},
		{"v1.36.3+knarr2", "v1", "one", "not usable"},
	} {
		check(t, c.from+" to "+c.to, CheckServer(build(c.from, "v1.36.3"), build(c.to, c.kubernetes)), c.want)
	}
}

func TestKubeletsAreAtMostThreeMinorVersionsOlder(t *testing.T) {
	for kubelet, want := range map[string]string{"v1.36.9": "", "v1.33.0": "", "v1.32.9": "more than 3", "v1.37.0": "newer", "x": "not usable"} {
		check(t, kubelet, CheckKubelet(kubelet, "v1.36.3"), want)
	}
	for other, want := range map[string]string{"v1.35.1": "", "v1.37.1": "", "v1.34.0": "one minor", "v1.38.0": "one minor", "": "not usable"} {
		check(t, other, CheckServers("v1.36.3", other), want)
	}
}

func TestUnavailableNodes(t *testing.T) {
	for text, want := range map[string]int{"1": 1, "7": 7, "1%": 1, "25%": 2, "100%": 10} {
		if got, err := Unavailable(text, 10); got != want || err != nil {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "0%", "101%", "x", "%", "1.5"} {
		if _, err := Unavailable(text, 10); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func node(name string, ready bool) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.NodeInfo.KubeletVersion = "v1.36.3"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: map[bool]corev1.ConditionStatus{true: "True", false: "Unknown"}[ready]}}
	return n
}

func server(name string, leader bool) ServerState {
	return ServerState{Member: member.Member{Name: name, Leader: leader, Version: "v1.36.3+knarr1"}, Ready: member.Healthy}
}

func report(kind, name string) Report {
	return Report{Kind: kind, Name: name, Build: build("v1.36.3+knarr1", "v1.36.3"), Free: 10 << 30}
}

func program() Program {
	return Program{Build: build("v1.36.3+knarr2", "v1.36.3"), SHA256: strings.Repeat("ab", 32), Size: 100 << 20}
}

func names(all []Machine) string {
	var out []string
	for _, m := range all {
		out = append(out, m.Name)
	}
	return strings.Join(out, " ")
}

func TestTheLeaderIsTheLastServerAndServersAreBeforeNodes(t *testing.T) {
	both := report(Server, "c")
	both.Node = true
	done := report(Node, "n1")
	done.Build = program().Build
	other := report(Node, "n4")
	other.Build.Platform = "linux/s390x"
	s := &Status{
		Servers: []ServerState{server("b", true), server("c", false), server("a", false)},
		Reports: []Report{report(Server, "a"), report(Server, "b"), both, done, report(Node, "n2"), report(Node, "gone"), other},
	}
	p := Draw(s, []corev1.Node{node("n2", true), node("n1", true), node("n3", false), node("c", true), node("n4", true), node("old", true)}, program())
	if got := names(p.Servers); got != "a c b" {
		t.Errorf("servers %s", got)
	}
	if got := names(p.Nodes) + "; " + names(Left(p.Nodes)); got != "n1 n2; n2" {
		t.Errorf("nodes %s", got)
	}
	if got := names(p.ByHand) + "; " + names(p.LeftOut); got != "n4 old; n3" {
		t.Errorf("by hand and left out: %s", got)
	}
	if len(p.Problems) > 0 || !p.Drainable {
		t.Errorf("%+v", p)
	}
}

func TestANodeThatAnUpgradeHasCordonedCanTakePods(t *testing.T) {
	for name, c := range map[string]struct {
		marks               map[string]string
		cordoned, drainable bool
	}{
		"by an upgrade":       {map[string]string{CordonedAnnotation: "true"}, true, true},
		"by an administrator": {nil, false, false},
	} {
		a := node("a", true)
		a.Spec.Unschedulable, a.Annotations = true, c.marks
		s := &Status{Servers: []ServerState{server("s", true)}, Reports: []Report{report(Server, "s"), report(Node, "a"), report(Node, "b")}}
		p := Draw(s, []corev1.Node{a, node("b", true)}, program())
		if p.Nodes[0].Cordoned != c.cordoned || p.Nodes[1].Cordoned || p.Drainable != c.drainable {
			t.Errorf("cordoned %s: %+v", name, p)
		}
	}
}

func TestProblemsPreventAnUpgrade(t *testing.T) {
	for want, change := range map[string]func(*Status, *Program, *[]corev1.Node){
		"still joining":    func(s *Status, _ *Program, _ *[]corev1.Node) { s.Servers[0].Learner = true },
		"is not ready: no": func(s *Status, _ *Program, _ *[]corev1.Node) { s.Servers[0].Ready = "no" },
		"MB free":          func(s *Status, _ *Program, _ *[]corev1.Node) { s.Reports[0].Free = 1 << 20 },
		"older":            func(_ *Status, p *Program, _ *[]corev1.Node) { p.Build.Knarr = "v1.36.3+knarr0" },
		"does not have any more": func(s *Status, p *Program, _ *[]corev1.Node) {
			p.Build = build("v1.37.0+knarr0", "v1.37.0")
			s.Deprecated = []DeprecatedAPI{{"a", "things.v1beta1.x.io", "1.37"}, {"a", "things.v1beta1.y.io", "1.38"}}
		},
		"node n: node agent": func(_ *Status, _ *Program, n *[]corev1.Node) { (*n)[0].Status.NodeInfo.KubeletVersion = "v1.32.0" },
	} {
		s := &Status{Servers: []ServerState{server("a", true)}, Reports: []Report{report(Server, "a"), report(Node, "n")}}
		p, nodes := program(), []corev1.Node{node("n", true)}
		change(s, &p, &nodes)
		if got := Draw(s, nodes, p).Problems; len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %q", want, got)
		}
	}
}

func TestOrdersAreChecked(t *testing.T) {
	good := func() Order { return Order{Program: program(), Turns: []Turn{{Node, "n", "x"}}} }
	for want, change := range map[string]func(*Order){
		"":                         func(*Order) {},
		"program.sha256":           func(o *Order) { o.Program.SHA256 = "../../etc" },
		"program.size":             func(o *Order) { o.Program.Size = MaxProgram + 1 },
		"program.build.kubernetes": func(o *Order) { o.Program.Build.Kubernetes = "" },
		"program.build.platform":   func(o *Order) { o.Program.Build.Platform = "" },
		"turns[0].kind":            func(o *Order) { o.Turns[0].Kind = "pod" },
		"turns[0].name":            func(o *Order) { o.Turns[0].Name = "" },
		"turns[0].nonce":           func(o *Order) { o.Turns[0].Nonce = strings.Repeat("x", 65) },
		"turns: 1001":              func(o *Order) { o.Turns = make([]Turn, 1001) },
	} {
		o := good()
		change(&o)
		check(t, want, o.Validate(), want)
	}
}

// fakeAgent returns the agent of a node whose server sends data. It collects reports and restarts.
func fakeAgent(t *testing.T, data []byte) (*Agent, *[]Report, *int) {
	t.Helper()
	var told []Report
	restarts := 0
	dir := t.TempDir()
	installed := filepath.Join(t.TempDir(), "knarr")
	if err := os.WriteFile(installed, []byte("the old one"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	a := &Agent{
		Kind: Node, Name: "n", DataDir: dir, Program: installed, Restart: func() { restarts++ }, Log: slog.New(slog.DiscardHandler),
		Tell: func(_ context.Context, r Report) { told = append(told, r) },
		Fetch: func(_ context.Context, p Program, offset int64) ([]byte, error) {
			return data[offset:min(offset+3, p.Size)], nil
		},
	}
	return a, &told, &restarts
}

func TestAProgramThatIsNotTheOrderedOneIsNotInstalled(t *testing.T) {
	data := []byte("no program of Linux")
	sum := sha256.Sum256(data)
	p := program()
	p.SHA256, p.Size = hex.EncodeToString(sum[:]), int64(len(data))
	for name, c := range map[string]struct {
		change func(*Program)
		want   string
	}{
		"another hash":  {func(p *Program) { p.SHA256 = strings.Repeat("ab", 32) }, "has not the SHA-256"},
		"no program":    {func(*Program) {}, "not a program of Linux"},
		"outside paths": {func(p *Program) { p.SHA256 = "../../x" }, "sha256"},
	} {
		t.Run(name, func(t *testing.T) {
			a, told, restarts := fakeAgent(t, data)
			own := p
			c.change(&own)
			a.Follow(t.Context(), nil)
			a.Follow(t.Context(), &Order{Program: own, Turns: []Turn{{Node, "n", "1"}}})
			last := (*told)[len(*told)-1]
			if last.Phase != Failed || !strings.Contains(last.Error, c.want) || *restarts != 0 {
				t.Errorf("%+v", last)
			}
			if now, err := os.ReadFile(a.Program); err != nil || string(now) != "the old one" {
				t.Errorf("the program is %q, %v", now, err)
			}
			before := len(*told)
			a.Follow(t.Context(), &Order{Program: own, Turns: []Turn{{Node, "n", "1"}}})
			if len(*told) != before {
				t.Error("the same turn was followed twice")
			}
			a.Follow(t.Context(), nil)
			if _, err := os.Stat(filepath.Join(a.DataDir, stagedFolder)); !os.IsNotExist(err) {
				t.Errorf("the fetched program is left: %v", err)
			}
		})
	}
}

// TestAnOldTurnIsNotFollowed has a machine start while a turn stands: after a rollback, the store
// may have the turn that led to the upgrade.
func TestAnOldTurnIsNotFollowed(t *testing.T) {
	a, told, _ := fakeAgent(t, nil)
	a.Follow(t.Context(), &Order{Program: program(), Turns: []Turn{{Node, "n", "1"}}})
	a.Follow(t.Context(), &Order{Program: program(), Turns: []Turn{{Node, "n", "1"}}})
	a.Follow(t.Context(), &Order{Program: program(), Turns: []Turn{{Node, "other", "2"}}})
	if len(*told) > 0 {
		t.Errorf("%+v", *told)
	}
}

func TestAProgramIsReplacedAtomicallyAndKept(t *testing.T) {
	a, _, _ := fakeAgent(t, nil)
	if err := Keep(a.DataDir, a.Program, writerOf("v1")); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	if err := os.WriteFile(fresh, []byte("the new one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Replace(fresh, a.Program); err != nil {
		t.Fatal(err)
	}
	before, err := ReadBefore(a.DataDir)
	if err != nil || before.Installed != a.Program {
		t.Fatalf("%+v, %v", before, err)
	}
	for path, want := range map[string]string{a.Program: "the new one", Kept(a.DataDir, before.Writer): "the old one"} {
		data, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || string(data) != want || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %q %s %v", path, data, info.Mode(), err)
		}
	}
}

func FuzzReports(f *testing.F) {
	f.Add([]byte(`{"kind":"node","name":"n","phase":"failed","error":"x","build":{"knarr":"v1"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseReport(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Error) > 3*maxText || strings.ContainsAny(r.Error+r.Problem+r.Build.Knarr, "\x1b\n\x00") {
			t.Errorf("%q", again)
		}
	})
}

func writerOf(release string) snapshots.Writer { return snapshots.Writer{Knarr: release} }
