package rest

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/auth"
)

func TestAuthenticationWarningsStayBesideOthers(t *testing.T) {
	w := httptest.NewRecorder()
	said := &telemetry.ResponseRecorder{ResponseWriter: w}
	said.AddRemarks(&auth.Remarks{Warnings: []string{"a token that is \"old\"", "twice"}})
	c := &Call{W: said}
	for _, text := range []string{"a field", "twice", "another"} {
		c.warnHeader(text)
	}
	want := []string{`299 - "a token that is \"old\""`, `299 - "twice"`, `299 - "a field"`, `299 - "another"`}
	if got := w.Header().Values("Warning"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
