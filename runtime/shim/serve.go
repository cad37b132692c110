package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	eventstypes "github.com/containerd/containerd/api/events"
	task "github.com/containerd/containerd/api/runtime/task/v3"
	taskservice "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/core/events"
	coreruntime "github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/pkg/sys/reaper"
	"github.com/containerd/fifo"
	runc "github.com/containerd/go-runc"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
)

// awakeVariable names the environment variable that says how long a shim stays awake without work.
// 0 means always.
const awakeVariable = "KNARR_SHIM_AWAKE"

const defaultAwake = 10 * time.Second

// serve is the shim until the pod's end. If the state has containers, it continues a sleeping shim.
func serve(kept *state, woken bool) error {
	ctx := namespaces.WithNamespace(context.Background(), kept.Namespace)
	ctx, ending := shutdown.WithShutdown(ctx)
	if err := prepare(ctx, kept, woken); err != nil {
		return err
	}
	remote, err := shim.NewPublisher(os.Getenv("TTRPC_ADDRESS"))
	if err != nil {
		return err
	}
	s := &sleeper{state: *kept, conns: map[*conn]struct{}{}, last: time.Now()}
	s.events = &publisher{Publisher: remote, sleeper: s, known: map[string]bool{}}
	service, err := taskservice.NewTaskService(ctx, s.events, ending)
	if err != nil {
		return err
	}
	s.tasks = newTasks(service)
	if s.listener, err = s.newListener(socketFile); err != nil {
		return err
	}
	if err := s.continueAll(ctx); err != nil {
		return err
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	task.RegisterTTRPCTaskService(server, s.tasks)
	go s.reap()
	go endOnSignals(ending)
	if os.Args[len(os.Args)-1] == "end" {
		ending.Shutdown()
	}
	go func() {
		if err := server.Serve(ctx, s.listener); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
			log.G(ctx).WithError(err).Fatal("serve containerd's requests")
		}
	}()
	go s.run(debug.FreeOSMemory)
	<-ending.Done()
	_ = shim.RemoveSocket(kept.Socket)
	if err := ending.Err(); !errors.Is(err, shutdown.ErrShutdown) {
		return err
	}
	return nil
}

// prepare sets what holds for the whole process.
func prepare(ctx context.Context, kept *state, woken bool) error {
	runtime.GOMAXPROCS(min(runtime.NumCPU(), 4))
	// Containers' first processes inherit it, and they work sequentially.
	os.Setenv("GOMAXPROCS", "1")
	// A shim allocates briefly at a container's start and end, and is idle in between.
	debug.SetGCPercent(200)
	runc.Deleted = deleted
	if err := reaper.SetSubreaper(1); err != nil {
		return err
	}
	// Without a handler, a write to containerd's end of the log would end the shim.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	go dumpStacks()
	_ = log.SetFormat(log.TextFormat)
	if kept.Debug {
		_ = log.SetLevel(log.DebugLevel)
	}
	if woken {
		return nil // the log is still standard error
	}
	file, err := fifo.OpenFifoDup2(ctx, "log", unix.O_WRONLY, 0o700, unix.Stderr)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	log.L.Logger.SetOutput(file)
	return nil
}

// continueAll takes over the containers and connections of the program before the sleep.
func (s *sleeper) continueAll(ctx context.Context) error {
	for _, one := range s.state.Containers {
		found, err := one.container()
		if err != nil {
			return err
		}
		s.events.expect(found.request.ID)
		if err := s.tasks.adopt(ctx, found); err != nil {
			return err
		}
		if kills(one.Group) > one.Kills {
			if err := s.events.Publish(ctx, coreruntime.TaskOOMEventTopic, &eventstypes.TaskOOM{ContainerID: found.request.ID}); err != nil {
				log.G(ctx).WithError(err).Error("report a container without memory")
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.state.Conns {
		c, err := s.newConn(one.File, one.Requests)
		if err != nil {
			return err
		}
		s.listener.inherited = append(s.listener.inherited, c)
	}
	return nil
}

// reap collects the exit statuses of the pod's processes.
func (s *sleeper) reap() {
	died := make(chan os.Signal, 32)
	signal.Notify(died, unix.SIGCHLD)
	for {
		// The first time for children that died before.
		end := s.begin()
		if err := runc.Reap(reaper.Reap); err != nil {
			log.L.WithError(err).Error("reap exit status")
		}
		end()
		<-died
	}
}

func endOnSignals(ending shutdown.Service) {
	received := make(chan os.Signal, 1)
	signal.Notify(received, unix.SIGINT, unix.SIGTERM)
	<-received
	ending.Shutdown()
}

// dumpStacks logs all goroutines on SIGUSR1.
func dumpStacks() {
	received := make(chan os.Signal, 1)
	signal.Notify(received, unix.SIGUSR1)
	for range received {
		stacks := make([]byte, 1<<20)
		log.L.Infof("goroutines:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}

// publisher sends events to containerd.
type publisher struct {
	shim.Publisher
	sleeper *sleeper

	mu     sync.Mutex
	known  map[string]bool // events that an earlier program of this process has sent
	failed time.Time       // the last failure; the event is sent again within 15 seconds
}

// expect drops the next events of the container's creation and start.
func (p *publisher) expect(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[coreruntime.TaskCreateEventTopic+" "+id] = true
	p.known[coreruntime.TaskStartEventTopic+" "+id] = true
}

// Publish implements shim.Publisher.
func (p *publisher) Publish(ctx context.Context, topic string, event events.Event) error {
	defer p.sleeper.begin()()
	if known, ok := event.(interface{ GetContainerID() string }); ok {
		key := topic + " " + known.GetContainerID()
		p.mu.Lock()
		sent := p.known[key]
		delete(p.known, key)
		p.mu.Unlock()
		if sent {
			return nil
		}
	}
	err := p.Publisher.Publish(ctx, topic, event)
	if err != nil {
		p.mu.Lock()
		p.failed = time.Now()
		p.mu.Unlock()
	}
	return err
}

// troubled reports whether an event may still have to be sent again.
func (p *publisher) troubled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.known) > 0 || time.Since(p.failed) < time.Minute
}

// leastAwake reads how long a shim stays awake.
func leastAwake() time.Duration {
	text := strings.TrimSpace(os.Getenv(awakeVariable))
	if text == "" {
		return defaultAwake
	}
	awake, err := time.ParseDuration(text)
	if err != nil || awake < 0 {
		return defaultAwake
	}
	return awake
}
