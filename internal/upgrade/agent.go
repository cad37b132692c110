package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/version"
)

// Folders and files in a data folder. programs also has the programs that a rollback needs.
const (
	stagedFolder   = "upgrade"
	programsFolder = "programs"
	beforeFile     = "before.json"
)

// Staged is the path of a fetched program in a data folder.
func Staged(dataDir string, p Program) string { return filepath.Join(dataDir, stagedFolder, p.SHA256) }

// Kept is the path of a version's program that is kept in a data folder for a rollback.
func Kept(dataDir string, w snapshots.Writer) string {
	return filepath.Join(dataDir, programsFolder, "knarr-"+w.String())
}

// Before names the program that an upgrade has replaced.
type Before struct {
	Writer    snapshots.Writer `json:"writer"`
	Installed string           `json:"installed"`
}

// ReadBefore returns what the last upgrade has replaced. The error wraps fs.ErrNotExist if there
// was none.
func ReadBefore(dataDir string) (Before, error) {
	var b Before
	data, err := os.ReadFile(filepath.Join(dataDir, programsFolder, beforeFile))
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	return b, err
}

// Keep keeps the program at a path for a rollback, and notes that it is the one before. Programs of
// earlier versions are removed.
func Keep(dataDir, program string, w snapshots.Writer) error {
	earlier, _ := filepath.Glob(filepath.Join(dataDir, programsFolder, "knarr-*"))
	for _, path := range earlier {
		if path != Kept(dataDir, w) {
			_ = os.Remove(path) // else it costs space only
		}
	}
	if err := Copy(program, Kept(dataDir, w)); err != nil {
		return fmt.Errorf("keep the program for a rollback: %w", err)
	}
	note, err := json.Marshal(Before{Writer: w, Installed: program})
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dataDir, programsFolder, beforeFile), note)
}

// Agent replaces the program of one machine when the Order says so. One goroutine uses it.
type Agent struct {
	// Kind and Name are those of the machine's turns. Node means a node in a server's process.
	Kind, Name string
	Node       bool
	DataDir    string
	// Program is the path of the installed program.
	Program string
	// Restart makes the process start again with the program at Program, soon; nil means that this
	// process cannot.
	Restart func()
	// Fetch returns bytes of a program, at most maxChunk, from an offset on.
	Fetch func(ctx context.Context, p Program, offset int64) ([]byte, error)
	// Tell makes a Report known. A failure of it is reported again by the caller's next Report.
	Tell func(ctx context.Context, r Report)
	Log  *slog.Logger

	mu     sync.Mutex // guards state
	state  Report
	begun  bool            // an Order, or none, was seen
	active bool            // the last Order was not nil
	past   map[string]bool // nonces that are not followed any more
	staged string          // hash of the program in the staged folder
}

// Report returns the state of the machine.
func (a *Agent) Report() Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.state
	r.Kind, r.Name, r.Build, r.Node, r.Program, r.Has = a.Kind, a.Name, version.Current(), a.Node, a.Program, a.staged
	r.Free = min(free(a.DataDir), free(filepath.Dir(a.Program)))
	r.Problem = a.problem()
	return r
}

// problem returns why this machine cannot replace its program.
func (a *Agent) problem() string {
	switch {
	case a.Restart == nil:
		return "this process cannot start itself again"
	case a.Program == "":
		return "the path of the program is unknown"
	}
	if err := unix.Access(filepath.Dir(a.Program), unix.W_OK); err != nil {
		return fmt.Sprintf("the folder of %s cannot be written: %v", a.Program, err)
	}
	return ""
}

func (a *Agent) tell(ctx context.Context, nonce string, phase Phase, err error) {
	a.mu.Lock()
	a.state.Nonce, a.state.Phase, a.state.Error = nonce, phase, ""
	if err != nil {
		text := err.Error()
		a.state.Error = text[:min(len(text), maxText)]
	}
	a.mu.Unlock()
	a.Tell(ctx, a.Report())
}

// Follow does what the present Order says; nil means that there is none. A turn that stood in the
// first Order after the start is not followed: a server that went back to the version before, and
// has an older store, would otherwise upgrade itself again.
func (a *Agent) Follow(ctx context.Context, o *Order) {
	if a.past == nil {
		a.past = map[string]bool{}
	}
	t := o.turn(a.Kind, a.Name)
	first := !a.begun
	a.begun = true
	if o == nil {
		if first || a.active {
			a.forget()
		}
		a.active = false
		return
	}
	a.active = true
	if a.Kind == Server && !a.has(o.Program) && o.Program.Build.Platform == version.Current().Platform {
		// All servers have the program before the nodes ask them for it.
		if err := a.fetch(ctx, o.Program); err != nil {
			a.Log.Warn("cannot fetch the program of an upgrade yet", "error", err)
		}
		a.Tell(ctx, a.Report())
	}
	if t == nil || a.past[t.Nonce] {
		return
	}
	a.past[t.Nonce] = true
	if first {
		return
	}
	err := a.turn(ctx, o.Program, t.Nonce)
	if err != nil {
		a.Log.Error("the upgrade of this machine has failed", "version", o.Program.Build.Knarr, "error", err)
		a.tell(ctx, t.Nonce, Failed, err)
		return
	}
	a.tell(ctx, t.Nonce, Restarting, nil)
	a.Log.Info("the program is replaced; starting again", "version", o.Program.Build.Knarr)
	a.Restart()
}

