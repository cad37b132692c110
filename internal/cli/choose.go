package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/cri"
)

// startsProcess names the commands whose --data-dir may not exist yet. All other commands need an
// existing cluster.
var startsProcess = sets.New("up", "server", "node", "apiserver", "controllers", "scheduler", "kubelet", "proxy", "doctor", "purge")

// recall takes from the data folder's record the places of the cluster's parts that neither a flag
// nor the file sets. It returns them as flags.
func recall(cmd *cobra.Command, c *config.Config) []string {
	r, err := clusters.Load(c.DataDir)
	if err != nil {
		return nil
	}
	var taken []string
	plain := config.Default()
	for _, one := range []struct {
		flag        string
		value       *string
		plain, then string
	}{
		{"run-dir", &c.RunDir, plain.RunDir, r.RunDir},
		{"cgroup-root", &c.CgroupRoot, plain.CgroupRoot, r.CgroupRoot},
		{"listen", &c.Listen, plain.Listen, r.Listen},
		{"peer-listen", &c.PeerListen, plain.PeerListen, r.PeerListen},
		{"kubelet-listen", &c.KubeletListen, plain.KubeletListen, r.KubeletListen},
		{"node-name", &c.NodeName, plain.NodeName, r.NodeName},
		{"join", &c.Join, plain.Join, r.Join},
	} {
		if cmd.Flags().Changed(one.flag) || *one.value != one.plain || one.then == "" || one.then == one.plain {
			continue
		}
		if one.flag == "join" && cmd.Name() != "node" {
			continue
		}
		*one.value = one.then
		if cmd.Flags().Lookup(one.flag) != nil && !isDefaultHere(one.flag, one.then, r.DataDir) {
			taken = append(taken, "--"+one.flag+" "+one.then)
		}
	}
	return taken
}

// isDefaultHere reports whether a setting has its default for this data folder.
func isDefaultHere(flag, value, dataDir string) bool {
	switch flag {
	case "run-dir":
		return value == cri.DefaultRunDir(dataDir)
	case "cgroup-root":
		return value == cri.DefaultCgroupRoot(dataDir)
	case "node-name":
		host, err := os.Hostname()
		return err == nil && value == strings.ToLower(host)
	}
	return false
}

// choose resolves --data-dir to the folder of an existing cluster. The value may be a name of
// `knarr ls`. Without the flag, it is the default folder, or the only running cluster if the
// default folder has none.
func choose(cmd *cobra.Command, c *config.Config, file bool) {
	if startsProcess.Has(cmd.Name()) || cmd.HasParent() && cmd.Parent().Name() == "adopt" {
		return
	}
	here := clusters.Here()
	if cmd.Flags().Changed("data-dir") || file {
		if isName(c.DataDir) {
			if r, err := here.Find(c.DataDir); err == nil {
				c.DataDir = r.DataDir
			}
		}
		return
	}
	if r := onlyOne(here, c.DataDir); r != nil {
		c.DataDir = r.DataDir
	}
}

// isName reports whether a word can be a name because it is no folder here.
func isName(word string) bool {
	if word == "" || strings.Contains(word, "/") || word == "." || word == ".." {
		return false
	}
	_, err := os.Stat(word)
	return errors.Is(err, fs.ErrNotExist)
}

// onlyOne returns the running cluster of this machine, if exactly one runs and the default folder
// has none; otherwise nil.
func onlyOne(here clusters.Registry, defaultDataDir string) *clusters.Record {
	if hasCluster(defaultDataDir) {
		return nil
	}
	if alive := here.Alive(); len(alive) == 1 {
		return alive[0]
	}
	return nil
}

// hasCluster reports whether a data folder has a cluster. A folder of an older knarr has no record
// yet.
func hasCluster(dataDir string) bool {
	for _, name := range []string{clusters.File, "kubeconfig", "knarr.lock"} {
		if _, err := os.Stat(filepath.Join(dataDir, name)); err == nil {
			return true
		}
	}
	return false
}

// targetCluster returns the cluster of a command. In this order it is the cluster of the argument
// (a name or a folder), that of --data-dir, the default folder's, or the only running one.
func targetCluster(args []string, dataDir string, given bool) (*clusters.Record, error) {
	here := clusters.Here()
	switch {
	case len(args) > 0 && given:
		return nil, fmt.Errorf("give a name (%s) or --data-dir %s, not both", args[0], dataDir)
	case len(args) > 0 && isName(args[0]):
		return here.Find(args[0])
	case len(args) > 0:
		if r, err := here.Find(args[0]); err == nil && !hasCluster(args[0]) {
			return r, nil
		}
		return at(here, args[0])
	case given && isName(dataDir):
		if r, err := here.Find(dataDir); err == nil {
			return r, nil
		}
	case !given:
		if r := onlyOne(here, dataDir); r != nil {
			return r, nil
		}
	}
	return at(here, dataDir)
}

func at(here clusters.Registry, dataDir string) (*clusters.Record, error) {
	r, err := clusters.Load(dataDir)
	if err == nil {
		return here.Named(r), nil
	}
	if !errors.Is(err, clusters.ErrNone) {
		return nil, err
	}
	return nil, noCluster(here, dataDir)
}

// noCluster is the error for a folder without a cluster. It lists the existing clusters.
func noCluster(here clusters.Registry, dataDir string) error {
	if path, err := filepath.Abs(dataDir); err == nil {
		dataDir = path
	}
	why := "the folder holds none"
	if _, err := os.Stat(dataDir); errors.Is(err, fs.ErrNotExist) {
		why = "there is no such folder"
	} else if hasCluster(dataDir) {
		why = "an older knarr has left the folder; `knarr up --data-dir " + dataDir + "` takes it over"
	}
	known := here.List()
	if len(known) == 0 {
		return fmt.Errorf("%w in %s: %s. `knarr up` starts one", clusters.ErrNone, dataDir, why)
	}
	return fmt.Errorf("%w in %s: %s. %s", clusters.ErrNone, dataDir, why, clusters.Names(known))
}

// completeNames completes an argument that is the name of a cluster.
func completeNames(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for _, r := range clusters.Here().List() {
		names = append(names, cobra.CompletionWithDesc(r.Name, string(r.State())+" "+r.DataDir))
	}
	return names, cobra.ShellCompDirectiveDefault
}

// serverHere returns an error that explains why the data folder has no server to which this command
// can connect as admin.
func serverHere(c *config.Config) error {
	r, err := clusters.Load(c.DataDir)
	if errors.Is(err, clusters.ErrNone) {
		if readable(c.AdminKubeconfig()) {
			return nil // a cluster of an older knarr
		}
		return noCluster(clusters.Here(), c.DataDir)
	}
	if err != nil {
		return err
	}
	switch {
	case !r.HasServer() && r.Join != "":
		return fmt.Errorf("%s has no server: it is a worker of %s; run this command there", clusters.Here().Named(r), r.Join)
	case !r.HasServer():
		return fmt.Errorf("%s has no server", clusters.Here().Named(r))
	case !r.Alive():
		return fmt.Errorf("%s does not run; it %s. Start it with `%s`", clusters.Here().Named(r), pastState(r), startCommand(r))
	}
	if _, err := os.ReadFile(c.AdminKubeconfig()); errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("only root may read %s: try sudo", c.AdminKubeconfig())
	}
	return nil
}

func readable(path string) bool {
	_, err := os.ReadFile(path)
	return err == nil
}
