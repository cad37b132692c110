package controlplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/version"
)

// ServersPath is the path at which a machine with a server's token fetches the cluster's keys and
// settings. RBAC allows it to the group of such tokens.
const ServersPath = "/knarr/v1/servers"

// Limits of the request and of its answer, in bytes.
const (
	maxJoinRequest = 16 << 10
	maxJoinAnswer  = 4 << 20
)

// JoinRequest is sent by a machine that becomes a server.
type JoinRequest struct {
	// Name is the name of the new server.
	Name string `json:"name"`
	// Kubernetes is the version of the API that the new server serves, such as v1.36.3.
	Kubernetes string `json:"kubernetes"`
}

// JoinAnswer holds all that the servers of a cluster have in common.
type JoinAnswer struct {
	// Files are the keys, by their path below the folder of keys.
	Files map[string][]byte `json:"files"`
	// Settings are the shared settings, by flag (config.Shared).
	Settings map[string][]string `json:"settings"`
	// Embedded means that the servers contain the store.
	Embedded bool `json:"embedded"`
	// Servers are URLs of API servers.
	Servers []string `json:"servers,omitempty"`
}

// EncryptionFile is the name of the cluster's encryption configuration in the folder of keys.
const EncryptionFile = "encryption.yaml"

// sharedFiles are the keys that all servers of a cluster have. Each server makes the certificates
// of its own with them.
var sharedFiles = []string{"ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub", pki.SealFile}

// crossFiles exist during a rotation of a CA: the new CA's certificate by its predecessor.
var crossFiles = []string{"ca-cross.crt", "front-proxy-ca-cross.crt", "etcd/ca-cross.crt"}

// peerFiles are the keys of the embedded store's members.
var peerFiles = []string{"etcd/ca.crt", "etcd/ca.key"}

var serverName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// parseJoinRequest parses a request from an untrusted sender.
func parseJoinRequest(data []byte) (JoinRequest, error) {
	var r JoinRequest
	if err := parseStrictly(data, &r); err != nil {
		return r, err
	}
	if !serverName.MatchString(r.Name) {
		return r, fmt.Errorf("name: %q is not usable: lower-case letters, digits, '-' and '.', at most 253", short(r.Name))
	}
	if err := compatible(r.Kubernetes); err != nil {
		return r, fmt.Errorf("kubernetes: %w", err)
	}
	return r, nil
}

// parseStrictly parses one JSON object without unknown fields.
func parseStrictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("the request is not usable: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the request is not usable: more than one JSON object")
	}
	return nil
}

// short limits text of unknown length for a message.
func short(text string) string { return text[:min(len(text), 80)] }

var minorVersion = regexp.MustCompile(`^v1\.([0-9]{1,3})\.`)

// compatible refuses servers whose minor version is more than one away, as upstream's skew policy.
func compatible(kubernetes string) error {
	own, _ := strconv.Atoi(version.Minor)
	match := minorVersion.FindStringSubmatch(kubernetes)
	if match == nil {
		return fmt.Errorf("%q is not usable: a version such as %s", short(kubernetes), version.Kubernetes)
	}
	if theirs, _ := strconv.Atoi(match[1]); theirs < own-1 || theirs > own+1 {
		return fmt.Errorf("%q is not usable: this server has %s, and servers of a cluster are at most one minor version apart", short(kubernetes), version.Kubernetes)
	}
	return nil
}

// Check refuses an answer whose files are not those of a cluster's keys.
func (a JoinAnswer) Check() error {
	wanted := slices.Clone(sharedFiles)
	if a.Embedded {
		wanted = append(wanted, peerFiles...)
	}
	for _, name := range wanted {
		if len(a.Files[name]) == 0 {
			return fmt.Errorf("the server has sent no %s", name)
		}
	}
	for name := range a.Files {
		if !slices.Contains(wanted, name) && !slices.Contains(crossFiles, name) && name != EncryptionFile {
			return fmt.Errorf("the server has sent the unknown file %q; is its knarr newer than this one?", short(name))
		}
	}
	return nil
}

