package image

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/cri"
	"github.com/knarr-project/knarr/internal/image/registry"
)

// startRuntime starts the test's own containerd, which the test's end purges.
func startRuntime(t *testing.T, mirrors map[string][]string) (*Client, *cri.Runtime) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	config := cri.Config{DataDir: t.TempDir(), Mirrors: mirrors, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		purge, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := cri.Purge(purge, config); err != nil {
			t.Error(err)
		}
	})
	runtime, err := cri.Start(ctx, config)
	if err != nil {
		cancel()
		if errors.Is(err, cri.ErrNoRuntime) {
			t.Skip("built without the runtime programs")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); runtime.Wait() })
	client, err := Dial(runtime.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client, runtime
}

func names(t *testing.T, client *Client) []string {
	t.Helper()
	images, err := client.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, image := range images {
		names = append(names, image.Names...)
	}
	slices.Sort(names)
	return names
}

// runnable gives a random image this machine's platform.
func runnable(t *testing.T, image v1.Image) v1.Image {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = platform()
	if image, err = mutate.ConfigFile(image, file); err != nil {
		t.Fatal(err)
	}
	return image
}

func randomImage(t *testing.T, layers int64) v1.Image {
	t.Helper()
	image, err := random.Image(20_000, layers)
	if err != nil {
		t.Fatal(err)
	}
	return runnable(t, image)
}

func TestArchivesOfEveryKindAreLoadedUnderTheirFullNames(t *testing.T) {
	client, _ := startRuntime(t, nil)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }

	docker := map[name.Reference]v1.Image{}
	docker[name.MustParseReference("app:1")] = randomImage(t, 2)
	docker[name.MustParseReference("registry.example.com/team/app:2")] = randomImage(t, 2)
	if err := tarball.MultiRefWriteToFile(at("docker.tar"), docker); err != nil {
		t.Fatal(err)
	}
	one := map[name.Reference]v1.Image{name.MustParseReference("zipped:1"): randomImage(t, 1)}
	var plain bytes.Buffer
	if err := tarball.MultiRefWrite(one, &plain); err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	_, _ = writer.Write(plain.Bytes())
	writer.Close()
	if err := os.WriteFile(at("docker.tar.gz"), zipped.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var oci bytes.Buffer
	if err := WriteArchive(&oci, randomImage(t, 3), "oci-app"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("oci.tar"), oci.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	folder, err := layout.Write(at("layout"), mutate.AppendManifests(emptyIndex(t)))
	if err != nil {
		t.Fatal(err)
	}
	if err := folder.AppendImage(randomImage(t, 1)); err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		file, name string
		want       []string
	}{
		{file: "docker.tar", want: []string{"docker.io/library/app:1", "registry.example.com/team/app:2"}},
		{file: "docker.tar.gz", want: []string{"docker.io/library/zipped:1"}},
		{file: "oci.tar", want: []string{"docker.io/library/oci-app:latest"}},
		// no blob is sent
		{file: "oci.tar", name: "renamed:3", want: []string{"docker.io/library/renamed:3"}},
		{file: "layout", name: "ghcr.io/x/y:z", want: []string{"ghcr.io/x/y:z"}},
	} {
		began := time.Now()
		got, err := client.LoadFile(t.Context(), at(test.file), LoadOptions{Name: test.name})
		if err != nil {
			t.Errorf("%s: %v", test.file, err)
			continue
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: loaded %v, want %v", test.file, got, test.want)
		}
		t.Logf("%s: %v", test.file, time.Since(began))
		for _, name := range test.want {
			if !slices.Contains(names(t, client), name) {
				t.Errorf("%s: %s is not listed", test.file, name)
			}
		}
	}
	if _, err := client.LoadFile(t.Context(), at("layout"), LoadOptions{}); err == nil || !strings.Contains(err.Error(), "without a name") {
		t.Errorf("a layout without a name gave %v", err)
	}
	if err := client.Remove(t.Context(), "oci-app"); err != nil {
		t.Error(err)
	}
	if left := names(t, client); slices.Contains(left, "docker.io/library/oci-app:latest") || !slices.Contains(left, "docker.io/library/renamed:3") {
		t.Errorf("after removing one of two names there are %v", left)
	}
}

