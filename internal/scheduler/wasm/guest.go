package wasm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Defaults and limits of Settings.
const (
	DefaultMemory   = 64 << 20
	DefaultDeadline = 500 * time.Millisecond
	// MaxModule is the maximum size of a module.
	MaxModule = 32 << 20
	maxMemory = 1 << 30
	pageSize  = 64 << 10
)

// Settings of a guest.
type Settings struct {
	// Name is the plugin's name in conditions, events and metrics.
	Name string
	// Points are the extension points at which the guest counts; none means all that it exports.
	Points []string
	// Config is what the guest gets from get_config.
	Config string
	// Memory is the maximum memory of an instance in bytes; 0 means DefaultMemory.
	Memory int64
	// Deadline is the maximum time of the guest in one cycle; 0 means DefaultDeadline.
	Deadline time.Duration
	// IgnoreFailures lets the scheduler go on as if a failed guest had no opinion. Without it, the
	// pod is refused.
	IgnoreFailures bool
	// Local declares that the guest's answers about a node depend on nothing but the node and on
	// fields that pods of one template share. The scheduler then keeps them, and the guest sees
	// nothing else.
	Local bool
	// Failed, if not nil, hears of each failure. It must not block.
	Failed func(Failure)
	// Recovered, if not nil, hears of the first verdict after a suspension. It must not block.
	Recovered func()
	// Reject rejects a pod that waits in Permit, and reports whether it waited; nil means that no
	// pod waits.
	Reject func(types.UID) bool
	// Events records events of the guest about the pod of its cycle; nil drops them.
	Events client.Recorder
	Log    *slog.Logger
}

func (s *Settings) severity() int32 {
	switch ctx := context.Background(); {
	case s.Log.Enabled(ctx, slog.LevelInfo):
		return severityInfo
	case s.Log.Enabled(ctx, slog.LevelWarn):
		return severityWarning
	}
	return severityError
}

// Host has what its guests share: machine code by the content of modules, so that a guest that is
// loaded again is not compiled again, and the encodings of sets of nodes.
type Host struct {
	compiled  wazero.CompilationCache
	encodings encodings
}

// NewHost returns a host without guests.
func NewHost() *Host { return &Host{compiled: wazero.NewCompilationCache()} }

// Close frees the machine code. No guest may run.
func (h *Host) Close() { _ = h.compiled.Close(context.Background()) }

// Guest is a compiled module with its instances. It makes the plugins of the framework.
type Guest struct {
	settings  Settings
	has       [points]bool
	binding   bool // has functions that count in the binding cycle
	events    framework.Events
	runtime   wazero.Runtime
	compiled  wazero.CompiledModule
	encodings *encodings
	breaker   breaker
	answers   answers
	pool      pool
}

// Compile checks and compiles a module, and starts a first instance of it. It may take seconds.
func (h *Host) Compile(ctx context.Context, module []byte, s Settings) (*Guest, error) {
	if len(module) > MaxModule {
		return nil, fmt.Errorf("the module has %d bytes: at most %d are allowed", len(module), MaxModule)
	}
	if s.Memory == 0 {
		s.Memory = DefaultMemory
	}
	if s.Deadline == 0 {
		s.Deadline = DefaultDeadline
	}
	if s.Log == nil {
		s.Log = slog.Default()
	}
	g := &Guest{settings: s, encodings: &h.encodings}
	g.breaker.now = time.Now
	module, err := meter(module)
	if err != nil {
		return nil, err
	}
	config := wazero.NewRuntimeConfig().WithCompilationCache(h.compiled).WithDebugInfoEnabled(false).
		WithCoreFeatures(api.CoreFeaturesV2).WithMemoryLimitPages(uint32(s.Memory / pageSize))
	g.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	if err := g.load(ctx, module); err != nil {
		_ = g.runtime.Close(ctx)
		return nil, err
	}
	return g, nil
}

func (g *Guest) load(ctx context.Context, module []byte) (err error) {
	if g.compiled, err = g.runtime.CompileModule(ctx, module); err != nil {
		return fmt.Errorf("compile the module: %w", err)
	}
	if _, ok := g.compiled.ExportedMemories()["memory"]; !ok {
		return errors.New(`the module does not export its memory as "memory"`)
	}
	if g.has, err = exported(g.compiled.ExportedFunctions(), g.settings.Points); err != nil {
		return err
	}
	for _, p := range []point{reserve, unreserve, permit, preBind, bind, postBind} {
		g.binding = g.binding || g.has[p] && g.counts(p)
	}
	if err := instantiate(ctx, g.runtime, g.compiled); err != nil {
		return err
	}
	first, err := g.newInstance()
	if err != nil {
		return err
	}
	g.pool.init(g)
	g.events, err = first.askEvents()
	if err != nil {
		return err
	}
	g.pool.put(first)
	return nil
}

// counts reports whether the settings want an export, which the guest has.
func (g *Guest) counts(p point) bool {
	if owner, ok := belongs[p]; ok {
		return g.has[p] && g.counts(owner)
	}
	if !g.has[p] || len(g.settings.Points) == 0 {
		return g.has[p]
	}
	for _, name := range g.settings.Points {
		if name == exports[p].extensionPoint {
			return true
		}
	}
	return false
}

// Points returns the extension points at which the guest counts, in the order of a cycle.
func (g *Guest) Points() (names []string) {
	for p := range points {
		if exports[p].extensionPoint != "" && g.counts(p) {
			names = append(names, exports[p].extensionPoint)
		}
	}
	return names
}

// Close ends the guest: idle instances at once, the others with their cycles. Afterwards no new
// cycle may begin.
func (g *Guest) Close() { g.pool.close() }

// kinds are the kinds of objects in an enqueue answer, with the events that each action means.
var kinds = [][]framework.Events{
	{framework.PodAssigned, framework.PodRemoved, framework.PodScaledDown | framework.PodAssigned | framework.SelfChanged},
	{framework.NodeAdded, framework.NodeDeleted, framework.NodeAllocatable, framework.NodeLabels, framework.NodeTaints},
	{framework.VolumeChanged},
	{framework.ClaimChanged},
	{}, // PodSchedulingContext is gone
	{framework.ResourceClaimChanged},
	{framework.StorageClassChanged},
	{framework.CSINodeChanged},
	{framework.CSIDriverChanged},
	{framework.CapacityChanged},
	{framework.Any},
}

// askEvents asks the guest for the events after which its refusal may change. A guest without an
// answer is asked again after every event.
func (in *instance) askEvents() (framework.Events, error) {
	if !in.guest.has[enqueue] {
		return framework.Any, nil
	}
	if _, err := in.run(&call{cycle: &cycle{}, point: enqueue}); err != nil {
		return 0, fmt.Errorf("call enqueue: %w", err)
	}
	var events framework.Events
	for b := in.call.events; len(b) >= 8; b = b[8:] {
		kind, actions := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
		if int(kind) >= len(kinds) {
			return 0, fmt.Errorf("call enqueue: the kind %d is unknown: at most %d is allowed", kind, len(kinds)-1)
		}
		events |= meaning(kinds[kind], actions)
	}
	if events == 0 {
		return framework.Any, nil
	}
	return events, nil
}

// meaning returns the events of the actions, which are bits: add, delete, and kinds of updates.
func meaning(of []framework.Events, actions uint32) (events framework.Events) {
	for bit, e := range of {
		last := bit == len(of)-1
		if actions&(1<<bit) != 0 || last && actions>>bit != 0 || len(of) == 1 && actions != 0 {
			events |= e
		}
	}
	return events
}
