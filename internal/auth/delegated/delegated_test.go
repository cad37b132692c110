package delegated

import (
	"net/http/httptest"
	"testing"
)

func TestRequestsWithoutAnIdentity(t *testing.T) {
	for name, c := range map[string]*struct {
		auth  Auth // without a client: a question to the API server panics
		token string
		want  string
	}{
		"nothing": {want: ""},
		"nothing, and anonymous requests are accepted": {auth: Auth{Anonymous: true}, want: "system:anonymous"},
		"a token that is not accepted":                 {auth: Auth{NoTokens: true}, token: "t", want: ""},
		"a token that is not accepted is anonymous":    {auth: Auth{NoTokens: true, Anonymous: true}, token: "t", want: "system:anonymous"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/pods", nil)
			if c.token != "" {
				r.Header.Set("Authorization", "Bearer "+c.token)
			}
			user, ok, err := c.auth.Authenticate(r)
			if err != nil || ok != (c.want != "") || user.Name != c.want {
				t.Errorf("user %q, %v, %v, want %q", user.Name, ok, err, c.want)
			}
		})
	}
}
