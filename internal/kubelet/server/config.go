package server

import (
	"encoding/json"
	"net/http"
)

// configz tells the configuration in force, in the shape of upstream's.
func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"kubeletconfig": s.Configz})
}
