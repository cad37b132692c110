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
	"time"

	"github.com/knarr-project/knarr/internal/durable"
)

// File is the record's name in the data folder.
const File = "cluster.json"

// Record says what runs, or ran last, on a data folder. It holds no secret: every user of the
// machine may read it.
type Record struct {
	// DataDir is the folder that the record was read from, absolute. It is not stored: a folder may
	// be moved.
	DataDir string `json:"-"`
	// Name is unique on this machine.
	Name string `json:"name"`
	// Role is the command that runs: up, server, node, apiserver or kubelet.
	Role string `json:"role"`
	// Version is knarr's.
	Version string `json:"version"`
	// PID is the process's; 0 after it has ended in good order.
	PID int `json:"pid"`
	// Process identifies the process for ever: the boot's id and the start time in /proc/PID/stat.
	// A reused pid has another one.
	Process string `json:"process,omitempty"`
	// Started is when the process began, Ready when everything was usable for the first time,
	// Stopped when the process ended.
	Started time.Time `json:"started,omitzero"`
	Ready   time.Time `json:"ready,omitzero"`
	Stopped time.Time `json:"stopped,omitzero"`
	// Cause is the error that ended the process; empty after a stop that was asked for.
	Cause string `json:"cause,omitempty"`
	// Detached: the log goes to DATA/knarr.log, not to a terminal.
	Detached bool `json:"detached,omitempty"`
	// Flags are those of the command line that are no secrets, as --name=value, without the ones
	// that have a field here.
	Flags []string `json:"flags,omitempty"`

	RunDir           string `json:"runDir,omitempty"`
	CgroupRoot       string `json:"cgroupRoot,omitempty"`
	Listen           string `json:"listen,omitempty"`
	KubeletListen    string `json:"kubeletListen,omitempty"`
	NodeName         string `json:"nodeName,omitempty"`
	AdvertiseAddress string `json:"advertiseAddress,omitempty"`
	Join             string `json:"join,omitempty"`
	RuntimeEndpoint  string `json:"runtimeEndpoint,omitempty"`

	// before is the record that Enter found.
	before *Record
}

// ErrNone: there is no record in the data folder.
var ErrNone = errors.New("no cluster")

// Load reads the record of a data folder. Without one the error is ErrNone.
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

// State is what a record and /proc say together.
type State string

// The states of a cluster's process.
const (
	Starting State = "starting" // it runs and is not ready yet
	Running  State = "running"
	Stopped  State = "stopped" // somebody stopped it
	Failed   State = "failed"  // it ended with an error, which is in the record
	Crashed  State = "crashed" // it ended without a word: killed, or the machine went down
)

// State looks at /proc.
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

// Alive says that the process runs.
func (r *Record) Alive() bool { return r.PID != 0 && r.alive() }

func (r *Record) alive() bool {
	identity, err := Identity(r.PID)
	return err == nil && identity == r.Process
}

// HasServer says that an API server is part of the process.
func (r *Record) HasServer() bool {
	return r.Role == "up" || r.Role == "server" || r.Role == "apiserver"
}

// HasNode says that a node agent is part of the process.
func (r *Record) HasNode() bool { return r.Role == "up" || r.Role == "node" || r.Role == "kubelet" }

// Kubeconfig is the admin's, of a cluster with a server.
func (r *Record) Kubeconfig() string { return filepath.Join(r.DataDir, "kubeconfig") }

// Log is where a detached process logs.
func (r *Record) Log() string { return filepath.Join(r.DataDir, "knarr.log") }

// RuntimeLog is where the included containerd logs.
func (r *Record) RuntimeLog() string { return filepath.Join(r.DataDir, "log", "containerd.log") }

// URL is the API server's, as this machine reaches it; for a node, the URL of the server that it
// has joined.
func (r *Record) URL() string {
	if !r.HasServer() {
		return r.Join
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

// Since is when the present state began. For a crash it is the last sign of life: the newest change
// of a file that a running process writes often.
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

// Rebooted says that the machine has started again since the process began.
func (r *Record) Rebooted() bool {
	boot, err := bootID()
	return err == nil && r.Process != "" && !hasBoot(r.Process, boot)
}

// String names the cluster and its process for messages: knarr up, process 123, on /var/lib/knarr.
func (r *Record) String() string {
	s := fmt.Sprintf("%s (%s, data folder %s", r.Name, r.Role, r.DataDir)
	if r.PID != 0 {
		s += ", process " + strconv.Itoa(r.PID)
	}
	return s + ")"
}

// URLForOthers is where other machines reach the API server; empty where it listens on loopback
// alone.
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
