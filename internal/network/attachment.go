package network

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/network/policy"
)

// attachment is one interface of one sandbox, as stored in its file. The file is written before the
// first netlink call and removed after the last one. So a kill -9 leaves nothing in the kernel
// without a file. A file without a host link is stale: the link disappeared with the pod's network
// namespace.
type attachment struct {
	ContainerID  string        `json:"containerID"`
	IfName       string        `json:"ifName"`
	NetNS        string        `json:"netns"`
	HostLink     string        `json:"hostLink"`
	IPs          []netip.Addr  `json:"ips"`
	PodNamespace string        `json:"podNamespace,omitempty"`
	PodName      string        `json:"podName,omitempty"`
	PodUID       string        `json:"podUID,omitempty"`
	PortMappings []portMapping `json:"portMappings,omitempty"`

	saved time.Time // of the file, when it was read
}

// portMapping is one host port, in the format of the CNI convention "portMappings".
type portMapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

func attachmentKey(containerID, ifName string) string { return containerID + "." + ifName }

func (a *attachment) key() string { return attachmentKey(a.ContainerID, a.IfName) }

// forPolicies is the attachment as network policies see it.
func (a *attachment) forPolicies() policy.Attachment {
	return policy.Attachment{Key: a.key(), Namespace: a.PodNamespace, Name: a.PodName, UID: a.PodUID, Addresses: a.IPs}
}

// hostLinkName derives a stable name, so that a repeated ADD, or a DEL without a file, finds the
// link.
func hostLinkName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hostLinkPrefix + hex.EncodeToString(sum[:5])
}

// isHostLink distinguishes pods' links from the gateway and overlay links.
func isHostLink(name string) bool {
	rest, ok := strings.CutPrefix(name, hostLinkPrefix)
	if !ok || len(rest) != 10 {
		return false
	}
	_, err := hex.DecodeString(rest)
	return err == nil
}

// attachmentFiles is the folder of attachment files.
type attachmentFiles struct{ dir string }

func (f attachmentFiles) path(key string) string {
	return filepath.Join(f.dir, filepath.Base(key)+".json")
}

// load reads all attachments. It removes unreadable files: a power cut, which also ended the pods,
// can leave torn files.
func (f attachmentFiles) load() (map[string]*attachment, error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return nil, fmt.Errorf("attachments: %w", err)
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("attachments: %w", err)
	}
	all := map[string]*attachment{}
	for _, e := range entries {
		name := filepath.Join(f.dir, e.Name())
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("attachments: %w", err)
		}
		var a attachment
		if !strings.HasSuffix(e.Name(), ".json") || json.Unmarshal(data, &a) != nil || a.ContainerID == "" {
			os.Remove(name)
			continue
		}
		if info, err := e.Info(); err == nil {
			a.saved = info.ModTime()
		}
		all[a.key()] = &a
	}
	return all, nil
}

// byAge sorts attachments, the oldest first.
func byAge(all map[string]*attachment) []*attachment {
	return slices.SortedFunc(maps.Values(all), func(a, b *attachment) int { return a.saved.Compare(b.saved) })
}

// save replaces the file atomically. It does not call fsync, because a power cut ends the
// attachment too.
func (f attachmentFiles) save(a *attachment) error {
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("attachment %s: %w", a.key(), err)
	}
	path := f.path(a.key())
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("attachment %s: %w", a.key(), err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("attachment %s: %w", a.key(), err)
	}
	return nil
}

func (f attachmentFiles) remove(key string) error {
	if err := os.Remove(f.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("attachment %s: %w", key, err)
	}
	return nil
}
