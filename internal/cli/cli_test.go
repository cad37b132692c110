package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/knarr-project/knarr/internal/config"
)

// asProgram makes the test binary run as knarr, for tests that need a process of their own.
const asProgram = "KNARR_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	err := Execute(context.Background(), os.Args)
	if status := ExitStatus(0); err != nil && !errors.As(err, &status) {
		fmt.Fprintln(os.Stderr, "knarr:", err)
	}
	os.Exit(Status(err))
}

// program returns a command that runs knarr in a process of its own.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// typed runs a command line and returns its output.
func typed(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := Root()
	var out bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	if errors.Is(err, errHelped) {
		err = nil
	}
	return out.String(), err
}

func TestErrorsForWrongCommandLinesNameTheRemedy(t *testing.T) {
	for line, want := range map[string]string{
		"dcotor":                                   "unknown command \"dcotor\"; did you mean doctor?\nRead `knarr --help`.",
		"image lst":                                "unknown command \"lst\"; did you mean ls or list?\nRead `knarr image --help`.",
		"frobnicate --all":                         "unknown command \"frobnicate\"\nRead `knarr --help`.",
		"up --datadir x":                           "unknown flag --datadir; did you mean --data-dir?\nRead `knarr up --help`.",
		"apiserver --etcd-server x":                "unknown flag --etcd-server; did you mean --etcd-servers?\nRead `knarr apiserver --help`.",
		"apiserver --vmodule x":                    "a flag of kube-apiserver that is not here: the log has one level",
		"purge --max-pods 3":                       "purge takes no --max-pods; it is a setting of up, node, kubelet",
		"up --data-dir":                            "--data-dir needs a value: folder for all data",
		"up --max-pods x":                          `--max-pods: "x" is not usable: a whole number`,
		"up --log-level wran":                      `log-level: "wran" is not usable: debug, info, warn or error; did you mean warn?`,
		"up --listen here":                         `listen: "here" is not usable: an address and a port`,
		"up --authorization-mode RBCA":             "did you mean RBAC?",
		"up --enable-admission-plugins PodSecurty": `"PodSecurty" is not usable: one of the values that --help-all=admission lists; did you mean PodSecurity?`,
		"up here":                                  "up takes no arguments, got \"here\"\nRead `knarr up --help`.",
		"up --help-all=adit":                       `"adit" is no topic; did you mean audit?`,
		"up --config /nowhere":                     "configuration file: open /nowhere",
		"snapshot restore":                         "a snapshot is missing: name one, or select one by --at TIME or --at newest",
		"snapshot restore a b":                     "2 arguments are too many or too few: knarr snapshot restore [FILE|FOLDER|s3://...]",
		"image build .":                            "image build needs --tag",
		"completion bassh":                         `"bassh" is none of bash, zsh, fish, powershell; did you mean bash?`,
		"token create --ttl day":                   `--ttl: "day" is not usable: a duration with its unit`,
	} {
		t.Run(line, func(t *testing.T) {
			_, err := typed(t, strings.Fields(line)...)
			if err == nil || !strings.Contains(err.Error(), want) || Status(err) != usageStatus {
				t.Errorf("got %v with status %d, want %q with status %d", err, Status(err), want, usageStatus)
			}
		})
	}
}

func TestAWrongCommandLineExitsWithStatus2(t *testing.T) {
	cmd := program(t, "up", "--datadir", "x")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	if want := "knarr: unknown flag --datadir; did you mean --data-dir?\nRead `knarr up --help`.\n"; complaint.String() != want || out.Len() > 0 {
		t.Errorf("got %q and %q, want %q on the standard error", out.String(), complaint.String(), want)
	}
	if cmd.ProcessState.ExitCode() != usageStatus {
		t.Errorf("got %v, want status %d", err, usageStatus)
	}
}

// TestEveryFlagCanBeSetInAFile sets all flags once on the command line and once in a
// file.
func TestEveryFlagCanBeSetInAFile(t *testing.T) {
	walk(Root(), func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("config") == nil {
			return
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		// These are parts of other settings, or contain others.
		whole := map[string]bool{"bind-address": false, "secure-port": false, "v": false}
		if cmd.Flags().Lookup("listen") == nil {
			whole = nil
		}
		for name, wanted := range map[string]func(string) bool{
			"whole": func(name string) bool { _, part := whole[name]; return !part },
			"parts": func(name string) bool { _, part := whole[name]; return part },
		} {
			t.Run(strings.Join(append(path, name), " "), func(t *testing.T) { compareFile(t, path, wanted) })
		}
	})
}

func compareFile(t *testing.T, path []string, wanted func(string) bool) {
	byFile, byLine := find(t, path), find(t, path)
	var text strings.Builder
	byFile.Flags().VisitAll(func(flag *pflag.Flag) {
		_, only := flag.Annotations["knarr_command_line"]
		if only || flag.Name == "config" || flag.Name == "help" || !wanted(flag.Name) {
			return
		}
		line, yaml := sample(t, flag)
		fmt.Fprintf(&text, "%s: %s\n", flag.Name, yaml)
		if err := byLine.Flags().Set(flag.Name, line); err != nil {
			t.Fatal(err)
		}
	})
	file := filepath.Join(t.TempDir(), "knarr.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := config.ReadFile(byFile.Flags(), file); err != nil {
		t.Fatal(err)
	}
	byLine.Flags().VisitAll(func(flag *pflag.Flag) {
		if got := byFile.Flags().Lookup(flag.Name).Value.String(); got != flag.Value.String() {
			t.Errorf("%s: %q by the file, %q by the command line", flag.Name, got, flag.Value)
		}
	})
}

func find(t *testing.T, path []string) *cobra.Command {
	t.Helper()
	cmd, _, err := Root().Find(path)
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

// sample returns a value that is not the default, as on the command line and as in a file.
func sample(t *testing.T, flag *pflag.Flag) (line, yaml string) {
	t.Helper()
	allowed := config.ValuesOf(flag)
	last := func(otherwise string) string {
		if len(allowed) == 0 {
			return otherwise
		}
		if allowed[len(allowed)-1] == flag.Value.String() {
			return allowed[0]
		}
		return allowed[len(allowed)-1]
	}
	switch kind := flag.Value.Type(); kind {
	case "bool":
		return last(""), last("")
	case "int", "int32", "uint64", "level":
		return "7", "7"
	case "float32", "float64":
		return "0.01", "0.01"
	case "duration":
		return "90s", "90s"
	case "ip":
		return "127.0.0.1", `"127.0.0.1"`
	case "string":
		return last("x"), `"` + last("x") + `"`
	case "stringSlice", "stringArray":
		return last("x"), `["` + last("x") + `"]`
	case "int32Slice":
		return "23,29", "[23, 29]"
	case "stringToString":
		return "k=v", "{k: v}"
	default:
		t.Fatalf("--%s is a %s: say in this test how a file sets one", flag.Name, kind)
		return "", ""
	}
}

func TestCommandsOnlyAcceptSettingsThatTheyRead(t *testing.T) {
	for path, want := range map[string]string{
		"token create": "data-dir advertise-address config", "purge": "data-dir run-dir cgroup-root log-level config",
		"snapshot ls": strings.Join(placeFlags, " ") + " config", "version": "", "completion": "",
	} {
		var got []string
		for _, flag := range settingsOf(find(t, strings.Fields(path)), "") {
			got = append(got, flag.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("knarr %s takes %q, want %q", path, got, want)
		}
	}
}