func (a *Agent) has(p Program) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.staged == p.SHA256
}

// turn replaces the installed program.
func (a *Agent) turn(ctx context.Context, p Program, nonce string) error {
	if problem := a.problem(); problem != "" {
		return errors.New(problem)
	}
	from := version.Current()
	if a.Kind == Server {
		if err := CheckServer(from, p.Build); err != nil {
			return err
		}
	}
	a.Log.Info("upgrading this machine", "from", from.Knarr, "to", p.Build.Knarr, "sha256", p.SHA256)
	a.tell(ctx, nonce, Fetching, nil)
	if err := a.fetch(ctx, p); err != nil {
		return err
	}
	a.tell(ctx, nonce, Verifying, nil)
	path := Staged(a.DataDir, p)
	found, err := Inspect(ctx, path)
	if err != nil {
		return err
	}
	if found != p {
		return fmt.Errorf("the fetched program is %s of %s, not %s of %s", found.Build.Knarr, short(found.Build.Commit), p.Build.Knarr, short(p.Build.Commit))
	}
	if err := Keep(a.DataDir, a.Program, snapshots.CurrentWriter()); err != nil {
		return err
	}
	failpoint.Here("upgrade-kept")
	if err := Replace(path, a.Program); err != nil {
		return err
	}
	failpoint.Here("upgrade-replaced")
	return nil
}

// maxChunk is the largest answer of ProgramPath in bytes.
const maxChunk = 4 << 20

// fetch brings a program into the staged folder and verifies its hash. It continues a fetch that
// was interrupted.
func (a *Agent) fetch(ctx context.Context, p Program) error {
	if err := p.Validate(); err != nil {
		return err
	}
	path := Staged(a.DataDir, p)
	if !p.matches(path) {
		if err := a.download(ctx, p, path); err != nil {
			return fmt.Errorf("fetch the program: %w", err)
		}
	}
	a.mu.Lock()
	a.staged = p.SHA256
	a.mu.Unlock()
	return nil
}

func (a *Agent) download(ctx context.Context, p Program, path string) error {
	dir := filepath.Dir(path)
	a.forgetAllBut(p.SHA256)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if have := free(dir); have < p.Needed() {
		return fmt.Errorf("%s has %d MB free, and %d MB are needed", dir, have>>20, p.Needed()>>20)
	}
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_RDWR, 0o700)
	if err != nil {
		return err
	}
	defer f.Close()
	offset, err := f.Seek(0, io.SeekEnd)
	if err == nil && offset > p.Size {
		offset = 0
	}
	if err == nil {
		err = f.Truncate(offset)
	}
	for err == nil && offset < p.Size {
		var chunk []byte
		if chunk, err = a.Fetch(ctx, p, offset); err != nil {
			return err
		}
		if len(chunk) == 0 || int64(len(chunk)) > p.Size-offset {
			return fmt.Errorf("the server has sent %d bytes at %d of %d", len(chunk), offset, p.Size)
		}
		_, err = f.WriteAt(chunk, offset)
		offset += int64(len(chunk))
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return err
	}
	if !p.matches(part) {
		_ = os.Remove(part)
		return fmt.Errorf("what was fetched has not the SHA-256 %s", p.SHA256)
	}
	if err := os.Chmod(part, 0o700); err != nil {
		return err
	}
	return errors.Join(os.Rename(part, path), durable.SyncFolder(dir))
}

// forget removes fetched programs when no upgrade is under way.
func (a *Agent) forget() {
	a.mu.Lock()
	a.staged = ""
	a.mu.Unlock()
	if err := os.RemoveAll(filepath.Join(a.DataDir, stagedFolder)); err != nil {
		a.Log.Warn("the copy of a program stays", "error", err)
	}
}

// forgetAllBut removes fetched programs other than one, and their parts.
func (a *Agent) forgetAllBut(sum string) {
	entries, _ := os.ReadDir(filepath.Join(a.DataDir, stagedFolder))
	for _, e := range entries {
		if e.Name() != sum && e.Name() != sum+".part" {
			_ = os.Remove(filepath.Join(a.DataDir, stagedFolder, e.Name()))
		}
	}
}

// FetchFrom returns bytes of a program from a server.
func FetchFrom(ctx context.Context, c *http.Client, server string, p Program, offset int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+ProgramPath+"?sha256="+p.SHA256, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, min(offset+maxChunk, p.Size)-1))
	response, err := c.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusPartialContent {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxText))
		return nil, fmt.Errorf("the server answers %s: %s", response.Status, printable(string(bytes.TrimSpace(text))))
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxChunk))
	if err != nil {
		return nil, err
	}
	return data, nil
}
