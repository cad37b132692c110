package server

import (
	"net/http"

	"github.com/knarr-project/knarr/internal/zpages"
)

// Switches are those of KubeletConfiguration. The zero value serves all but log queries.
type Switches struct {
	// NoDebugging turns all the others off too, and also access to containers
	// (enableDebuggingHandlers).
	NoDebugging bool
	// NoSystemLogs, NoProfiles and NoFlags turn /logs/, /debug/pprof/ and /debug/flags/ off.
	NoSystemLogs, NoProfiles, NoFlags bool
	// LogQueries lets /logs/ read the logs of services (enableSystemLogQuery).
	LogQueries bool
}

// debugging serves access to containers, logs of the node and profiles.
func (s *Server) debugging(mux *http.ServeMux) {
	if s.Switches.NoDebugging {
		for _, path := range []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/"} {
			mux.HandleFunc(path, disabled("Debug endpoints are disabled."))
		}
		return
	}
	mux.HandleFunc("GET /runningpods/", s.runningPods)
	mux.HandleFunc("GET /configz", s.configz)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.containerLogs)
	for _, with := range []string{"", "/{uid}"} {
		mux.HandleFunc("/exec/{namespace}/{pod}"+with+"/{container}", s.exec)
		mux.HandleFunc("/attach/{namespace}/{pod}"+with+"/{container}", s.attach)
		mux.HandleFunc("POST /run/{namespace}/{pod}"+with+"/{container}", s.run)
		mux.HandleFunc("/portForward/{namespace}/{pod}"+with, s.portForward)
	}
	switch {
	case s.Switches.NoSystemLogs:
		mux.HandleFunc("/logs/", disabled("logs endpoint is disabled."))
	case s.SystemLogs != "":
		mux.Handle("GET /logs/", http.StripPrefix("/logs/", s.systemLogs()))
	}
	if s.Switches.NoProfiles {
		mux.HandleFunc("/debug/pprof/", disabled("profiling endpoint is disabled."))
	} else {
		zpages.Profiles(mux)
	}
	if s.Switches.NoFlags {
		mux.HandleFunc("/debug/flags/v", disabled("flags endpoint is disabled."))
	} else {
		zpages.Flags(mux)
	}
}

func disabled(message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, message, http.StatusMethodNotAllowed) }
}
