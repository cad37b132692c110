package apiserver

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// connect serves streams and proxies to objects.
func (s *Server) connect(c *call) {
	respondError(c.w, jsonFormat, apierrors.NewInternalError(errNotImplemented))
}
