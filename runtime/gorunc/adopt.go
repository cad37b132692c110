//go:build inprocess

package runc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/opencontainers/runc/libcontainer"
)

// Output is where a container's first process writes. A nil file is /dev/null.
type Output struct{ Stdout, Stderr *os.File }

// outputs has the Output of containers that are about to be created, by id.
var outputs sync.Map

// SetOutput makes the next Create of the container use these files instead of its streams. The
// caller closes them afterwards.
func SetOutput(id string, output Output) { outputs.Store(id, output) }

// adopted has the ids of running containers that are about to be created and started again.
var adopted sync.Map

// adopt loads the state of a container that an earlier program of this process created.
func (r *Runc) adopt(id string) error {
	container, err := libcontainer.Load(r.Root, id)
	if err != nil {
		return fmt.Errorf("adopt container %s: %w", id, err)
	}
	created.Store(filepath.Join(r.Root, id), container)
	return nil
}

// Adopt announces that the container exists and runs. The next Create and Start of it only load its
// state.
func Adopt(id string) { adopted.Store(id, struct{}{}) }

// files are the streams of a container. Its output goes to the files of an Output.
type files struct {
	IO
	output Output
}

// Set implements IO.
func (f files) Set(command *exec.Cmd) {
	f.IO.Set(command)
	if f.output.Stdout != nil {
		command.Stdout = f.output.Stdout
	}
	if f.output.Stderr != nil {
		command.Stderr = f.output.Stderr
	}
}

// CloseAfterStart implements StartCloser.
func (f files) CloseAfterStart() error {
	if closer, ok := f.IO.(StartCloser); ok {
		return closer.CloseAfterStart()
	}
	return nil
}
