package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// cniRequest is the plugin's request: one JSON object per connection. Config is the plugin's
// standard input.
type cniRequest struct {
	Command     string          `json:"command"`
	ContainerID string          `json:"containerID"`
	NetNS       string          `json:"netns"`
	IfName      string          `json:"ifName"`
	Args        string          `json:"args"`
	Config      json.RawMessage `json:"config"`
}

// cniReply is the answer: standard output and exit code of the plugin.
type cniReply struct {
	Code   int             `json:"code"`
	Stdout json.RawMessage `json:"stdout,omitempty"`
}

// Error codes of the CNI specification 1.1.
const (
	cniUnsupportedField = 2
	cniInvalidEnv       = 4
	cniDecoding         = 6
	cniTryAgainLater    = 11
	cniNotAvailable     = 50
	cniFailed           = 100
)

// cniError is an error with a code of the specification. Other errors get the code cniFailed.
type cniError struct {
	code int
	err  error
}

func (e *cniError) Error() string { return e.err.Error() }
func (e *cniError) Unwrap() error { return e.err }

func cniErrorf(code int, format string, args ...any) error {
	return &cniError{code: code, err: fmt.Errorf(format, args...)}
}

// cniConfig is the part of the network configuration that knarr reads.
type cniConfig struct {
	CNIVersion    string `json:"cniVersion"`
	Name          string `json:"name"`
	RuntimeConfig struct {
		PortMappings []portMapping `json:"portMappings"`
	} `json:"runtimeConfig"`
	ValidAttachments []struct {
		ContainerID string `json:"containerID"`
		IfName      string `json:"ifname"`
	} `json:"cni.dev/valid-attachments"`
}

// cniResult is a success result of the specification's versions 1.0 and 1.1.
type cniResult struct {
	CNIVersion string         `json:"cniVersion"`
	Interfaces []cniInterface `json:"interfaces"`
	IPs        []cniIP        `json:"ips"`
	Routes     []cniRoute     `json:"routes"`
	DNS        struct{}       `json:"dns"`
}

type cniInterface struct {
	Name    string `json:"name"`
	MAC     string `json:"mac"`
	Sandbox string `json:"sandbox,omitempty"`
	MTU     int    `json:"mtu,omitempty"`
}

type cniIP struct {
	Interface int    `json:"interface"`
	Address   string `json:"address"`
	Gateway   string `json:"gateway"`
}

type cniRoute struct {
	Dst string `json:"dst"`
	GW  string `json:"gw"`
}

func (r *cniRequest) config() (cniConfig, error) {
	var c cniConfig
	if err := json.Unmarshal(r.Config, &c); err != nil {
		return c, cniErrorf(cniDecoding, "network configuration: %w", err)
	}
	return c, nil
}

// podArgs parses CNI_ARGS as set by Kubernetes' runtimes.
func (r *cniRequest) podArgs() map[string]string {
	args := map[string]string{}
	for pair := range strings.SplitSeq(r.Args, ";") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			args[k] = v
		}
	}
	return args
}

// validMappings drops port mappings without a host port and refuses invalid ones.
func validMappings(in []portMapping) ([]portMapping, error) {
	var out []portMapping
	for _, m := range in {
		if m.HostPort == 0 {
			continue
		}
		if m.Protocol == "" {
			m.Protocol = "tcp"
		}
		m.Protocol = strings.ToLower(m.Protocol)
		if _, ok := protocolNumbers[m.Protocol]; !ok {
			return nil, cniErrorf(cniUnsupportedField, "portMappings: protocol %q: want tcp, udp or sctp", m.Protocol)
		}
		if m.HostIP != "" {
			if _, err := netip.ParseAddr(m.HostIP); err != nil {
				return nil, cniErrorf(cniUnsupportedField, "portMappings: hostIP %q: %w", m.HostIP, err)
			}
		}
		out = append(out, m)
	}
	return out, nil
}

func resultOf(version string, a *attachment, p plumbing) cniResult {
	r := cniResult{CNIVersion: version, Interfaces: []cniInterface{
		{Name: a.HostLink, MAC: hostMAC(a.IPs[0]).String()},
		{Name: a.IfName, MAC: podMAC(a.IPs[0]).String(), Sandbox: a.NetNS},
	}}
	if strings.HasPrefix(version, "1.1") {
		r.Interfaces[0].MTU, r.Interfaces[1].MTU = p.mtu, p.mtu
	}
	for _, ip := range a.IPs {
		gw := p.gatewayFor(ip).String()
		r.IPs = append(r.IPs, cniIP{Interface: 1, Address: hostNet(ip).String(), Gateway: gw})
		r.Routes = append(r.Routes, cniRoute{Dst: anyNet(ip).String(), GW: gw})
	}
	return r
}

// errorReply formats an error as the specification requires.
func errorReply(version string, err error) cniReply {
	code := cniFailed
	var e *cniError
	if errors.As(err, &e) {
		code = e.code
	}
	if version == "" {
		version = "1.0.0"
	}
	out, _ := json.Marshal(map[string]any{"cniVersion": version, "code": code, "msg": err.Error()})
	return cniReply{Code: 1, Stdout: out}
}
