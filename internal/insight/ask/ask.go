// Package ask is the client of the paths by which an API server answers questions.
//
// In: a question below Path with its parameters. Out: the answer, decoded from JSON, or the message
// of the server's Status as a StatusError.
package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Path is the prefix of the paths of questions.
const Path = "/insight/v1/"

// maxAnswer bounds an answer of a server, in bytes.
const maxAnswer = 64 << 20

// Server is an API server to ask.
type Server struct {
	HTTP *http.Client
	URL  string // such as https://10.0.0.1:6443
	// Prepare completes each request, such as with the user; nil leaves it as it is.
	Prepare func(*http.Request)
}

// To returns the server of a client configuration.
func To(c *rest.Config) (*Server, error) {
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, err
	}
	return &Server{HTTP: client, URL: strings.TrimSuffix(c.Host, "/")}, nil
}

// Ask sends a question and decodes the answer.
func (s *Server) Ask(ctx context.Context, question string, query url.Values, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+Path+question+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	if s.Prepare != nil {
		s.Prepare(req)
	}
	resp, err := s.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case len(body) > maxAnswer:
		return fmt.Errorf("the answer of %s has more than %d bytes", s.URL, maxAnswer)
	case resp.StatusCode == http.StatusOK:
		return json.Unmarshal(body, answer)
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return fmt.Errorf("%s: %s (is it a server of knarr, and of this version?)", s.URL, resp.Status)
}
