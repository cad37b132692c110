// Package status examines a cluster of this machine: its process, its parts and its resource usage.
package status

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/cli/logs"
	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/version"
)

// Health is the health of a part.
type Health string

// A part is healthy, unhealthy, or not visible to this user.
const (
	Fine    Health = "ok"
	Bad     Health = "failing"
	Unknown Health = "unknown"
)

// Part is one part of a cluster.
type Part struct {
	Name   string `json:"name"`
	Health Health `json:"health"`
	Text   string `json:"text"`
}

// Process is the resource usage of a process.
type Process struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// RSS and Private are bytes of memory, with and without the pages of the program.
	RSS     int64 `json:"rssBytes"`
	Private int64 `json:"privateBytes"`
}

// Disk is the usage of the data folder and of its file system, in bytes.
type Disk struct {
	Folder int64 `json:"folderBytes"`
	// Partial means that the folder was too large to be summed up within the time limit; Folder is
	// the sum so far.
	Partial bool  `json:"partial,omitempty"`
	Free    int64 `json:"freeBytes"`
	Total   int64 `json:"totalBytes"`
}

// Certificate is a certificate of the data folder.
type Certificate struct {
	Name    string    `json:"name"`
	Expires time.Time `json:"expires"`
}

// Pods counts pods by phase: for a server all pods of the cluster, for a node its own pods.
type Pods struct {
	Total     int `json:"total"`
	Running   int `json:"running"`
	Pending   int `json:"pending"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
}

// Nodes counts the cluster's nodes.
type Nodes struct {
	Total int `json:"total"`
	Ready int `json:"ready"`
}

// Report is the content of `knarr status`.
type Report struct {
	Name       string         `json:"name"`
	DataDir    string         `json:"dataDir"`
	Role       string         `json:"role"`
	State      clusters.State `json:"state"`
	Healthy    bool           `json:"healthy"`
	Since      time.Time      `json:"since"`
	Cause      string         `json:"cause,omitempty"`
	Rebooted   bool           `json:"rebooted,omitempty"`
	PID        int            `json:"pid,omitempty"`
	Detached   bool           `json:"detached"`
	Version    string         `json:"version"`
	Kubernetes string         `json:"kubernetes"`
	// Installed is this binary's version if the running process has another one.
	Installed  string    `json:"installed,omitempty"`
	URL        string    `json:"url,omitempty"`
	Others     string    `json:"urlForOthers,omitempty"`
	Kubeconfig string    `json:"kubeconfig,omitempty"`
	NodeName   string    `json:"nodeName,omitempty"`
	Address    string    `json:"nodeAddress,omitempty"`
	Log        string    `json:"log,omitempty"`
	LogTail    []string  `json:"logTail,omitempty"`
	Parts      []Part    `json:"parts,omitempty"`
	Processes  []Process `json:"processes,omitempty"`
	Disk       Disk      `json:"disk"`
	Nodes      *Nodes    `json:"nodes,omitempty"`
	// Members are the servers that hold the store, if there are several.
	Members    []member.Member `json:"members,omitempty"`
	Pods       *Pods           `json:"pods,omitempty"`
	Containers int             `json:"containers"`
	Certs      []Certificate   `json:"certificates,omitempty"`
	Next       []string        `json:"next,omitempty"`
}

// Timeout is the time limit for each part.
const Timeout = 5 * time.Second

// expiresSoon is how long before its expiry a certificate is reported.
const expiresSoon = 30 * 24 * time.Hour

// Collect reports the current state of a cluster.
func Collect(ctx context.Context, r *clusters.Record, now time.Time) *Report {
	state := r.State()
	report := &Report{
		Name: r.Name, DataDir: r.DataDir, Role: r.Role, State: state, Since: r.Since(), Cause: r.Cause, Detached: r.Detached,
		Version: r.Version, Kubernetes: version.Kubernetes, URL: r.URL(), NodeName: r.NodeName, Disk: disk(r.DataDir), Certs: certificates(r.DataDir),
		Containers: containers(r.RunDir),
	}
	if version.Current().Knarr != r.Version {
		report.Installed = version.Current().Knarr
	}
	if r.HasServer() {
		report.Kubeconfig, report.Others = r.Kubeconfig(), r.URLForOthers()
	}
	if r.HasNode() {
		report.Address = r.AdvertiseAddress
	} else {
		report.NodeName = ""
	}
	if r.Detached {
		report.Log = r.Log()
	}
	if !r.Alive() {
		report.Rebooted = r.Rebooted()
		if state != clusters.Stopped && r.Detached {
			report.LogTail = logs.Tail(r.Log(), 10)
		}
		return report
	}
	report.PID = r.PID
	report.Processes = processes(r)
	report.look(ctx, r)
	report.Parts = append(report.Parts, certificatePart(report.Certs, now), diskPart(report.Disk))
	report.Healthy = state == clusters.Running
	for _, part := range report.Parts {
		if part.Health == Bad {
			report.Healthy = false
		}
	}
	return report
}

func (r *Report) part(name string, health Health, text string) {
	r.Parts = append(r.Parts, Part{name, health, text})
}

// containers counts the containers of which the included runtime has a state, without pods'
// sandboxes if they can be distinguished.
func containers(runDir string) int {
	if runDir == "" {
		return 0
	}
	found, _ := filepath.Glob(filepath.Join(runDir, "runc", "*", "*"))
	return len(found)
}

// readable reports whether this user may read a file.
func readable(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

// oneLine puts an error on one line.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
