// Command knarr-cni is the CNI plugin of knarr's pod network. It sends the request to the node
// agent over a unix socket, as one JSON object, and prints the answer; internal/network is the
// other end. So an ADD costs one small process and a few netlink messages, and all state is in one
// place.
//
// The network configuration's "socketPath" is the path of the socket.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

type request struct {
	Command     string          `json:"command"`
	ContainerID string          `json:"containerID"`
	NetNS       string          `json:"netns"`
	IfName      string          `json:"ifName"`
	Args        string          `json:"args"`
	Config      json.RawMessage `json:"config"`
}

type reply struct {
	Code   int             `json:"code"`
	Stdout json.RawMessage `json:"stdout"`
}

// Error codes of the CNI specification.
const (
	ioFailure     = 5
	decodeFailure = 6
	tryAgainLater = 11
	notAvailable  = 50
)

// timeout is slightly less than the runtimes' timeout for plugins.
const timeout = 50 * time.Second

func main() {
	if os.Getenv("CNI_COMMAND") == "VERSION" {
		fmt.Println(`{"cniVersion":"1.1.0","supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`)
		return
	}
	config, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail("", ioFailure, fmt.Sprintf("standard input: %v", err))
	}
	var c struct {
		CNIVersion string `json:"cniVersion"`
		SocketPath string `json:"socketPath"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		fail("", decodeFailure, fmt.Sprintf("network configuration: %v", err))
	}
	if c.SocketPath == "" {
		c.SocketPath = "/run/knarr/cni.sock"
	}
	r, err := ask(c.SocketPath, request{
		Command: os.Getenv("CNI_COMMAND"), ContainerID: os.Getenv("CNI_CONTAINERID"), NetNS: os.Getenv("CNI_NETNS"),
		IfName: os.Getenv("CNI_IFNAME"), Args: os.Getenv("CNI_ARGS"), Config: config,
	})
	if err != nil {
		code := tryAgainLater
		if os.Getenv("CNI_COMMAND") == "STATUS" {
			code = notAvailable
		}
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
			if os.Getenv("CNI_COMMAND") == "DEL" {
				// A pod may end while no agent runs. The link disappears with the pod's namespace.
				// When the agent starts, it frees the addresses of attachments without a namespace.
				return
			}
			err = fmt.Errorf("%w: the node agent (knarr) is not running", err)
		}
		fail(c.CNIVersion, code, err.Error())
	}
	os.Stdout.Write(r.Stdout)
	os.Exit(r.Code)
}

func ask(path string, req request) (reply, error) {
	var r reply
	conn, err := net.DialTimeout("unix", path, timeout)
	if err != nil {
		return r, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return r, err
	}
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return r, err
	}
	return r, json.NewDecoder(conn).Decode(&r)
}

// fail prints an error in the specification's format and exits.
func fail(version string, code int, msg string) {
	if version == "" {
		version = "1.0.0"
	}
	out, _ := json.Marshal(map[string]any{"cniVersion": version, "code": code, "msg": msg})
	os.Stdout.Write(out)
	os.Exit(1)
}
