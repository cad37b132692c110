package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// screen prints what runs now: on a terminal one line that is refreshed, elsewhere a line every 15
// seconds.
type screen struct {
	to       io.Writer
	terminal bool
	width    int
	printed  time.Time // when the last line of progress was printed
	dirty    bool      // the terminal's current line has text
}

// lineInterval is the interval of lines that cannot be refreshed.
const lineInterval = 15 * time.Second

func newScreen(to *os.File) *screen {
	s := &screen{to: to, width: 100, printed: time.Now()}
	if info, err := to.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" {
		s.terminal = true
		if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 20 {
			s.width = n
		}
	}
	return s
}

// line prints a permanent line.
func (s *screen) line(format string, args ...any) {
	if s.dirty {
		fmt.Fprint(s.to, "\r\033[K")
		s.dirty = false
	}
	fmt.Fprintf(s.to, format+"\n", args...)
}

// progress prints the line about running steps, if it is due.
func (s *screen) progress(now time.Time, text string) {
	switch {
	case s.terminal:
		if utf8.RuneCountInString(text) >= s.width {
			text = string([]rune(text)[:s.width-2]) + "…"
		}
		fmt.Fprintf(s.to, "\r\033[K%s", text)
		s.dirty = true
	case now.Sub(s.printed) >= lineInterval:
		s.printed = now
		fmt.Fprintln(s.to, text)
	}
}

// describe returns the line about running steps.
func (r *run) describe(now time.Time, expected time.Duration) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	parts := []string{clock(now.Sub(r.began), expected)}
	for _, j := range r.jobs {
		if j.state != running || j.out == nil {
			continue
		}
		part := j.name + " " + clock(now.Sub(j.began), j.expected)
		if text := j.out.String(); text != "" {
			part += " " + text
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " | ")
}

// clock formats the elapsed time and the time of the last run.
func clock(took, expected time.Duration) string {
	if expected <= 0 {
		return minutes(took)
	}
	return minutes(took) + "/" + minutes(expected)
}

func minutes(d time.Duration) string {
	seconds := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}
