package snapshots

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// TimeFormat is the time in names of snapshots, UTC.
const TimeFormat = "20060102T150405Z"

// Prefixes of names say why a snapshot was taken. Only scheduled ones are pruned by number and age.
const (
	PrefixSaved     = "knarr-"
	PrefixScheduled = "scheduled-"
	PrefixUpgrade   = "before-"
)

// Endings of names say what the file is.
const (
	plainEnding   = ".db"
	archiveEnding = ".tar"
	sealedEnding  = ".age"
	recordEnding  = ".json"
)

// Content is what a store holds at one revision.
type Content struct {
	Revision int64 `json:"revision"`
	Keys     int64 `json:"keys"`
	// Digest is the SHA-256 of all keys, their revisions and values at that revision, in hex.
	Digest string `json:"digest"`
}

// Record describes a snapshot. It is in the place as NAME.json.
type Record struct {
	Name  string    `json:"name"`
	Taken time.Time `json:"taken"`
	// Server is the name of the machine that took it, Version the knarr that did.
	Server  string `json:"server,omitempty"`
	Version string `json:"version"`
	Content
	// Size and SHA256 are of the file as it is in the place.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// WithKeys means that the file holds the cluster's keys too. Sealed means that it is encrypted.
	WithKeys bool `json:"withKeys"`
	Sealed   bool `json:"sealed"`
	// Checked is the time at which the restored scratch store had this content.
	Checked time.Time `json:"checked"`
	// Compared means that the running store had the same content at the same revision.
	Compared bool `json:"compared"`
}

// maxRecord is the largest size of a record in bytes.
const maxRecord = 64 << 10

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,199}$`)

// IsName reports whether a file name is a snapshot's.
func IsName(name string) bool {
	plain := strings.TrimSuffix(name, sealedEnding)
	return nameForm.MatchString(name) && (strings.HasSuffix(plain, plainEnding) || strings.HasSuffix(plain, archiveEnding))
}

func (r *Record) encode() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}

// decodeRecord reads the record of the named snapshot.
func decodeRecord(from io.Reader, name string) (*Record, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxRecord+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxRecord {
		return nil, fmt.Errorf("the record of %s is larger than %d bytes", name, maxRecord)
	}
	r := &Record{}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(r); err != nil {
		return nil, fmt.Errorf("the record of %s: %w", name, err)
	}
	if r.Name != name || r.Size <= 0 || len(r.SHA256) != 64 {
		return nil, fmt.Errorf("the record of %s is incomplete, or another snapshot's (%q)", name, r.Name)
	}
	return r, nil
}

// timeOfName returns the time in a snapshot's name, or the zero time.
func timeOfName(name string) time.Time {
	_, rest, _ := strings.Cut(name, "-")
	if len(rest) < len(TimeFormat) {
		return time.Time{}
	}
	at, err := time.Parse(TimeFormat, rest[:len(TimeFormat)])
	if err != nil {
		return time.Time{}
	}
	return at
}
