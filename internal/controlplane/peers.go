package controlplane

import "net"

// embedded reports whether this process contains the store.
func (s *Server) embedded() bool { return len(s.cfg.StoreEndpoints) == 0 }

// peerNames are the names and addresses of this server's member of the embedded store.
func (s *Server) peerNames() []string {
	if !s.embedded() {
		return nil
	}
	names := []string{s.cfg.NodeName, "localhost", "127.0.0.1"}
	for _, name := range []string{s.cfg.AdvertiseAddress, hostOf(s.cfg.PeerAddress())} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// hostOf returns the host of HOST:PORT, or "".
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return host
}

// aloneOnStore reports whether no other server can use the store.
func (s *Server) aloneOnStore() bool { return s.embedded() }
