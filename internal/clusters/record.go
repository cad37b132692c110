package clusters

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/durable"
)

// File is the record's file name in the data folder.
const File = "cluster.json"

// Record describes the process that runs, or last ran, on a data folder. Every user of the machine
// can read it, so it holds no secret.
type Record struct {
	// DataDir is the absolute path of the folder that the record was read from. It is not stored,
	// because a folder may be moved.
	DataDir string `json:"-"`
	// Name is unique on this machine.
	Name string `json:"name"`
	// Role is the running command: up, server, node, apiserver or kubelet.
	Role string `json:"role"`
	// Version is knarr's.
	Version string `json:"version"`
	// PID is the process's id; 0 after a regular stop.
	PID int `json:"pid"`
	// Process identifies the process forever: the boot's id and the start time from /proc/PID/stat.
	// It distinguishes processes with a reused pid.
	Process string `json:"process,omitempty"`
	// Started is when the process started. Ready is when everything was usable for the first time.
	// Stopped is when the process ended.
	Started time.Time `json:"started,omitzero"`
	Ready   time.Time `json:"ready,omitzero"`
	Stopped time.Time `json:"stopped,omitzero"`
	// Cause is the error that ended the process. It is empty after a requested stop.
	Cause string `json:"cause,omitempty"`
	// Detached means that the log goes to DATA/knarr.log instead of a terminal.
	Detached bool `json:"detached,omitempty"`
	// Flags are the command line's flags as --name=value, without secrets and without those that
	// have a field here.
	Flags []string `json:"flags,omitempty"`

	RunDir           string `json:"runDir,omitempty"`
	CgroupRoot       string `json:"cgroupRoot,omitempty"`
	Listen           string `json:"listen,omitempty"`
	PeerListen       string `json:"peerListen,omitempty"`
	KubeletListen    string `json:"kubeletListen,omitempty"`
	NodeName         string `json:"nodeName,omitempty"`
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`
	Join             string `json:"join,omitempty"`
	RuntimeEndpoint  string `json:"runtimeEndpoint,omitempty"`

	// before is the record that Enter found.
	before *Record
}

// ErrNone means that the data folder has no record.
var ErrNone = errors.New("no cluster")

// Load reads the record of a data folder. Without a record the error is ErrNone.
func Load(dataDir string) (*Record, error) {
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dataDir, File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s", ErrNone, dataDir)
	}
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dataDir, File), err)
	}
	r.DataDir = dataDir
	if r.Name == "" {
		r.Name = filepath.Base(dataDir)
	}
	return r, nil
}

// Save writes the record into its data folder and returns when it is on disk. Everyone may read it.
func (r *Record) Save() error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(r.DataDir, "."+File+"-*")
	if err != nil {
		return fmt.Errorf("cluster record: %w", err)
	}
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = durable.Publish(f, filepath.Join(r.DataDir, File))
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return fmt.Errorf("cluster record: %w", err)
	}
	return nil
}

// State follows from a record and /proc.
type State string

// The states of a cluster's process.
const (
	Starting State = "starting" // running, not ready yet
	Running  State = "running"
	Stopped  State = "stopped" // stopped on request
	Failed   State = "failed"  // ended with an error, which is in the record
	// Crashed means that it ended without updating the record: killed, or with the machine.
	Crashed State = "crashed"
)

// State compares the record with /proc.
func (r *Record) State() State {
	switch {
	case r.PID != 0 && r.alive() && r.Ready.IsZero():
		return Starting
	case r.PID != 0 && r.alive():
		return Running
	case r.PID != 0:
		return Crashed
	case r.Cause != "":
		return Failed
	}
	return Stopped
}

// Alive reports whether the process runs.
func (r *Record) Alive() bool { return r.PID != 0 && r.alive() }

func (r *Record) alive() bool {
	identity, err := Identity(r.PID)
	return err == nil && identity == r.Process
}

// HasServer reports whether the process includes an API server.
func (r *Record) HasServer() bool {
	return r.Role == "up" || r.Role == "server" || r.Role == "apiserver"
}

// HasNode reports whether the process includes a node agent.
func (r *Record) HasNode() bool { return r.Role == "up" || r.Role == "node" || r.Role == "kubelet" }

// Kubeconfig is the path of the admin's kubeconfig of a cluster with a server.
func (r *Record) Kubeconfig() string { return filepath.Join(r.DataDir, "kubeconfig") }

// Log is the path of a detached process's log.
func (r *Record) Log() string { return filepath.Join(r.DataDir, "knarr.log") }

// RuntimeLog is the path of the included containerd's log.
func (r *Record) RuntimeLog() string { return filepath.Join(r.DataDir, "log", "containerd.log") }

// URL is the API server's URL for this machine. For a node, it is the URL of the first server that
// the node was told to join.
func (r *Record) URL() string {
	if !r.HasServer() {
		first, _, _ := strings.Cut(r.Join, ",")
		return first
	}
	at, err := netip.ParseAddrPort(r.Listen)
	if err != nil {
		return ""
	}
	host := at.Addr()
	if host.IsUnspecified() {
		host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return "https://" + netip.AddrPortFrom(host, at.Port()).String()
}

// Since is when the current state began. For a crash it is the last change of a file that a running
// process writes often.
func (r *Record) Since() time.Time {
	switch r.State() {
	case Starting, Running:
		return r.Started
	case Crashed:
		return r.lastSign()
	}
	return r.Stopped
}

func (r *Record) lastSign() time.Time {
	last := r.Started
	if r.Ready.After(last) {
		last = r.Ready
	}
	files, _ := filepath.Glob(filepath.Join(r.DataDir, "etcd", "member", "wal", "*"))
	for _, file := range append(files, r.Log(), r.RuntimeLog(), filepath.Join(r.DataDir, "etcd", "member", "snap", "db")) {
		if info, err := os.Stat(file); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// Rebooted reports whether the machine has restarted since the process started.
func (r *Record) Rebooted() bool {
	boot, err := bootID()
	return err == nil && r.Process != "" && !hasBoot(r.Process, boot)
}

// String describes the cluster for messages: its name, its role and its data folder.
func (r *Record) String() string {
	s := fmt.Sprintf("%s (%s, data folder %s", r.Name, r.Role, r.DataDir)
	if r.PID != 0 {
		s += ", process " + strconv.Itoa(r.PID)
	}
	return s + ")"
}

// URLForOthers is the API server's URL for other machines. It is empty if the server listens on
// loopback only.
func (r *Record) URLForOthers() string {
	at, err := netip.ParseAddrPort(r.Listen)
	if err != nil || at.Addr().IsLoopback() {
		return ""
	}
	host := at.Addr()
	if advertised, err := netip.ParseAddr(r.AdvertiseAddress); err == nil && host.IsUnspecified() {
		host = advertised
	}
	if host.IsLoopback() || host.IsUnspecified() {
		return ""
	}
	return "https://" + netip.AddrPortFrom(host, at.Port()).String()
}
