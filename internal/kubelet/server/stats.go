package server

import "net/http"

// Stats reads what the node and its pods use.
type Stats struct{}

func (s *Stats) serveSummary(w http.ResponseWriter, r *http.Request)  {}
func (s *Stats) serveResource(w http.ResponseWriter, r *http.Request) {}
func (s *Stats) serveCadvisor(w http.ResponseWriter, r *http.Request) {}
