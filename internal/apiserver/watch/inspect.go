package watch

// Count returns how many detached streams and hubs are open.
func (s *Server) Count() (streams, hubs int) {
	s.Streams.Mu.Lock()
	streams = len(s.Streams.Open)
	s.Streams.Mu.Unlock()
	s.Hubs.Mu.Lock()
	defer s.Hubs.Mu.Unlock()
	return streams, len(s.Hubs.Open)
}

// DamageStreams makes the next event of each open stream panic, unless a hub encodes it. It is for
// tests of the recovery from panics.
func (s *Server) DamageStreams() {
	s.Streams.Mu.Lock()
	defer s.Streams.Mu.Unlock()
	for stream := range s.Streams.Open {
		if stream.Enc != nil {
			stream.Enc.Endpoint = nil
		}
	}
}

// DamageHubs makes the next event of each hub panic. It is for tests of the recovery from panics.
func (s *Server) DamageHubs() {
	s.Hubs.Mu.Lock()
	defer s.Hubs.Mu.Unlock()
	for _, h := range s.Hubs.Open {
		h.Mu.Lock()
		h.Enc.Endpoint = nil
		h.Mu.Unlock()
	}
}
