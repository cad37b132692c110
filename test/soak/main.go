// Soak runs three servers under churn for hours, kills one of them now and then, and judges by the
// trend of their resources whether they could run for years.
//
// Words. The warm-up is the first quarter of the run, in which caches fill and the database gets
// its size. A trend is flat if its growth after the warm-up is within a metric's allowance.
//
// The first server is never killed, so that its curves show leaks over the whole run. The second
// and the third are killed in turn. Their samples do not count for two minutes, or a twentieth of a
// short run, after each start.
//
// run.sh starts it in network, mount and process namespaces of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/knarr-project/knarr/internal/servers"
)

type soak struct {
	knarr, dir, out string
	hours           float64
	servers         []*server
	kills           atomic.Int64
}

func main() {
	s := &soak{}
	flag.StringVar(&s.knarr, "knarr", "bin/knarr", "knarr's binary")
	flag.StringVar(&s.dir, "state", "", "empty folder for the servers' data")
	flag.StringVar(&s.out, "out", "", "folder for the table and the plot")
	flag.Float64Var(&s.hours, "hours", 8, "duration in hours, at least 0.05")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// duration is a part of the run, at most limit.
func (s *soak) duration(part float64, limit time.Duration) time.Duration {
	return min(limit, time.Duration(part*s.hours*float64(time.Hour)))
}

func (s *soak) run(ctx context.Context) error {
	if s.hours < 0.05 {
		return fmt.Errorf("--hours: %v is not possible: at least 0.05, for enough samples", s.hours)
	}
	defer func() {
		var group sync.WaitGroup
		for _, one := range s.servers {
			group.Go(func() { one.end(syscall.SIGTERM) })
		}
		group.Wait()
	}()
	if err := s.start(ctx); err != nil {
		return err
	}
	reach, err := s.servers[0].config()
	if err != nil {
		return err
	}
	var given []string
	for _, one := range s.servers {
		given = append(given, one.listen)
	}
	config, transport, err := servers.Config(reach, servers.NewPool(servers.Options{User: "soak", Given: given}))
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, -1
	c := &churn{}
	if c.set, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	load, stop := context.WithTimeout(ctx, s.duration(1, 1000*time.Hour))
	defer stop()
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { transport.Run(load) })
	group.Go(func() { c.run(load) })
	failed := make(chan error, 2)
	group.Go(func() { failed <- nodes(load, config, 10, slog.New(slog.NewTextHandler(os.Stderr, nil))) })
	group.Go(func() { failed <- s.kill(load) })
	err = s.measure(load, c)
	stop()
	group.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, <-failed, <-failed, s.report())
}

// start starts one server and joins two.
func (s *soak) start(ctx context.Context) error {
	token := filepath.Join(s.dir, "token")
	for i := range 3 {
		name := fmt.Sprintf("soak-%d", i+1)
		listen, err := freeAddress()
		if err != nil {
			return err
		}
		peers, err := freeAddress()
		if err != nil {
			return err
		}
		one := &server{name: name, listen: listen, data: filepath.Join(s.dir, name)}
		one.args = []string{s.knarr, "server", "--data-dir", one.data, "--listen", listen, "--peer-listen", peers, "--advertise-address", "127.0.0.1", "--compaction-interval", "1m"}
		s.servers = append(s.servers, one)
		args := []string{"--event-ttl", "2m"}
		if i > 0 {
			args = []string{"--join", "https://" + s.servers[0].listen, "--token-file", token}
		}
		if err := one.start(ctx, args...); err != nil {
			return err
		}
		if i == 0 {
			one.args = append(one.args, args...)
			text, err := exec.CommandContext(ctx, s.knarr, "token", "create", "--server", "--data-dir", one.data, "--advertise-address", "127.0.0.1").Output()
			if err != nil {
				return fmt.Errorf("token: %w", err)
			}
			if err := os.WriteFile(token, text, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// kill kills the second and the third server in turn.
func (s *soak) kill(ctx context.Context) error {
	ticker := time.NewTicker(s.duration(0.2, 5*time.Minute))
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		one := s.servers[1+n%2]
		one.end(syscall.SIGKILL)
		s.kills.Add(1)
		if err := one.start(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("after kill -9: %w", err)
		}
	}
}

// measure takes samples until ctx ends.
func (s *soak) measure(ctx context.Context, c *churn) error {
	began, settle := time.Now(), s.duration(0.05, 2*time.Minute)
	ticker := time.NewTicker(max(2*time.Second, s.duration(1.0/120, time.Minute)))
	defer ticker.Stop()
	said := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for i, one := range s.servers {
			if _, age := one.process(); i > 0 && age < settle {
				continue
			}
			if err := one.measure(ctx, time.Since(began).Minutes()); err != nil && ctx.Err() == nil && i == 0 {
				return err
			}
		}
		if time.Since(said) > time.Minute {
			said = time.Now()
			fmt.Fprintf(os.Stderr, "progress: soak: %.0f of %.0f min, %d kills,%s\n", time.Since(began).Minutes(), 60*s.hours, s.kills.Load(), c)
		}
	}
}

// report writes table.md and soak.svg and returns an error if a trend is not flat.
func (s *soak) report() error {
	minutes := 60 * s.hours
	warm := minutes / 4
	text, flat := table(s.servers, warm)
	fmt.Printf("%.2f hours, %d kills\n\n%s", s.hours, s.kills.Load(), text)
	err := errors.Join(os.WriteFile(filepath.Join(s.out, "table.md"), []byte(text), 0o644),
		os.WriteFile(filepath.Join(s.out, "soak.svg"), []byte(plot(s.servers, warm, minutes)), 0o644))
	if !flat {
		err = errors.Join(err, fmt.Errorf("not all trends are flat; the curves are in %s", filepath.Join(s.out, "soak.svg")))
	}
	return err
}
