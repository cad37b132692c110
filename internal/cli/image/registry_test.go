package image

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func TestARegistryServesPushedImagesAndCleansUp(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	command := Command(nil)
	command.SetArgs([]string{"registry", "--listen", "127.0.0.1:0"})
	command.SetOut(writer)
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(strings.TrimSpace(line), "ready http://")

	reference, err := name.ParseReference(address + "/team/app:1")
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(reference, image); err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Get(reference); err != nil {
		t.Errorf("pull what was pushed: %v", err)
	}

	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestARegistryOnlyListensOnLoopback(t *testing.T) {
	command := Command(nil)
	command.SetArgs([]string{"registry", "--listen", "0.0.0.0:0"})
	command.SilenceErrors, command.SilenceUsage = true, true
	if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "not a loopback address") {
		t.Errorf("error %v, want one with the reason", err)
	}
}

func TestARegistryRemovesTheFoldersOfKilledOnes(t *testing.T) {
	in := t.TempDir()
	running, err := blobFolder(in)
	if err != nil {
		t.Fatal(err)
	}
	killed, err := blobFolder(in)
	if err != nil {
		t.Fatal(err)
	}
	killed.Close() // as the kernel does when it ends a process
	next, err := blobFolder(in)
	if err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[*os.File]bool{running: true, killed: false, next: true} {
		if _, err := os.Stat(folder.Name()); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", folder.Name(), err == nil, want)
		}
	}
	running.Close()
	next.Close()
}
