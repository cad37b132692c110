// Withserver FOLDER COMMAND... runs COMMAND with a KUBECONFIG for a new API server, started as
// envtest starts one. The server has the custom resources that are defined in FOLDER.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: withserver FOLDER COMMAND...")
		os.Exit(2)
	}
	err := run(os.Args[1], os.Args[2:])
	if err == nil {
		return
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		os.Exit(exit.ExitCode()) // the command has printed its error
	}
	fmt.Fprintln(os.Stderr, "withserver:", err)
	os.Exit(1)
}

// run returns when the command has ended and the server has stopped.
func run(definitions string, command []string) (err error) {
	server := &envtest.Environment{CRDDirectoryPaths: []string{definitions}, ErrorIfCRDPathMissing: true}
	defer func() {
		if stopped := server.Stop(); stopped != nil && err == nil {
			err = fmt.Errorf("stop the server: %w", stopped)
		}
	}()
	if _, err := server.Start(); err != nil {
		return fmt.Errorf("start a server: %w", err)
	}
	user, err := server.AddUser(envtest.User{Name: "withserver", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return fmt.Errorf("make a user: %w", err)
	}
	content, err := user.KubeConfig()
	if err != nil {
		return fmt.Errorf("make a kubeconfig: %w", err)
	}
	dir, err := os.MkdirTemp("", "withserver-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
