package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/knarr-project/knarr/internal/durable"
)

// joinedFile is the record of a join in the data folder.
const joinedFile = "joined.json"

// Joined records that this server joins, or has joined, a cluster. A start that finds it goes on
// where an earlier one was interrupted, and never makes a cluster of its own.
type Joined struct {
	// Server is the URL that the join was asked for; Servers are further ones.
	Server  string   `json:"server"`
	Servers []string `json:"servers,omitempty"`
	// Settings are the cluster's shared settings. They replace the defaults of flags.
	Settings map[string][]string `json:"settings,omitempty"`
	// Member is the ID of this server's member of the embedded store, once it is added.
	Member string `json:"member,omitempty"`
	// Opened means that the member's store may have been started. It cannot be started again
	// without its data.
	Opened bool `json:"opened,omitempty"`
	// Running means that the member's store has received the others' data once. Before that, a
	// crash can leave a store that does not know the other members.
	Running bool `json:"running,omitempty"`
	// Done means that the member has a vote.
	Done bool `json:"done,omitempty"`
}

// LoadJoined returns the record of a data folder, or nil.
func LoadJoined(dataDir string) (*Joined, error) {
	path := filepath.Join(dataDir, joinedFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j := &Joined{}
	if err := json.Unmarshal(data, j); err != nil || j.Server == "" {
		return nil, fmt.Errorf("%s is damaged (%v): `knarr member rm` this server on another one, `knarr purge` here, and join again", path, err)
	}
	return j, nil
}

// Save writes the record. It is on disk when Save returns.
func (j *Joined) Save(dataDir string) error {
	data, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dataDir, joinedFile), data)
}
