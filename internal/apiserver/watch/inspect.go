package watch

// Count returns how many detached streams and hubs are open.
func (s *Server) Count() (streams, hubs int) {
	s.Streams.mu.Lock()
	streams = len(s.Streams.open)
	s.Streams.mu.Unlock()
	s.hubs.mu.Lock()
	defer s.hubs.mu.Unlock()
	return streams, len(s.hubs.open)
}

// DamageStreams makes the next event of each open stream panic, unless a hub encodes it. It is for
// tests of the recovery from panics.
func (s *Server) DamageStreams() {
	s.Streams.mu.Lock()
	defer s.Streams.mu.Unlock()
	for stream := range s.Streams.open {
		if stream.enc != nil {
			stream.enc.Endpoint = nil
		}
	}
}

// DamageHubs makes the next event of each hub panic. It is for tests of the recovery from panics.
func (s *Server) DamageHubs() {
	s.hubs.mu.Lock()
	defer s.hubs.mu.Unlock()
	for _, h := range s.hubs.open {
		h.mu.Lock()
		h.enc.Endpoint = nil
		h.mu.Unlock()
	}
}