// serveServers answers with the cluster's keys and settings. The caller is authorized for the path:
// it has a server's token or is an administrator.
func (s *Server) serveServers(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "method not allowed: POST", http.StatusMethodNotAllowed)
		return
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJoinRequest))
	if err != nil {
		http.Error(w, "the request is larger than 16 KiB", http.StatusRequestEntityTooLarge)
		return
	}
	request, err := parseJoinRequest(data)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.members != nil {
		if err := s.nameIsFree(r.Context(), request.Name); err != nil {
			answerError(w, err)
			return
		}
	}
	answer, err := s.joinAnswer()
	if err == nil {
		answer.Servers, err = s.serverURLs(r.Context())
	}
	if err != nil {
		s.log.Error("cannot answer a server that joins", "component", "apiserver", "server", request.Name, "err", err)
		http.Error(w, "the keys cannot be read; the server's log has the reason", http.StatusInternalServerError)
		return
	}
	s.log.Info("a server has fetched the cluster's keys", "component", "apiserver", "server", request.Name, "from", r.RemoteAddr)
	answerJSON(w, answer)
}

// joinAnswer reads the keys from their files, so that it includes a rotation's newest ones.
func (s *Server) joinAnswer() (JoinAnswer, error) {
	answer := JoinAnswer{Files: map[string][]byte{}, Settings: s.cfg.Shared(), Embedded: s.embedded()}
	files := map[string]string{}
	for _, name := range sharedFiles {
		files[name] = s.cfg.Path("pki", name)
	}
	if answer.Embedded {
		for _, name := range peerFiles {
			files[name] = s.cfg.Path("pki", name)
		}
	}
	if file := s.cfg.APIServer.EncryptionConfig; file != "" {
		files[EncryptionFile] = file
	}
	accounts := &s.cfg.APIServer.ServiceAccounts
	if accounts.SigningKeyFile != "" {
		files["sa.key"] = accounts.SigningKeyFile
	}
	for _, name := range crossFiles {
		files[name] = s.cfg.Path("pki", name)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data, err := os.ReadFile(files[name])
		if errors.Is(err, fs.ErrNotExist) && slices.Contains(crossFiles, name) {
			continue
		}
		if err != nil {
			return JoinAnswer{}, err
		}
		answer.Files[name] = data
	}
	if accounts.SigningKeyFile != "" || len(accounts.KeyFiles) > 0 {
		keys, err := s.keys.ServiceAccount.Keys().With(accounts.SigningKeyFile, accounts.KeyFiles)
		if err != nil {
			return JoinAnswer{}, err
		}
		if answer.Files["sa.pub"], err = keys.Bundle(); err != nil {
			return JoinAnswer{}, err
		}
	}
	return answer, nil
}

// WriteKeys writes the cluster's keys to an empty or missing folder: all of them, or none. They are
// on disk when it returns.
func WriteKeys(dir string, files map[string][]byte) error {
	aside := dir + ".joining"
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(aside, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := durable.WriteFile(path, files[name]); err != nil {
			return err
		}
	}
	failpoint.Here("keys-written")
	return errors.Join(durable.SyncFolder(aside), os.Rename(aside, dir), durable.SyncFolder(filepath.Dir(dir)))
}

// answerJSON sends an answer that no cache may keep.
func answerJSON(w http.ResponseWriter, answer any) {
	data, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(data)
}

// exists reports whether there is a file or folder.
func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// apiURL is the URL at which other machines reach this API server.
func (s *Server) apiURL() string {
	host := localAddress(s.cfg.Listen)
	if at, err := netip.ParseAddrPort(s.cfg.Listen); err == nil && at.Addr().IsUnspecified() {
		host = s.cfg.AdvertiseAddress
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(s.port))
}
