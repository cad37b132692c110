package server

import (
	"encoding/json"
	"net/http"
)

// configz serves the effective configuration in upstream's shape.
func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"kubeletconfig": s.Configz})
}
