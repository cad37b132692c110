package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckEndsWithStatusOneOnErrors(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for name, text := range map[string]string{
		good: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		bad:  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndta: {a: b}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := typed(t, "check", good); err != nil {
		t.Errorf("a good file: %v\n%s", err, out)
	}
	out, err := typed(t, "check", dir)
	if status := ExitStatus(0); !errors.As(err, &status) || status != 1 || !strings.Contains(out, `bad.yaml:4:1: error: dta: unknown field; did you mean "data"?`) {
		t.Errorf("a bad file: %v\n%s", err, out)
	}
	if out, err = typed(t, "check", "--fix", "--write", bad); err != nil || !strings.Contains(out, "bad.yaml: 1 fixed") {
		t.Errorf("a fix: %v\n%s", err, out)
	}
	if out, err = typed(t, "check", dir); err != nil {
		t.Errorf("a fixed file: %v\n%s", err, out)
	}
}

func TestCheckRefusesWrongArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"name files or folders":            {"check"},
		"allowed are text, json, github":   {"check", "-o", "xml", "-"},
		"no such file":                     {"check", "missing.yaml"},
		"allowed are privileged, baseline": {"check", "--pod-security", "high", t.TempDir()},
		"with --fix":                       {"check", "--write", t.TempDir()},
	} {
		if out, err := typed(t, args...); err == nil || !strings.Contains(err.Error()+out, want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

func TestSchemaWritesAFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "schemas")
	if out, err := typed(t, "schema", "-o", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"all.json", "_definitions.json", "deployment-apps-v1.json", "pod-v1.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
