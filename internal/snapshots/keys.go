package snapshots

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/knarr-project/knarr/internal/durable"
)

// Folders of an archive.
const (
	pkiFolder      = "pki"
	encryptionName = "encryption-config.yaml"
	accountsFolder = "service-account-keys"
	// machinesOwn is the folder in pki with the keys of this machine's node agent.
	machinesOwn = "nodes"
)

// KeySources say where the keys of a cluster are on this machine.
type KeySources struct {
	// Folder is DATA-DIR/pki. The keys of node agents in it are left out: each machine makes its
	// own.
	Folder string
	// Encryption is the file of --encryption-provider-config, or "".
	Encryption string
	// Accounts are files of service account keys outside of Folder.
	Accounts []string
}

// ClusterKeys lists the files that an archive holds besides the store.
func ClusterKeys(from KeySources) ([]KeyFile, error) {
	var files []KeyFile
	err := filepath.WalkDir(from.Folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from.Folder, name)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && relative == machinesOwn:
			return fs.SkipDir
		case !d.Type().IsRegular() || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(relative, "node."):
			return nil
		}
		files = append(files, KeyFile{path.Join(pkiFolder, filepath.ToSlash(relative)), name})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no keys", from.Folder)
	}
	if from.Encryption != "" {
		files = append(files, KeyFile{encryptionName, from.Encryption})
	}
	named := map[string]bool{}
	for _, file := range from.Accounts {
		name := path.Join(accountsFolder, filepath.Base(file))
		if named[name] {
			return nil, fmt.Errorf("two files of service account keys are called %s", filepath.Base(file))
		}
		named[name] = true
		files = append(files, KeyFile{name, file})
	}
	return files, nil
}

// Restored says where PutKeys has put what is outside of the data folder's pki.
type Restored struct {
	// KeptPKI is the earlier pki folder's new name, or "".
	KeptPKI string
	// Encryption and Accounts are files that flags have to name.
	Encryption string
	Accounts   []string
	// Same means that the data folder has the archive's CA already.
	Same bool
}

// ErrOtherKeys means that a data folder has the keys of another cluster.
var ErrOtherKeys = errors.New("the data folder has another cluster's keys")

// PutKeys puts an opened archive's keys into a data folder. If there are other keys already, it
// returns ErrOtherKeys, or with keepAs moves them to that path.
func (o *Opened) PutKeys(dataDir, keepAs string) (Restored, error) {
	var r Restored
	if o.Manifest == nil {
		return r, nil
	}
	from, to := filepath.Join(o.Files, pkiFolder), filepath.Join(dataDir, pkiFolder)
	same, exists, err := sameCA(from, to)
	switch {
	case err != nil:
		return r, err
	case same:
		r.Same = true
	case exists && keepAs == "":
		return r, fmt.Errorf("%w in %s", ErrOtherKeys, to)
	default:
		if exists {
			if err := os.Rename(to, keepAs); err != nil {
				return r, err
			}
			r.KeptPKI = keepAs
		}
		if err := moveTree(from, to); err != nil {
			return r, err
		}
	}
	for _, f := range o.Manifest.Files {
		target := filepath.Join(dataDir, "restored", filepath.FromSlash(f.Name))
		switch {
		case f.Name == encryptionName:
			r.Encryption = target
		case strings.HasPrefix(f.Name, accountsFolder+"/"):
			r.Accounts = append(r.Accounts, target)
		default:
			continue
		}
		if err := moveTree(filepath.Join(o.Files, filepath.FromSlash(f.Name)), target); err != nil {
			return r, err
		}
	}
	return r, nil
}

// sameCA compares the CAs of two pki folders. exists reports whether the second one has files.
func sameCA(from, to string) (same, exists bool, err error) {
	entries, err := os.ReadDir(to)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	theirs, err := readSmall(filepath.Join(from, "ca.crt"))
	if err != nil {
		return false, true, err
	}
	ours, err := readSmall(filepath.Join(to, "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, true, nil
	}
	return err == nil && string(ours) == string(theirs), true, err
}

// moveTree writes a file, or all files of a folder, durably to another place. A folder appears
// whole or not at all; the file replaces an older one.
func moveTree(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		data, err := readSmall(from)
		if err != nil {
			return err
		}
		return durable.WriteFile(to, data)
	}
	aside := to + ".new"
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	err = filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(aside, relative)
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		data, err := readSmall(name)
		if err != nil {
			return err
		}
		return durable.WriteFile(target, data)
	})
	if err == nil {
		err = os.Remove(to) // an empty folder
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = os.Rename(aside, to)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(aside))
	}
	return durable.SyncFolder(filepath.Dir(to))
}
