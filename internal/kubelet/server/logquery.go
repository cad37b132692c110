package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of a query of the node's logs (KEP-2258).
const (
	queryTime       = 30 * time.Second
	queryBytes      = 256 << 20
	queryTail       = 100_000
	queryServices   = 16
	queryPatternLen = 1024
	queryLine       = 1 << 20
)

// logQuery is a query of the logs of services, or of one file.
type logQuery struct {
	services     []string
	file         string
	since, until time.Time
	tail, boot   *int
	pattern      string
	matches      *regexp.Regexp
}

// service is a unit's name.
var service = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_.@-]{0,254}$`)

// parseLogQuery returns nil without a query: the request is for a file or a folder.
func parseLogQuery(v url.Values) (*logQuery, error) {
	known := []string{"query", "sinceTime", "untilTime", "tailLines", "boot", "pattern"}
	if !slices.ContainsFunc(known, func(name string) bool { return v.Has(name) }) {
		return nil, nil
	}
	q := &logQuery{pattern: v.Get("pattern")}
	var errs []error
	bad := func(field, value, allowed string) {
		errs = append(errs, fmt.Errorf("%s: Invalid value: %q: %s", field, value, allowed))
	}
	var files []string
	for _, one := range v["query"] {
		switch {
		case strings.TrimSpace(one) == "":
			bad("query", one, "must be the name of a service, or the path of a file")
		case strings.ContainsAny(one, `/\`):
			files = append(files, one)
		case !service.MatchString(one):
			bad("query", one, "must be the name of a service: letters, digits, _, -, . and @")
		case !slices.Contains(q.services, one):
			q.services = append(q.services, one)
		}
	}
	number := func(field string, least, most int) *int {
		text := v.Get(field)
		if text == "" {
			return nil
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			bad(field, text, fmt.Sprintf("must be %d to %d", least, most))
		}
		return &n
	}
	date := func(field string) (t time.Time) {
		if text := v.Get(field); text != "" {
			var err error
			if t, err = time.Parse(time.RFC3339, text); err != nil {
				bad(field, text, "must be a time of RFC 3339, such as 2026-01-02T15:04:05Z")
			}
		}
		return t
	}
	q.tail, q.boot = number("tailLines", 0, queryTail), number("boot", -10_000, 0)
	q.since, q.until = date("sinceTime"), date("untilTime")
	if !q.until.IsZero() && q.since.After(q.until) {
		bad("untilTime", v.Get("untilTime"), "must be after sinceTime")
	}
	if q.pattern != "" {
		var err error
		if q.matches, err = regexp.Compile(q.pattern); err != nil || len(q.pattern) > queryPatternLen {
			bad("pattern", q.pattern, fmt.Sprintf("must be a regular expression of at most %d characters", queryPatternLen))
		}
	}
	switch {
	case len(errs) > 0:
	case len(files)+len(q.services) == 0:
		errs = append(errs, errors.New("query: Required value: specify a service or a file"))
	case len(files) > 0 && len(q.services) > 0:
		bad("query", strings.Join(v["query"], ", "), "must not have services and files at the same time")
	case len(files) > 1:
		bad("query", strings.Join(files, ", "), "must not have several files")
	case len(q.services) > queryServices:
		bad("query", fmt.Sprint(len(q.services)), fmt.Sprintf("must have at most %d services", queryServices))
	case len(files) == 1 && (q.tail != nil || q.boot != nil || q.pattern != "" || !q.since.IsZero() || !q.until.IsZero()):
		bad("query", files[0], "a file takes no other parameters")
	case len(files) == 1:
		q.file = files[0]
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return q, nil
}

// serviceLogs writes the logs of services, one after the other: from the journal if it has the
// unit, else from the service's files.
func (s *Server) serviceLogs(w http.ResponseWriter, r *http.Request, q *logQuery) {
	ctx, cancel := context.WithTimeout(r.Context(), queryTime)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		defer packed.Close()
		out = packed
	}
	left := &limited{w: out, left: queryBytes}
	units := s.units(ctx)
	for _, name := range q.services {
		err := s.serviceLog(ctx, left, units, name, q)
		if err != nil && r.Context().Err() == nil {
			// The answer has begun, so the error is a line of it.
			fmt.Fprintf(out, "\nerror: logs of %s: %v\n", name, err)
		}
	}
}

func (s *Server) serviceLog(ctx context.Context, w io.Writer, units []string, name string, q *logQuery) error {
	unit := name
	if filepath.Ext(name) == "" || !slices.Contains(units, name) {
		unit = name + ".service"
	}
	if slices.Contains(units, unit) {
		return s.journal(ctx, w, unit, q)
	}
	return s.serviceFile(w, name, q)
}

// units lists the units that the journal knows.
func (s *Server) units(ctx context.Context) []string {
	if s.Journalctl == "" {
		return nil
	}
	out := &limitedBuffer{most: 1 << 20}
	cmd := exec.CommandContext(ctx, s.Journalctl, "--no-pager", "--field=_SYSTEMD_UNIT")
	cmd.Stdout = out
	if err := cmd.Run(); err != nil {
		s.Log.Debug("cannot list the journal's units", "error", err)
		return nil
	}
	return strings.Fields(string(out.kept))
}

func (s *Server) journal(ctx context.Context, w io.Writer, unit string, q *logQuery) error {
	args := []string{"--utc", "--no-pager", "--output=short-precise", "--unit=" + unit}
	const layout = "2006-01-02 15:04:05 UTC"
	if !q.since.IsZero() {
		args = append(args, "--since="+q.since.UTC().Format(layout))
	}
	if !q.until.IsZero() {
		args = append(args, "--until="+q.until.UTC().Format(layout))
	}
	if q.tail != nil {
		args = append(args, "--lines="+strconv.Itoa(*q.tail))
	}
	if q.boot != nil {
		args = append(args, "--boot="+strconv.Itoa(*q.boot))
	}
	if q.pattern != "" {
		args = append(args, "--grep="+q.pattern)
	}
	said := &limitedBuffer{most: 4 << 10}
	cmd := exec.CommandContext(ctx, s.Journalctl, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = w, said, time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(said.kept)))
	}
	return nil
}

// serviceFile reads the log of a service that has no journal from where services keep it.
func (s *Server) serviceFile(w io.Writer, name string, q *logQuery) error {
	if !q.since.IsZero() || !q.until.IsZero() || q.boot != nil {
		return errors.New("the journal does not have the service, and in a file sinceTime, untilTime and boot cannot be applied")
	}
	for _, path := range []string{name, name + ".log", filepath.Join(name, name+".log")} {
		f, err := logFolder(s.SystemLogs).open(path)
		if err != nil {
			continue
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || info.IsDir() {
			continue
		}
		return lines(w, f, q)
	}
	return fmt.Errorf("neither the journal nor %s has them", s.SystemLogs)
}

// lines copies the lines that match, or the last of them.
func lines(w io.Writer, from io.Reader, q *logQuery) error {
	var last [][]byte
	size := 0
	scanner := bufio.NewScanner(io.LimitReader(from, queryBytes))
	scanner.Buffer(make([]byte, 64<<10), queryLine)
	for scanner.Scan() {
		line := scanner.Bytes()
		switch {
		case q.matches != nil && !q.matches.Match(line):
		case q.tail == nil:
			if _, err := w.Write(append(line, '\n')); err != nil {
				return err
			}
		case *q.tail > 0:
			last = append(last, append(bytes.Clone(line), '\n'))
			size += len(line) + 1
			for len(last) > *q.tail || size > 4*queryLine {
				size -= len(last[0])
				last = last[1:]
			}
		}
	}
	for _, line := range last {
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return scanner.Err()
}

// limited passes on the first bytes, and then returns an error.
type limited struct {
	w    io.Writer
	left int64
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left < int64(len(p)) {
		return 0, fmt.Errorf("the answer has more than %d bytes: use tailLines, sinceTime or pattern", queryBytes)
	}
	l.left -= int64(len(p))
	return l.w.Write(p)
}

// limitedBuffer keeps the first bytes. It is not a bytes.Buffer, whose ReadFrom has no bound.
type limitedBuffer struct {
	kept []byte
	most int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(len(p), b.most-len(b.kept))]...)
	return len(p), nil
}
