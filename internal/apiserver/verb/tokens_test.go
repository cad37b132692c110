package verb

import "testing"

func TestUnreadableTokensHaveNoCredentialID(t *testing.T) {
	for _, token := range []string{"", "x.y.z", "eyJhbGciOiJub25lIn0.AAAA.AA"} {
		if id := credentialOf(token); id != "" {
			t.Errorf("%q has the id %q", token, id)
		}
	}
}
