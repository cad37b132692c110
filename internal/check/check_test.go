package check_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/check"
)

func checkText(t *testing.T, text string) *check.Report {
	t.Helper()
	report, err := check.Run(t.Context(), check.Options{Files: []string{"-"}, Stdin: strings.NewReader(text)})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestHostileDocumentsAreRefused(t *testing.T) {
	many := strings.Repeat("z: 1\n", 2000)
	for name, c := range map[string]struct{ text, want string }{
		"aliases that stand for gigabytes": {"a: &a [" + strings.Repeat("x,", 1000) + "x]\nb: &b [" + strings.Repeat("*a,", 1000) + "*a]\nc: [" + strings.Repeat("*b,", 1000) + "*b]\n", "excessive aliasing"},
		"deep nesting":                     {"apiVersion: v1\nkind: ConfigMap\nx: " + strings.Repeat("[", 600) + strings.Repeat("]", 600), "deeper than 500 levels"},
		"deeper nesting":                   {strings.Repeat("[", 200_000), "invalid YAML"},
		"a document above the limit":       {"apiVersion: v1\nkind: ConfigMap\nx: " + strings.Repeat("x", 3<<20), "larger than 3145728 bytes"},
		"an anchor that contains itself":   {"apiVersion: v1\nkind: ConfigMap\ndata: &a {b: *a}\n", "invalid YAML"},
		"thousands of errors":              {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n" + strings.ReplaceAll(many, "z", "\"z\""), "more than 100 findings"},
		"a quantity that takes minutes":    {"apiVersion: v1\nkind: LimitRange\nmetadata: {name: a}\nspec: {limits: [{type: Pod, max: {cpu: 1e1000000000}}]}\n", "limits[0].max"},
	} {
		t.Run(name, func(t *testing.T) {
			report := checkText(t, c.text)
			var out bytes.Buffer
			if err := report.Write(&out, check.Text, true); err != nil {
				t.Fatal(err)
			}
			if report.Count(check.Error) == 0 || !strings.Contains(out.String(), c.want) {
				t.Errorf("want an error with %q; got %.2000s", c.want, out.String())
			}
			if len(report.Findings) > 110 {
				t.Errorf("%d findings", len(report.Findings))
			}
		})
	}
}

func TestFixesChangeOnlyTheWords(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.yaml")
	const before = "# héllo\r\napiVersion: v1\r\nkind: ConfigMap\r\nmetadata: {name: a, \"lables\": {ä: b}}   # x\r\ndta: {a: b}"
	if err := os.WriteFile(name, []byte(before), 0o640); err != nil {
		t.Fatal(err)
	}
	run := func() *check.Report {
		report, err := check.Run(t.Context(), check.Options{Files: []string{name}})
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	fixes := run().Fixes()
	if len(fixes) != 1 || fixes[0].Changes != 2 {
		t.Fatalf("fixes: %+v", fixes)
	}
	if diff := fixes[0].Diff(); !strings.Contains(diff, "-dta: {a: b}\n\\ No newline at end of file\n+metadata: {name: a, \"labels\"") {
		t.Errorf("%s", diff)
	}
	if err := fixes[0].Write(); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.NewReplacer("lables", "labels", "dta", "data").Replace(before); string(after) != want {
		t.Errorf("%q, want %q", after, want)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if again := run().Fixes(); len(again) != 0 {
		t.Errorf("fixes again: %+v", again)
	}
	if err := fixes[0].Write(); err == nil || !strings.Contains(err.Error(), "has changed since it was checked") {
		t.Errorf("a changed file was overwritten: %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		opts check.Options
		want string
	}{
		"no file":         {check.Options{}, "no file is given"},
		"a missing file":  {check.Options{Files: []string{"missing.yaml"}}, "missing.yaml"},
		"an empty folder": {check.Options{Files: []string{t.TempDir()}}, "-R"},
		"a wrong level":   {check.Options{Files: []string{"-"}, PodSecurity: "strict"}, "allowed are privileged, baseline and restricted"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := check.Run(t.Context(), c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzCheck(f *testing.F) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for part := range strings.SplitSeq(string(data), "\n---\n") {
			f.Add([]byte(part))
		}
	}
	f.Add([]byte("a: &a\n  <<: *a\n"))
	f.Add([]byte("{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [1, null, {}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<14 {
			return
		}
		report, err := check.Run(t.Context(), check.Options{Files: []string{"-"}, Stdin: bytes.NewReader(data), Closed: true, PodSecurity: "restricted"})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		for _, format := range []check.Format{check.Text, check.JSON, check.GitHub, check.SARIF} {
			if err := report.Write(&out, format, true); err != nil {
				t.Fatal(err)
			}
		}
		for _, finding := range report.Findings {
			if finding.Line < 1 || finding.Column < 1 {
				t.Errorf("a finding without a place: %+v", finding)
			}
		}
	})
}
