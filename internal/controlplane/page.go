package controlplane

import (
	"maps"
	"net/http"

	"github.com/knarr-project/knarr/internal/auth/oidc"
	"github.com/knarr-project/knarr/internal/auth/session"
	"github.com/knarr-project/knarr/internal/ui"
)

// servePage returns the handler of the page's files, or nil if the page is turned off.
func (s *Server) servePage() http.Handler {
	if !s.cfg.APIServer.Page.On() {
		return nil
	}
	s.page = http.NewServeMux()
	s.page.Handle("/", ui.Handler())
	return s.page
}

// openSessions adds the paths of the page's sessions, and the log-in at issuers. It returns nil if
// the page is turned off.
func (s *Server) openSessions(issuers *oidc.Tokens, paths map[string]http.Handler) *session.Sessions {
	if s.page == nil {
		return nil
	}
	sessions := session.New(s.clock.Now)
	maps.Copy(paths, sessions.Paths())
	c := &s.cfg.APIServer.Page
	login := &session.Login{Sessions: sessions, Issuers: issuers, SecretFile: c.OIDCSecretFile, Scopes: c.OIDCScopes, Log: s.log}
	s.page.Handle(session.LoginPath, login.Handler())
	return sessions
}
