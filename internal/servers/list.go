package servers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/durable"
)

// File is the name of the stored list in a data folder.
const File = "servers.json"

const (
	// maxServers limits the list. A cluster has at most seven servers; the rest are past ones.
	maxServers = 16
	// maxFile limits the size of the file, in bytes.
	maxFile = 16 << 10
	// remembered is how long a past server is remembered.
	remembered = 90 * 24 * time.Hour
)

// List is the stored list of servers.
type List struct {
	Servers []Entry `json:"servers"`
}

// Entry is a server in the list.
type Entry struct {
	// Address is HOST:PORT.
	Address string `json:"address"`
	// Living means that the server was in the endpoints when the list was stored.
	Living bool `json:"living"`
	// Seen is when the server was last known to be in the endpoints.
	Seen time.Time `json:"seen"`
}

// ParseList reads a stored list. A list with an unusable entry is refused as a whole, since it was
// not written by Store.
func ParseList(data []byte) (List, error) {
	var l List
	if len(data) > maxFile {
		return List{}, fmt.Errorf("servers: %d bytes are too many: at most %d", len(data), maxFile)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return List{}, fmt.Errorf("servers: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return List{}, errors.New("servers: there is text after the list")
	}
	return l, l.validate()
}

func (l List) validate() error {
	if len(l.Servers) > maxServers {
		return fmt.Errorf("servers: %d entries are too many: at most %d", len(l.Servers), maxServers)
	}
	for i, e := range l.Servers {
		if err := CheckAddress(e.Address); err != nil {
			return fmt.Errorf("servers[%d].address: %w", i, err)
		}
		if slices.ContainsFunc(l.Servers[:i], func(o Entry) bool { return o.Address == e.Address }) {
			return fmt.Errorf("servers[%d].address: %q is there twice", i, e.Address)
		}
	}
	return nil
}

// CheckAddress returns an error unless the text is HOST:PORT with an IP address or a DNS name.
func CheckAddress(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("%q is not usable: HOST:PORT", text)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("%q is not usable: a port from 1 to 65535", text)
	}
	if at, err := netip.ParseAddr(host); err == nil {
		if at.IsUnspecified() || at.IsMulticast() || at.Is4In6() || net.JoinHostPort(at.String(), port) != text {
			return fmt.Errorf("%q is not usable: the address of one machine, in its short form", text)
		}
		return nil
	}
	if !isName(host) {
		return fmt.Errorf("%q is not usable: an IP address or a DNS name before the port", text)
	}
	return nil
}

// isName reports whether the text is a DNS name: labels of letters, digits, hyphens.
func isName(host string) bool {
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
				return false
			}
		}
	}
	return true
}

// Living returns the addresses of living servers.
func (l List) Living() (out []string) {
	for _, e := range l.Servers {
		if e.Living {
			out = append(out, e.Address)
		}
	}
	return out
}

// learn returns the list after the endpoints were read at now. Unusable addresses are left out.
// Living servers come first, then past ones, the last seen first.
func (l List) learn(living []string, now time.Time) List {
	var next List
	for _, address := range living {
		if CheckAddress(address) == nil && !next.has(address) && len(next.Servers) < maxServers {
			next.Servers = append(next.Servers, Entry{Address: address, Living: true, Seen: now})
		}
	}
	slices.SortFunc(next.Servers, func(a, b Entry) int { return strings.Compare(a.Address, b.Address) })
	if len(next.Servers) == 0 {
		return l // an empty list says nothing about the servers
	}
	past := slices.Clone(l.Servers)
	slices.SortStableFunc(past, func(a, b Entry) int { return b.Seen.Compare(a.Seen) })
	for _, e := range past {
		if !next.has(e.Address) && now.Sub(e.Seen) < remembered && len(next.Servers) < maxServers {
			next.Servers = append(next.Servers, Entry{Address: e.Address, Seen: e.Seen})
		}
	}
	return next
}

func (l List) has(address string) bool {
	return slices.ContainsFunc(l.Servers, func(e Entry) bool { return e.Address == address })
}

// same reports whether both lists have the same servers in the same states.
func (l List) same(o List) bool {
	return slices.EqualFunc(l.Servers, o.Servers, func(a, b Entry) bool { return a.Address == b.Address && a.Living == b.Living })
}

// Load reads the list from a file. A missing file is an empty list.
func Load(path string) (List, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return List{}, nil
	}
	if err != nil {
		return List{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return List{}, err
	}
	l, err := ParseList(data)
	if err != nil {
		return List{}, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

// Others returns the addresses in the stored list of a data folder without its own ones, living
// servers first.
func Others(dataDir string, own ...string) (others []string) {
	list, err := Load(filepath.Join(dataDir, File))
	if err != nil {
		return nil // the list only helps
	}
	for _, e := range list.Servers {
		if !slices.Contains(own, e.Address) {
			others = append(others, e.Address)
		}
	}
	return others
}

// Store writes the list and returns when it is on disk. Every user of the machine may read it,
// because it holds no secret and `knarr kubectl` needs it.
func (l List) Store(path string) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(path, append(data, '\n')); err != nil {
		return err
	}
	return os.Chmod(path, 0o644)
}
