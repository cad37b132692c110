package logs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// Source is one log: a file, and the older one beside it.
type Source struct {
	// Name is the prefix of each line if several sources are shown together.
	Name string
	Path string
}

// Line is one line of a log.
type Line struct {
	Source string
	// Time is the line's own time. A line without one has the time of the line before it.
	Time time.Time
	Text string
}

// Options select lines.
type Options struct {
	Since time.Time // lines before this time are left out; zero selects all
	Last  int       // maximum number of lines, the last ones; negative selects all
}

// Read returns the lines of all sources, ordered by time. A missing file has no lines.
func Read(sources []Source, options Options) ([]Line, error) {
	var all []Line
	for _, source := range sources {
		var last time.Time
		for _, path := range []string{source.Path + ".1", source.Path} {
			lines, err := readFile(source.Name, path, &last)
			if err != nil {
				return nil, err
			}
			all = append(all, lines...)
		}
	}
	slices.SortStableFunc(all, func(a, b Line) int { return a.Time.Compare(b.Time) })
	if !options.Since.IsZero() {
		all = slices.DeleteFunc(all, func(l Line) bool { return l.Time.Before(options.Since) })
	}
	if options.Last >= 0 && len(all) > options.Last {
		all = all[len(all)-options.Last:]
	}
	return all, nil
}

func readFile(name, path string, last *time.Time) ([]Line, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var lines []Line
	for text := range strings.Lines(string(data)) {
		lines = append(lines, newLine(name, strings.TrimRight(text, "\n"), last))
	}
	return lines, nil
}

func newLine(source, text string, last *time.Time) Line {
	if at, ok := timeOf(text); ok {
		*last = at
	}
	return Line{Source: source, Time: *last, Text: text}
}

// timeOf parses time=2006-01-02T15:04:05Z, with or without quotes, in a line of slog or containerd.
func timeOf(text string) (time.Time, bool) {
	rest, ok := strings.CutPrefix(text, "time=")
	if !ok {
		return time.Time{}, false
	}
	word, _, _ := strings.Cut(rest, " ")
	at, err := time.Parse(time.RFC3339Nano, strings.Trim(word, `"`))
	return at, err == nil
}

// Tail returns the last lines of a file, for messages.
func Tail(path string, lines int) []string {
	const most = 64 << 10
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > most {
		_, _ = file.Seek(-most, io.SeekEnd)
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return nil
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(all) == 1 && all[0] == "" {
		return nil
	}
	return all[max(0, len(all)-lines):]
}

// Follower returns new lines of a log, across renamed files.
type Follower struct {
	source  Source
	file    *os.File
	reader  *bufio.Reader
	partial bytes.Buffer
	last    time.Time
	read    int64
}

// Follow starts at the current end of the source's file.
func Follow(source Source) *Follower {
	f := &Follower{source: source}
	if f.open() {
		if end, err := f.file.Seek(0, io.SeekEnd); err == nil {
			f.read = end
		}
	}
	return f
}

func (f *Follower) open() bool {
	file, err := os.Open(f.source.Path)
	if err != nil {
		return false
	}
	f.Close()
	f.file, f.reader, f.read = file, bufio.NewReader(file), 0
	f.partial.Reset()
	return true
}

// Close closes the file.
func (f *Follower) Close() {
	if f.file != nil {
		_ = f.file.Close()
		f.file = nil
	}
}

// More returns the complete lines since the last call. It reads a replaced file to its end first.
func (f *Follower) More() []Line {
	if f.file == nil && !f.open() {
		return nil
	}
	lines := f.rest()
	now, err := os.Stat(f.source.Path)
	if err != nil {
		return lines
	}
	held, err := f.file.Stat()
	if err == nil && os.SameFile(held, now) && now.Size() >= f.read {
		return lines
	}
	lines = append(lines, f.rest()...) // written between the two reads
	if f.open() {
		lines = append(lines, f.rest()...)
	}
	return lines
}

func (f *Follower) rest() []Line {
	var lines []Line
	for {
		part, err := f.reader.ReadString('\n')
		f.read += int64(len(part))
		f.partial.WriteString(part)
		if err != nil {
			return lines
		}
		lines = append(lines, newLine(f.source.Name, strings.TrimRight(f.partial.String(), "\n"), &f.last))
		f.partial.Reset()
	}
}
