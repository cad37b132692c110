package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/cli/logs"
	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
)

// backgroundVariable marks the process that --detach starts. Its standard output and error go to
// the waiting command.
const backgroundVariable = "KNARR_BACKGROUND"

// readyMark is the last byte from the background process. It means that everything is usable, and
// that further output goes only to the log.
const readyMark = 0

// startInBackground starts this command again in a session of its own, shows its progress, and
// returns when it is ready. If the start fails, it shows the error. An interrupt stops the new
// process.
func startInBackground(ctx context.Context, cmd *cobra.Command, dataDir string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	before := logSize(dataDir)
	child := exec.Command(program, os.Args[1:]...)
	child.Args[0] = os.Args[0]
	child.Env = append(os.Environ(), backgroundVariable+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	progress, output, err := os.Pipe()
	if err != nil {
		return err
	}
	errorOutput, errorInput, err := os.Pipe()
	if err != nil {
		return err
	}
	child.Stdout, child.Stderr = output, errorInput
	if flag := cmd.Flags().Lookup("token-file"); flag != nil && flag.Value.String() == "-" {
		// Another session cannot read from this terminal.
		token, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 8<<10)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("token-file: standard input: %w", err)
		}
		child.Stdin = strings.NewReader(token)
	}
	err = child.Start()
	_ = output.Close()
	_ = errorInput.Close()
	if err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	interrupted := context.AfterFunc(ctx, func() { _ = child.Process.Signal(syscall.SIGTERM) })
	defer interrupted()
	var complaint bytes.Buffer
	var copying sync.WaitGroup
	copying.Go(func() { _, _ = io.Copy(io.MultiWriter(cmd.ErrOrStderr(), &complaint), errorOutput) })
	ready := showProgress(cmd.OutOrStdout(), progress)
	if ready {
		copying.Wait()
		pid := child.Process.Pid
		_ = child.Process.Release()
		return printBackground(cmd.OutOrStdout(), pid, dataDir)
	}
	err = child.Wait()
	copying.Wait()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted before it was ready: it is stopped again")
	case complaint.Len() > 0:
		return ExitStatus(1) // the process has shown the reason
	}
	return fmt.Errorf("the process in the background ended: %w%s", err, logTail(dataDir, before))
}

// showProgress copies output until the process is ready or the output ends.
func showProgress(to io.Writer, from io.Reader) (ready bool) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		text, _, found := bytes.Cut(buffer[:n], []byte{readyMark})
		_, _ = to.Write(text)
		if found {
			return true
		}
		if err != nil {
			return false
		}
	}
}

func printBackground(to io.Writer, pid int, dataDir string) error {
	name := filepath.Base(dataDir)
	if r, err := clusters.Load(dataDir); err == nil {
		name = r.Name
	}
	_, err := fmt.Fprintf(to, "in the background: process %d, log %s\n`knarr status %s` shows how it is, `knarr stop %s` ends it\n", pid, filepath.Join(dataDir, "knarr.log"), name, name)
	return err
}

func logSize(dataDir string) int64 {
	info, err := os.Stat(filepath.Join(dataDir, "knarr.log"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// logTail returns the last lines of the log if the log has grown.
func logTail(dataDir string, before int64) string {
	if logSize(dataDir) == before {
		return ""
	}
	text := "; the end of its log:"
	for _, line := range logs.Tail(filepath.Join(dataDir, "knarr.log"), 15) {
		text += "\n  " + line
	}
	return text
}

// background is the state of a process that --detach has started. The zero value is a foreground
// process.
type background struct {
	on       bool
	waiting  *os.File // standard error of the waiting command
	out      *logTarget
	log      *slog.Logger
	brokenTo chan os.Signal
}

// inBackground detects whether --detach has started this process. It removes the mark, so child
// processes do not inherit it.
func inBackground(out *logTarget) *background {
	b := &background{on: os.Getenv(backgroundVariable) != "", out: out, log: slog.New(slog.DiscardHandler)}
	if !b.on {
		return b
	}
	_ = os.Unsetenv(backgroundVariable)
	// The waiting command may be killed. Writing to it must not end this process then.
	b.brokenTo = make(chan os.Signal, 1)
	signal.Notify(b.brokenTo, syscall.SIGPIPE)
	return b
}

// open redirects the log and standard error to the data folder's file. Messages about the process's
// life are logged at every level.
func (b *background) open(dataDir, role, version string) error {
	if !b.on {
		return nil
	}
	fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	b.waiting = os.NewFile(uintptr(fd), "the waiting command")
	file, err := logs.Open(filepath.Join(dataDir, "knarr.log"), logs.MaxSize, true)
	if err != nil {
		return err
	}
	b.out.turn(file)
	b.log = slog.New(slog.NewTextHandler(b.out, nil))
	b.log.Info("starting", "role", role, "version", version, "pid", os.Getpid())
	return nil
}

// ready releases the waiting command.
func (b *background) ready(took time.Duration) {
	if !b.on {
		return
	}
	b.log.Info("ready", "took", took.Round(time.Millisecond))
	_, _ = os.Stdout.Write([]byte{readyMark}) // the command may have ended
	b.release()
}

func (b *background) release() {
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		_ = unix.Dup3(int(null.Fd()), 1, 0)
		_ = null.Close()
	}
	if b.waiting != nil {
		_ = b.waiting.Close()
		b.waiting = nil
	}
}

// ended logs how the process ended, and shows it to the command if that still waits.
func (b *background) ended(err error) error {
	if !b.on || b.waiting == nil && err != nil && b.out.plain() {
		return err // nothing was redirected, so standard error still reaches the command
	}
	if err == nil {
		b.log.Info("stopped")
		return nil
	}
	b.log.Error("ended", "error", err)
	if b.waiting != nil {
		fmt.Fprintln(b.waiting, "knarr:", err)
	}
	return ExitStatus(1)
}

// logTarget is the destination of the log: standard error, until the log is redirected to a file.
type logTarget struct {
	mu sync.Mutex
	to io.Writer // nil means standard error
}

func (l *logTarget) Write(p []byte) (int, error) {
	l.mu.Lock()
	to := l.to
	l.mu.Unlock()
	if to == nil {
		to = os.Stderr
	}
	return to.Write(p)
}

func (l *logTarget) turn(to io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

func (l *logTarget) plain() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to == nil
}

// canDetach selects the commands with --detach: those for a whole cluster, a server or a node.
func canDetach(groups config.Groups) bool {
	const server = config.Server | config.Controlling
	return groups&config.Joining != 0 || groups&server == server
}
