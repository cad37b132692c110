package member

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Paths of the members of the embedded store. Access requires authorization for these paths (the
// admin has it).
const (
	Path        = "/knarr/v1/members"
	AddPath     = Path + "/add"
	PromotePath = Path + "/promote"
	RemovePath  = Path + "/remove"
)

// ServerPath is the path at which a server describes itself.
const ServerPath = "/knarr/v1/server"

// MaxRequest limits a Request in bytes, MaxJoinRequest a JoinRequest, and MaxAnswer an answer.
const (
	MaxRequest     = 4 << 10
	MaxJoinRequest = 16 << 10
	maxAnswer      = 4 << 20
)

// Member is a server that holds the store.
type Member struct {
	// ID is a hexadecimal number.
	ID string `json:"id"`
	// Name is empty until the member has started for the first time.
	Name    string `json:"name"`
	PeerURL string `json:"peerURL"`
	Learner bool   `json:"learner,omitempty"`
	Leader  bool   `json:"leader,omitempty"`
	// Self is the server that answers.
	Self bool `json:"self,omitempty"`
	// Health is "ok", or why the server does not answer.
	Health string `json:"health,omitempty"`
	// Server, Version and Size are the API server's URL, knarr's version, and the bytes of the
	// database. They are empty if the server does not answer.
	Server  string `json:"server,omitempty"`
	Version string `json:"version,omitempty"`
	Size    int64  `json:"size,omitempty"`
}

// Healthy is the Health of a server that answers.
const Healthy = "ok"

// Role is voter or learner.
func (m Member) Role() string {
	if m.Learner {
		return "learner"
	}
	return "voter"
}

// List is the answer of Path and of its changes.
type List struct {
	Members []Member `json:"members"`
	// Added is the ID of the added member.
	Added string `json:"added,omitempty"`
	// Outdated is why the list may be outdated: a majority of the voters does not answer. The
	// members are those that the answering server knows.
	Outdated string `json:"outdated,omitempty"`
}

// Request names a member. To add one, PeerURL is its address. ID, if set, is the member that
// the same machine was added as before, without ever starting its store.
type Request struct {
	Name    string `json:"name"`
	PeerURL string `json:"peerURL,omitempty"`
	ID      string `json:"id,omitempty"`
}

var serverName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// ParseRequest parses a request and checks each field.
func ParseRequest(data []byte) (Request, error) {
	var r Request
	if err := parseStrictly(data, &r); err != nil {
		return r, err
	}
	if !serverName.MatchString(r.Name) {
		return r, fmt.Errorf("name: %q is not usable: lower-case letters, digits, '-' and '.', at most 253", short(r.Name))
	}
	if r.PeerURL != "" {
		u, err := url.Parse(r.PeerURL)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
			return r, fmt.Errorf("peerURL: %q is not usable: a URL such as https://10.0.0.5:2380", short(r.PeerURL))
		}
	}
	if r.ID != "" {
		if id, err := ParseID(r.ID); err != nil || id == 0 {
			return r, fmt.Errorf("id: %q is not usable: a hexadecimal number of at most 16 digits", short(r.ID))
		}
	}
	return r, nil
}

// FormatID returns the text of a member's ID.
func FormatID(id uint64) string { return strconv.FormatUint(id, 16) }

// ParseID parses a member's ID.
func ParseID(text string) (uint64, error) { return strconv.ParseUint(text, 16, 64) }

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
