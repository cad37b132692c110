// Store keeps the harbour's log of arrivals in a file, one JSON line each. POST /append adds a line
// and answers when the line is on disk; GET /lines returns all lines.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"sync"
)

type store struct {
	mu   sync.Mutex
	path string
}

func (s *store) append(w http.ResponseWriter, r *http.Request) {
	line, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<10))
	if err != nil {
		http.Error(w, "a line has at most 4096 bytes", http.StatusRequestEntityTooLarge)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := appendLine(s.path, line); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		return err
	}
	return f.Sync()
}

func (s *store) lines(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := os.ReadFile(s.path)
	if err != nil && !os.IsNotExist(err) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(data)
}

func main() {
	dir := os.Getenv("DATA_DIR")
	if dir == "" {
		dir = "/data"
	}
	s := &store{path: filepath.Join(dir, "arrivals.jsonl")}
	http.HandleFunc("POST /append", s.append)
	http.HandleFunc("GET /lines", s.lines)
	http.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	log.Print("store: listening on :8080, writing to ", s.path)
	log.Fatal(http.ListenAndServe(":8080", nil))
}