func emptyIndex(t *testing.T) v1.ImageIndex {
	t.Helper()
	index, err := random.Index(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func TestABuiltImageRunsAndCanBeABaseAndIsPushedAndPulled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	registry, err := registry.Start(ctx, "127.0.0.1:0", t.TempDir())
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); registry.Wait() })
	client, runtime := startRuntime(t, map[string][]string{"mirrored.example.com": {"http://" + registry.Address}})
	if err := client.EnsurePause(ctx, cri.DefaultSandboxImage, func() ([]byte, error) { return runtime.Program("pause") }); err != nil {
		t.Fatal(err)
	}

	folder := t.TempDir()
	pause, err := runtime.Program("pause")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "sleeper"), string(pause), 0o700)
	built, err := Build(ctx, BuildOptions{Source: filepath.Join(folder, "sleeper"), Env: []string{"A=1"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Store(ctx, built, "sleeper:1"); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "Containerfile"), "ARG base\nFROM $base\nENV B=\"2 3\" C=${A:-none}\nCOPY data/*.txt /etc/data/\nUSER 7\n", 0o600)
	write(t, filepath.Join(folder, "data/x.txt"), "x", 0o640)
	derived, err := Build(ctx, BuildOptions{Source: folder, Args: map[string]string{"base": "sleeper:1"}, Base: client.BaseImage})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Store(ctx, derived, "mirrored.example.com/team/derived:1"); err != nil {
		t.Fatal(err)
	}
	file, err := derived.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"A=1", "B=2 3", "C=1"}; !slices.Equal(file.Config.Env[1:], want) {
		t.Errorf("environment is %q, want %q", file.Config.Env, want)
	}
	if err := client.Push(ctx, "mirrored.example.com/team/derived:1", registry.Address+"/team/derived:1"); err != nil {
		t.Fatal(err)
	}
	if err := client.Remove(ctx, "mirrored.example.com/team/derived:1"); err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.Images.PullImage(ctx, &criapi.ImageSpec{Image: "mirrored.example.com/team/derived:1"}, nil, nil); err != nil {
		t.Fatalf("pull through the mirror: %v", err)
	}
	pulled, err := client.Stored(ctx, "mirrored.example.com/team/derived:1")
	if err != nil {
		t.Fatal(err)
	}
	layers, err := pulled.Layers()
	if err != nil || len(layers) != 2 {
		t.Errorf("the pulled image has %d layers, error %v", len(layers), err)
	}
	status, err := runtime.Images.ImageStatus(ctx, &criapi.ImageSpec{Image: cri.DefaultSandboxImage}, false)
	if err != nil || status.Image == nil || !status.Image.Pinned {
		t.Errorf("the sandbox image is not pinned: %v, error %v", status, err)
	}
}

func write(t *testing.T, file, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func TestBuildOfARootFolderKeepsLinksOwnersAndLeavesDevicesOut(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "bin/tool"), "tool", 0o755)
	for _, err := range []error{
		os.Link(filepath.Join(root, "bin/tool"), filepath.Join(root, "bin/twin")),
		os.Symlink("bin/tool", filepath.Join(root, "link")),
		os.Symlink("/etc/passwd", filepath.Join(root, "outside")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	image, err := Build(t.Context(), BuildOptions{Source: root, Entrypoint: []string{"/bin/tool"}})
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, error %v", len(layers), err)
	}
	again, err := Build(t.Context(), BuildOptions{Source: root, Entrypoint: []string{"/bin/tool"}})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := image.Digest()
	if second, _ := again.Digest(); first != second {
		t.Errorf("the same folder gave %s and %s", first, second)
	}
	if got, want := entries(t, layers[0]), []string{"bin/ 5", "bin/tool 0", "bin/twin 1 bin/tool", "link 2 bin/tool", "outside 2 /etc/passwd"}; !slices.Equal(got, want) {
		t.Errorf("entries are %q, want %q", got, want)
	}
}

func TestContainerfileErrorsNameTheLineAndTheRemedy(t *testing.T) {
	for _, test := range []struct{ name, content, want string }{
		{"RUN cannot work", "FROM scratch\n\n# comment\nRUN make", "line 4: RUN: needs a running container"},
		{"no FROM", "ARG a=b", "no FROM"},
		{"an instruction before FROM", "COPY a b", "line 1: COPY: comes before FROM"},
		{"a missing file", "FROM scratch\nCOPY nothing /", "nothing: not found"},
		{"an open quote", "FROM scratch\nENV A=\"b", "a quote is not closed"},
		{"a continued last line", "FROM scratch \\", "continued by nothing"},
		{"an unknown base", "FROM debian", "no place to take the base image debian from"},
		{"escaping the folder", "FROM scratch\nCOPY ../../etc/passwd /", "etc/passwd: not found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			write(t, filepath.Join(folder, "Containerfile"), test.content, 0o600)
			if _, err := Build(t.Context(), BuildOptions{Source: folder}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}
