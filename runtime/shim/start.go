package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// File descriptors that detach.c leaves open.
const (
	socketFile = 3
	readyFile  = 4
	stateFile  = readyFile // later: where sleep.c finds the state
)

// sandboxOf is the annotation that names the pod's sandbox. Containers of one pod share a shim.
const sandboxOf = "io.kubernetes.cri.sandbox-id"

// start answers containerd's request for a shim. If the state is not nil, this process is the shim
// from now on. Its socket is file descriptor 3.
func start(args []string, in io.Reader, out io.Writer) (*state, error) {
	if !detached() {
		return nil, errors.New("cannot fork")
	}
	params, debug, err := request(args, in)
	if err != nil {
		return nil, err
	}
	ctx := namespaces.WithNamespace(context.Background(), params.Namespace)
	pod, err := podOf("config.json", params.InstanceID)
	if err != nil {
		return nil, err
	}
	address, err := shim.CreateSocketAddress(ctx, params.GetSocketDir(), params.ContainerdGrpcAddress, pod, false)
	if err != nil {
		return nil, err
	}
	listener, err := listen(address)
	if err != nil {
		return nil, fmt.Errorf("create new shim socket: %w", err)
	}
	if listener != nil {
		err := errors.Join(handOver(listener), linkSocketFolder(params.GetSocketDir()), shim.AdjustOOMScore(os.Getpid()))
		if err != nil {
			_ = shim.RemoveSocket(address)
			return nil, err
		}
	}
	answer, err := proto.Marshal(&bootapi.BootstrapResult{Version: 3, Protocol: "ttrpc", Address: address})
	if err != nil {
		return nil, err
	}
	if _, err := out.Write(answer); err != nil {
		return nil, err
	}
	if err := closePipes(); err != nil || listener == nil {
		return nil, err
	}
	return &state{Namespace: params.Namespace, ID: params.InstanceID, Address: params.ContainerdGrpcAddress, Socket: address, Debug: debug}, nil
}

// request parses containerd's request. Standard input repeats the arguments and adds more.
func request(args []string, in io.Reader) (params *bootapi.BootstrapParams, debug bool, err error) {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	id, namespace := flags.String("id", "", ""), flags.String("namespace", "", "")
	flags.BoolVar(&debug, "debug", false, "")
	for _, other := range []string{"bundle", "address", "publish-binary"} {
		flags.String(other, "", "")
	}
	if err := flags.Parse(args); err != nil {
		return nil, false, err
	}
	content, err := io.ReadAll(io.LimitReader(in, 10<<20))
	if err != nil {
		return nil, false, fmt.Errorf("read standard input: %w", err)
	}
	params = &bootapi.BootstrapParams{}
	if err := proto.Unmarshal(content, params); err != nil {
		return nil, false, fmt.Errorf("bootstrap parameters: %w", err)
	}
	if params.InstanceID != *id || params.Namespace != *namespace || *id == "" {
		return nil, false, fmt.Errorf("bootstrap parameters are of %q in %q, the arguments of %q in %q", params.InstanceID, params.Namespace, *id, *namespace)
	}
	return params, debug, nil
}

// podOf returns the id of the container's sandbox, or the container's own id.
func podOf(path, id string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(content, &spec); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if sandbox := spec.Annotations[sandboxOf]; sandbox != "" {
		return sandbox, nil
	}
	return id, nil
}

// listen opens the pod's socket. It returns nil if a living shim has it.
func listen(address string) (*net.UnixListener, error) {
	listener, err := shim.NewSocket(address)
	if !shim.SocketEaddrinuse(err) {
		return listener, err
	}
	if shim.CanConnect(address) {
		return nil, nil
	}
	if err := shim.RemoveSocket(address); err != nil { // left by a killed shim
		return nil, err
	}
	return shim.NewSocket(address)
}

// handOver makes the listener file descriptor 3, where the shim's server expects it.
func handOver(listener *net.UnixListener) error {
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	file, err := listener.File()
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Dup3(int(file.Fd()), socketFile, unix.O_CLOEXEC)
}

// linkSocketFolder writes the link through which the shim's server finds the folder of its socket
// when it ends.
func linkSocketFolder(socketDir string) error {
	if socketDir == "" {
		return errors.New("no folder for sockets is given")
	}
	if err := os.Remove("s"); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.Symlink(socketDir, "s")
}

// closePipes closes the pipes to containerd. containerd has its answer once the first process ends
// and no process holds the pipes. The file descriptor of the pipe to the first process stays in
// use, for the state.
func closePipes() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for standard := range 3 {
		if err := unix.Dup3(int(null.Fd()), standard, 0); err != nil {
			return err
		}
	}
	if _, err := unix.Write(readyFile, []byte{0}); err != nil {
		return err
	}
	return unix.Dup3(int(null.Fd()), stateFile, unix.O_CLOEXEC)
}
