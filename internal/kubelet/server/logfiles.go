package server

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// logFolder serves the regular files and folders below a folder. Links are followed as long as they
// stay in it: pods can make links, and must not show files of the node to readers of logs.
type logFolder string

// Open implements http.FileSystem.
func (dir logFolder) Open(name string) (http.File, error) { return dir.open(name) }

func (dir logFolder) open(name string) (*os.File, error) {
	base, err := filepath.EvalSymlinks(string(dir))
	if err != nil {
		return nil, err
	}
	target, err := filepath.EvalSymlinks(filepath.Join(base, filepath.FromSlash(path.Clean("/"+name))))
	if err != nil {
		return nil, err
	}
	inside, err := filepath.Rel(base, target)
	if err != nil || !filepath.IsLocal(inside) {
		return nil, fs.ErrNotExist
	}
	// A link that was replaced meanwhile cannot lead out of the root either.
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(inside, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// systemLogs serves the node's log folder and, if they are on, queries of the node's logs.
func (s *Server) systemLogs() http.Handler {
	files := http.FileServer(logFolder(s.SystemLogs))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.Switches.LogQueries {
			files.ServeHTTP(w, r)
			return
		}
		q, err := parseLogQuery(r.URL.Query())
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusNotAcceptable)
		case q == nil:
			files.ServeHTTP(w, r)
		case q.file != "":
			r = r.Clone(r.Context())
			r.URL.Path = strings.TrimPrefix(filepath.ToSlash(strings.ReplaceAll(q.file, "\\", "/")), "/")
			files.ServeHTTP(w, r)
		default:
			s.serviceLogs(w, r, q)
		}
	})
}
