package token

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/token/tokenfile"

	"github.com/knarr-project/knarr/internal/auth"
)

// File authenticates tokens of a file that is read once (reference, "Static token file"). Its lines
// hold token, user, UID and, in quotes, groups.
type File struct {
	known     *tokenfile.TokenAuthenticator
	audiences []string
}

// OpenFile reads the file. audiences are the API server's, which the tokens are meant for.
func OpenFile(path string, audiences []string) (File, error) {
	known, err := tokenfile.NewCSV(path)
	if err != nil {
		return File{}, fmt.Errorf("--token-auth-file %s: %w", path, err)
	}
	return File{known: known, audiences: audiences}, nil
}

// AuthenticateToken implements auth.TokenAuthenticator.
func (f File) AuthenticateToken(ctx context.Context, token string, audiences []string) (auth.User, []string, bool, error) {
	accepted := auth.CommonAudiences(audiences, f.audiences)
	if len(accepted) == 0 {
		return auth.User{}, nil, false, nil
	}
	found, ok, err := f.known.AuthenticateToken(ctx, token)
	if !ok || err != nil {
		return auth.User{}, nil, false, err
	}
	return auth.User{Name: found.User.GetName(), UID: found.User.GetUID(), Groups: found.User.GetGroups()}, accepted, true, nil
}
