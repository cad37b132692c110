package spec

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"golang.org/x/sys/unix"
)

func TestEnvFilesAreParsed(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want map[string]string
		err  string
	}{
		"an empty file has no variables":             {in: ""},
		"blank lines and comments are skipped":       {in: "\n  \t\n# A='no'\n  # more\nA='a'\n#", want: map[string]string{"A": "a"}},
		"the last line needs no end":                 {in: "A='a'", want: map[string]string{"A": "a"}},
		"whitespace around an assignment is skipped": {in: " \tA='a' \t\nB='b'", want: map[string]string{"A": "a", "B": "b"}},
		"a value is literal":                         {in: `A=' # $B ${B} "x" \n = '`, want: map[string]string{"A": ` # $B ${B} "x" \n = `}},
		"a value may be empty":                       {in: "A=''", want: map[string]string{"A": ""}},
		"a value may span lines":                     {in: "A='1\n\n#2'\nB='b'", want: map[string]string{"A": "1\n\n#2", "B": "b"}},
		"a name may have other characters":           {in: "a.b-c='x'", want: map[string]string{"a.b-c": "x"}},
		"the last assignment wins":                   {in: "A='1'\nA='2'", want: map[string]string{"A": "2"}},
		"a value without quotes is refused":          {in: "A='a'\nB=b", err: "line 2: the value must be enclosed in single quotes"},
		"double quotes are refused":                  {in: `A="a"`, err: "line 1: the value must be enclosed in single quotes"},
		"whitespace after = is refused":              {in: "A= 'a'", err: "line 1: the value must be enclosed in single quotes"},
		"whitespace before = is refused":             {in: "A ='a'", err: "line 1: whitespace before '=' is not allowed"},
		"a line without = is refused":                {in: "A='1\n2'\nrubbish\nB='='", err: "line 3: want NAME='value'"},
		"an empty name is refused":                   {in: "='a'", err: "line 1: the name"},
		"a name with a space is refused":             {in: "export A='a'", err: "line 1: the name"},
		"a name beyond ASCII is refused":             {in: "Ä='a'", err: "line 1: the name"},
		"an open quote is refused":                   {in: "\nA='a\nB=b", err: "line 2: the value has no closing single quote"},
		"two strings side by side are refused":       {in: "A='a''b'", err: "line 1: unexpected content after the closing quote"},
		"two assignments in a line are refused":      {in: "A='a' B='b'", err: "line 1: unexpected content after the closing quote"},
		"a carriage return is refused":               {in: "A='a'\r\n", err: "line 1: unexpected content after the closing quote"},
		"a NUL byte is refused":                      {in: "A='\x00'", err: "line 1: the value contains a NUL byte"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseEnvFile(c.in)
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || !maps.Equal(got, c.want) {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// FuzzEnvFile checks that the parser terminates on any input, accepts only what an environment can
// hold, and reads back what it accepted.
func FuzzEnvFile(f *testing.F) {
	for _, seed := range []string{"", "A='a'\n# x\n\nB='1\n2'", "A=b", "A ='b'", "A='b", "A='b'c", "=''", "A=''\r\n", "A='\x00'"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		variables, err := parseEnvFile(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "line ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q", err)
			}
			return
		}
		var again strings.Builder
		for name, value := range variables {
			if name == "" || strings.ContainsAny(name, "=\x00 \t\n") || strings.ContainsAny(value, "'\x00") {
				t.Fatalf("accepted %q=%q", name, value)
			}
			again.WriteString(name + "='" + value + "'\n")
		}
		if reread, err := parseEnvFile(again.String()); err != nil || !maps.Equal(reread, variables) {
			t.Errorf("%q reads as %q, %v", again.String(), reread, err)
		}
	})
}

func TestAnEnvFileCannotReachOutOfItsVolume(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.env")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(outside, []byte("A='secret'\n"), 0o644))
	dir := t.TempDir()
	must(os.WriteFile(filepath.Join(dir, "good.env"), []byte("A='a'\n"), 0o644))
	must(os.Symlink("good.env", filepath.Join(dir, "within.env")))
	must(os.Symlink(outside, filepath.Join(dir, "absolute.env")))
	must(os.Symlink(filepath.Join("..", filepath.Base(filepath.Dir(outside)), "outside.env"), filepath.Join(dir, "relative.env")))
	must(os.Symlink("/dev/zero", filepath.Join(dir, "endless.env")))
	must(os.Symlink(filepath.Dir(outside), filepath.Join(dir, "folder")))
	must(os.Symlink("/proc/self/root", filepath.Join(dir, "magic")))
	must(unix.Mkfifo(filepath.Join(dir, "pipe.env"), 0o666))
	must(os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "large.env"), []byte("A='"+strings.Repeat("a", maxEnvFile)+"'"), 0o644))
	must(os.WriteFile(filepath.Join(dir, "full.env"), []byte("A='"+strings.Repeat("a", maxEnvFile-4)+"'"), 0o644))
	// Making a device needs root.
	device := unix.Mknod(filepath.Join(dir, "device.env"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) == nil
	for _, c := range []struct {
		path     string
		optional bool
		want     string // the beginning of the value
		err      string
	}{
		{path: "good.env", want: "a"},
		{path: "/good.env", want: "a"},
		{path: "within.env", want: "a"},
		{path: "full.env", want: "aaa"},
		{path: "missing.env", optional: true},
		{path: "missing.env", err: "no such file"},
		{path: "absolute.env", err: "it leads outside of the volume"},
		{path: "absolute.env", optional: true, err: "it leads outside of the volume"},
		{path: "relative.env", err: "it leads outside of the volume"},
		{path: "endless.env", err: "it leads outside of the volume"},
		{path: "folder/outside.env", err: "it leads outside of the volume"},
		{path: "magic/etc/hostname", err: "it leads outside of the volume"},
		{path: "pipe.env", err: "it is a named pipe, not a regular file"},
		{path: "device.env", err: "it is a device, not a regular file"},
		{path: "sub", err: "it is a directory, not a regular file"},
		{path: "large.env", err: "it is larger than 65536 bytes"},
	} {
		if c.path == "device.env" && !device {
			continue
		}
		pod := &corev1.Pod{}
		container := &corev1.Container{Env: []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{
			VolumeName: "data", Path: c.path, Key: "A", Optional: ptr.To(c.optional),
		}}}}}
		_, env, err := Env(context.Background(), pod, container, noSources{}, Facts{VolumePaths: map[string]string{"data": dir}})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), c.path) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %q, %v, want the error %q", c.path, env["A"], err, c.err)
			}
			continue
		}
		if value, set := env["A"]; err != nil || set != (c.want != "") || !strings.HasPrefix(value, c.want) {
			t.Errorf("%s: %q, %v, want %q", c.path, value, err, c.want)
		}
	}
}

// noSources has no objects.
type noSources struct{ Sources }

func (noSources) Services(string) []*corev1.Service { return nil }
