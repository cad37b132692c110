package because

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheFirstCauseAndTheNewestOnesAreKept(t *testing.T) {
	r := Of(10, 11, 11, 0, -3, 12, 13, 14, 15)
	if want := []int64{10, 13, 14, 15}; !slices.Equal(r.All(), want) {
		t.Errorf("got %v, want %v", r.All(), want)
	}
	var o Revisions
	o.AddObject(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}})
	o.AddObject(&corev1.Pod{})
	o.AddObject("no object")
	if o.String() != "7" {
		t.Errorf("got %q", o.String())
	}
}

func TestContextsWithoutTrackingCollectNothing(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}
	r := From(WithObjects(t.Context(), pod))
	if r.Len() != 0 {
		t.Errorf("got %v", r)
	}
	if r = From(WithObjects(Track(t.Context()), pod)); !r.Has(7) {
		t.Errorf("got %v", r)
	}
}

func TestTheHeaderIsBoundedAndChecked(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "5": "5", "5, 6": "5,6", "5,5": "5", "1,2,3,4": "1,2,3,4", "9223372036854775807": "9223372036854775807",
	} {
		if r, err := Parse(text); err != nil || r.String() != want {
			t.Errorf("%q: %v, %v", text, r, err)
		}
	}
	for _, text := range []string{"0", "-1", "a", "1,,2", "1,2,3,4,5", "9223372036854775808", string(make([]byte, 97))} {
		if r, err := Parse(text); err == nil {
			t.Errorf("%q: %v", text, r)
		}
	}
}

func TestTheTransportSendsCausesOfWritesOnly(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header.Get(Header)) }))
	defer server.Close()
	c := &http.Client{Transport: Transport(http.DefaultTransport)}
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		req, _ := http.NewRequestWithContext(With(t.Context(), Of(3, 4)), method, server.URL, nil)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if !slices.Equal(got, []string{"3,4", ""}) {
		t.Errorf("got %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("1,2")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(r.String())
		if err != nil || again != r {
			t.Fatalf("%q: %v, then %v %v", text, r, again, err)
		}
		doc, _ := json.Marshal(r)
		var back Revisions
		if err := json.Unmarshal(doc, &back); err != nil || back != r {
			t.Fatalf("%s: %v %v", doc, back, err)
		}
	})
}
