package controlplane

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/member"
)

// serveServers answers with the cluster's keys and settings. The caller is authorized for the path:
// it has a server's token or is an administrator.
func (s *Server) serveServers(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "method not allowed: POST", http.StatusMethodNotAllowed)
		return
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, member.MaxJoinRequest))
	if err != nil {
		http.Error(w, "the request is larger than 16 KiB", http.StatusRequestEntityTooLarge)
		return
	}
	request, err := member.ParseJoinRequest(data)
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
func (s *Server) joinAnswer() (member.JoinAnswer, error) {
	answer := member.JoinAnswer{Files: map[string][]byte{}, Settings: s.cfg.Shared(), Embedded: s.embedded()}
	files := map[string]string{}
	for _, name := range member.SharedFiles {
		files[name] = s.cfg.Path("pki", name)
	}
	if answer.Embedded {
		for _, name := range member.PeerFiles {
			files[name] = s.cfg.Path("pki", name)
		}
	}
	if file := s.cfg.APIServer.EncryptionConfig; file != "" {
		files[member.EncryptionFile] = file
	}
	accounts := &s.cfg.APIServer.ServiceAccounts
	if accounts.SigningKeyFile != "" {
		files["sa.key"] = accounts.SigningKeyFile
	}
	for _, name := range member.CrossFiles {
		files[name] = s.cfg.Path("pki", name)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data, err := os.ReadFile(files[name])
		if errors.Is(err, fs.ErrNotExist) && slices.Contains(member.CrossFiles, name) {
			continue
		}
		if err != nil {
			return member.JoinAnswer{}, err
		}
		answer.Files[name] = data
	}
	if accounts.SigningKeyFile != "" || len(accounts.KeyFiles) > 0 {
		keys, err := s.keys.ServiceAccount.Keys().With(accounts.SigningKeyFile, accounts.KeyFiles)
		if err != nil {
			return member.JoinAnswer{}, err
		}
		if answer.Files["sa.pub"], err = keys.Bundle(); err != nil {
			return member.JoinAnswer{}, err
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

// apiURL is the URL at which other machines reach this API server.
func (s *Server) apiURL() string {
	host := localAddress(s.cfg.Listen)
	if at, err := netip.ParseAddrPort(s.cfg.Listen); err == nil && at.Addr().IsUnspecified() {
		host = s.cfg.AdvertiseAddress
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(s.port))
}
