package h2

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestTheLibrarysLayoutIsKnown(t *testing.T) {
	if err := CheckLayout(); err != nil {
		t.Error(err)
	}
}

// The writers below are built like the library's, but for one thing each.
type (
	stream8      struct{ id uint8 }
	state8       struct{ stream *stream8 }
	numberOfByte struct {
		http.ResponseWriter
		rws *state8
	}
	stream32      struct{ id uint32 }
	stateNamed    struct{ itsStream *stream32 }
	otherwiseName struct {
		http.ResponseWriter
		rws *stateNamed
	}
	state32 struct{ stream *stream32 }
	asKnown struct {
		http.ResponseWriter
		rws *state32
	}
)

func TestAStreamsNumberIsReadOnlyFromTheKnownLayout(t *testing.T) {
	for name, w := range map[string]http.ResponseWriter{
		"another library":            httptest.NewRecorder(),
		"a number of another type":   &numberOfByte{rws: &state8{&stream8{7}}},
		"a field with another name":  &otherwiseName{rws: &stateNamed{&stream32{7}}},
		"a response without a state": &asKnown{},
	} {
		if id, ok := streamID(w); ok {
			t.Errorf("%s: it is stream %d", name, id)
		}
	}
	if id, ok := streamID(&asKnown{rws: &state32{&stream32{7}}}); !ok || id != 7 {
		t.Errorf("the known layout: stream %d, %t", id, ok)
	}
}
