// Command field runs a real database on a cluster of one server and three nodes, and takes from it
// what production takes: a switch-over, a node without power, volumes that are too small.
//
// The database is PostgreSQL, managed by CloudNativePG, with its data on local volumes. A writer
// remembers each acknowledged transaction; none of them may be lost. run.sh builds what this needs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

var (
	knarr   string                    // path of the program
	images  string                    // folder of the archives
	cache   string                    // folder of logs
	stopped = make(chan os.Signal, 1) // closed at a signal
)

func main() {
	manifest := flag.String("operator", "", "manifest of the operator")
	keep := flag.Bool("keep", false, "leave the cluster running until a signal")
	only := flag.String("only", "postgresql,mariadb", "databases to try")
	flag.StringVar(&knarr, "knarr", "bin/knarr", "knarr to test")
	flag.StringVar(&images, "images", "", "folder with the archives of the images")
	flag.StringVar(&cache, "cache", "", "folder for logs")
	flag.Parse()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() { <-signals; close(stopped) }()

	began := time.Now()
	c, err := newCluster()
	if err == nil {
		err = c.start()
	}
	var figures []figure
	for _, name := range strings.Split(*only, ",") {
		if err != nil {
			break
		}
		var more []figure
		switch name {
		case "postgresql":
			more, err = c.postgresql(*manifest)
		case "mariadb":
			more, err = c.mariadb()
		default:
			err = fmt.Errorf("--only %q: allowed are postgresql and mariadb", name)
		}
		figures = append(figures, more...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "field:", err)
		c.explain()
	}
	if *keep {
		fmt.Printf("the cluster stays until a signal: nsenter --target %d --net --mount --pid env KUBECONFIG=%s %s kubectl get pods -A\n", c.server.space.pid, c.kubeconfig(), knarr)
		<-stopped
	}
	progress("removing the cluster")
	if stopErr := c.stop(); stopErr != nil {
		fmt.Fprintln(os.Stderr, "field:", stopErr)
		err = stopErr
	}
	for _, f := range figures {
		fmt.Printf("%-66s %s\n", f.what, f.value)
	}
	if err != nil {
		os.Exit(1)
	}
	fmt.Printf("field: passed in %v\n", time.Since(began).Round(time.Second))
}

// figure is a line of the result.
type figure struct{ what, value string }

func seconds(f float64) string { return fmt.Sprintf("%.1f s", f) }

func progress(format string, args ...any) {
	fmt.Printf("progress: "+format+"\n", args...)
}

// cluster is a server with a node, for operators and clients, and three nodes for databases.
type cluster struct {
	state  string
	lan    *space
	server *machine
	nodes  []*machine
	token  string
}

const cgroups = "/knarr-field-"

func newCluster() (*cluster, error) {
	c := &cluster{}
	err := sweep()
	if err != nil {
		return c, err
	}
	c.state = filepath.Join(os.TempDir(), fmt.Sprintf("kf-%d", os.Getpid()))
	if err := os.Mkdir(c.state, 0o755); err != nil {
		return c, err
	}
	if c.lan, err = newSpace("ip link add lan type bridge\nip link set lan up", "", "--net"); err != nil {
		return c, err
	}
	for i, name := range []string{"server", "east", "south", "west"} {
		m := &machine{
			name: name, address: fmt.Sprintf("192.168.89.%d", i+1), lan: c.lan, disk: filepath.Join(c.state, name),
			cgroup: fmt.Sprintf("%s%d-%s", cgroups, os.Getpid(), name), log: filepath.Join(cache, name+".log"),
		}
		_ = os.Remove(m.log)
		if c.server == nil {
			c.server = m
		} else {
			c.nodes = append(c.nodes, m)
		}
	}
	return c, nil
}

func (c *cluster) machines() []*machine { return append([]*machine{c.server}, c.nodes...) }

func (c *cluster) kubeconfig() string { return filepath.Join(c.server.data(), "kubeconfig") }

// start starts the server, joins the nodes, and loads the images on all of them.
func (c *cluster) start() error {
	progress("starting a server and three nodes")
	if err := all(c.machines(), (*machine).boot); err != nil {
		return err
	}
	if err := c.server.start("up"); err != nil {
		return err
	}
	var err error
	if c.token, err = c.server.tool("token", "create", "--advertise-address", c.server.address); err != nil {
		return err
	}
	if err := all(c.nodes, c.join); err != nil {
		return err
	}
	progress("loading the images")
	archives, err := filepath.Glob(filepath.Join(images, "*.tar"))
	if err != nil || len(archives) == 0 {
		return fmt.Errorf("%s has no archives: %w", images, err)
	}
	for _, m := range c.machines() { // one at a time, for small machines
		for _, archive := range archives {
			if _, err := m.tool("image", "load", archive); err != nil {
				return err
			}
		}
	}
	for _, m := range c.nodes {
		if _, err := c.kubectl("label", "node", m.name, "field=database"); err != nil {
			return err
		}
	}
	_, err = c.kubectl("label", "node", c.server.name, "field=clients")
	return err
}

func (c *cluster) join(m *machine) error {
	return m.start("node", "--join", "https://"+c.server.address+":6443", "--token", c.token)
}

// machine returns the machine of a node.
func (c *cluster) machine(node string) (*machine, error) {
	i := slices.IndexFunc(c.nodes, func(m *machine) bool { return m.name == node })
	if i < 0 {
		return nil, fmt.Errorf("no machine has the node %q", node)
	}
	return c.nodes[i], nil
}

// stop removes the cluster and checks that nothing is left.
func (c *cluster) stop() error {
	if c.state == "" {
		return nil
	}
	err := all(c.nodes, (*machine).stop)
	if c.server != nil {
		err = errors.Join(err, c.server.stop())
	}
	if c.lan != nil {
		c.lan.end()
	}
	return errors.Join(err, left(c.state, fmt.Sprintf("%s%d", cgroups, os.Getpid())))
}
