// Command cast records a session of a terminal, and draws a recording as an animated SVG.
//
//	go run ./hack/cast record COMMANDS >FILE.cast    runs the lines of COMMANDS with bash
//	go run ./hack/cast draw FILE.cast >FILE.svg
//	go run ./hack/cast files PAGE                    writes the files that a page shows
//
// A recording is a file in asciicast's version 2: a header, then one JSON array an event, with
// seconds, "o" and text. See hack/record.sh, which makes docs/images/up.svg.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/knarr-project/knarr/test/docs"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "record":
		err = record(os.Args[2], os.Stdout)
	case len(os.Args) == 3 && os.Args[1] == "draw":
		err = draw(os.Args[2], os.Stdout)
	case len(os.Args) == 3 && os.Args[1] == "files":
		err = files(os.Args[2])
	default:
		err = fmt.Errorf("usage: cast record COMMANDS | cast draw FILE.cast | cast files PAGE")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cast:", err)
		os.Exit(1)
	}
}

// files writes the files that a page shows into the current folder.
func files(page string) error {
	p, err := docs.ReadPage(filepath.Dir(page), filepath.Base(page))
	if err != nil {
		return err
	}
	for _, b := range p.Blocks {
		name, content, ok := b.File()
		if !ok {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const (
	width   = 92
	prompt  = "$ "
	reading = 1.2  // seconds between the end of a command and the next one
	typing  = 0.03 // seconds for each character of a command
)

// recorder writes events with the session's times, plus simulated time for typing and reading.
type recorder struct {
	out   *json.Encoder
	added float64 // seconds added for typing and reading
	spent float64 // seconds in commands before this one
}

// record runs the commands of a file. A line that begins with # is a comment; a line that begins
// with @ runs without being recorded.
func record(file string, to io.Writer) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	r := &recorder{out: json.NewEncoder(to)}
	r.out.SetEscapeHTML(false)
	if err := r.out.Encode(map[string]any{"version": 2, "width": width, "height": 30}); err != nil {
		return err
	}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		quiet, isQuiet := strings.CutPrefix(line, "@")
		switch {
		case strings.HasPrefix(line, "#") || line == "":
		case isQuiet:
			if out, err := exec.Command("bash", "-c", quiet).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", quiet, err, out)
			}
		default:
			if err := r.run(line); err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
		}
	}
	return nil
}

func (r *recorder) event(at float64, text string) error {
	return r.out.Encode([]any{float64(int((at+r.added+r.spent)*1000)) / 1000, "o", text})
}

func (r *recorder) run(line string) error {
	if err := r.event(0, prompt); err != nil {
		return err
	}
	for _, char := range line {
		r.added += typing
		if err := r.event(0, string(char)); err != nil {
			return err
		}
	}
	r.added += 0.3
	if err := r.event(0, "\r\n"); err != nil {
		return err
	}
	cmd := exec.Command("bash", "-o", "pipefail", "-c", line)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if err := r.event(time.Since(began).Seconds(), lines.Text()+"\r\n"); err != nil {
			return err
		}
	}
	if err := cmd.Wait(); err != nil {
		return err
	}
	r.spent += time.Since(began).Seconds()
	r.added += reading
	return nil
}

// line is a line of the screen.
type line struct {
	at, typed float64 // typed: seconds until the whole command is typed
	text      string
	command   bool
}

// draw draws a recording as SVG. The picture has its own background, so it is readable on dark and
// light pages. Viewers without animation, and readers who disable it, see the last screen at once.
func draw(file string, to io.Writer) error {
	lines, end, err := read(file)
	if err != nil {
		return err
	}
	const size, step, left, top = 14, 20, 18, 58
	w, h := left*2+width*size*6/10, top+step*len(lines)+6
	out := bufio.NewWriter(to)
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img" aria-label="%s">
<style>
  text { font: %dpx ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #c9d1d9; white-space: pre }
  .c { fill: #ffffff; font-weight: bold } .p { fill: #7ee787 } .r { fill: #7ee787; font-weight: bold }
  @media (prefers-reduced-motion: no-preference) {
    .l { opacity: 0; animation: show 1ms linear forwards }
    .t { clip-path: inset(0 100%% 0 0); animation: type 1s linear forwards }
  }
  @keyframes show { to { opacity: 1 } }
  @keyframes type { to { clip-path: inset(0 0 0 0) } }
</style>
<rect x="0.5" y="0.5" width="%d" height="%d" rx="9" fill="#0d1117" stroke="#6e7681"/>
<circle cx="22" cy="20" r="6" fill="#ff5f57"/><circle cx="42" cy="20" r="6" fill="#febc2e"/><circle cx="62" cy="20" r="6" fill="#28c840"/>
`, w, h, html.EscapeString(label(lines, end)), size, w-1, h-1)
	for i, l := range lines {
		y := top + step*i
		delay := fmt.Sprintf(`style="animation-delay:%.2fs"`, l.at)
		switch {
		case l.command:
			command := html.EscapeString(strings.TrimPrefix(l.text, prompt))
			fmt.Fprintf(out, `<g class="l" %s><text x="%d" y="%d"><tspan class="p">$ </tspan></text>`, delay, left, y)
			fmt.Fprintf(out, `<text class="c t" style="animation-delay:%.2fs;animation-duration:%.2fs;animation-timing-function:steps(%d)" x="%d" y="%d">%s</text></g>`+"\n",
				l.at, l.typed, max(1, len(l.text)-len(prompt)), left+2*size*6/10, y, command)
		case strings.HasPrefix(l.text, "ready"):
			fmt.Fprintf(out, `<text class="l r" %s x="%d" y="%d">%s</text>`+"\n", delay, left, y, html.EscapeString(l.text))
		default:
			fmt.Fprintf(out, `<text class="l" %s x="%d" y="%d">%s</text>`+"\n", delay, left, y, html.EscapeString(l.text))
		}
	}
	fmt.Fprintln(out, "</svg>")
	return out.Flush()
}

// label returns the text for screen readers.
func label(lines []line, end float64) string {
	var commands []string
	for _, l := range lines {
		if l.command {
			commands = append(commands, strings.TrimPrefix(l.text, prompt))
		}
	}
	return fmt.Sprintf("A terminal session of %.0f seconds: %s", end, strings.Join(commands, "; "))
}

func read(file string) (lines []line, end float64, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, err
	}
	events := strings.Split(strings.TrimSpace(string(data)), "\n")
	open := false
	for _, text := range events[1:] {
		var event []any
		if err := json.Unmarshal([]byte(text), &event); err != nil || len(event) != 3 {
			return nil, 0, fmt.Errorf("%s: the event %s cannot be read: %v", file, text, err)
		}
		at, said := event[0].(float64), event[2].(string)
		end = at
		if !open {
			lines = append(lines, line{at: at, command: said == prompt})
		}
		l := &lines[len(lines)-1]
		l.text += strings.TrimSuffix(said, "\r\n")
		open = !strings.HasSuffix(said, "\r\n")
		if l.command {
			l.typed = max(0.01, at-l.at)
		}
	}
	return lines, end, nil
}
