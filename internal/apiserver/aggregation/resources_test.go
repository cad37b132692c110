package aggregation

import (
	"strings"
	"testing"
)

func TestDiscoveryDocumentIsLimited(t *testing.T) {
	many := func(n int) string { return strings.TrimSuffix(strings.Repeat(`{},`, n), ",") }
	for name, tc := range map[string]struct {
		document string
		want     int
		refused  bool
	}{
		"an honest one":                     {`{"kind":"APIResourceList","groupVersion":"a.io/v1","resources":[{"name":"widgets","kind":"Widget","verbs":["get"]},{"name":"widgets/status"}]}`, 2, false},
		"none":                              {`{"resources":[]}`, 0, false},
		"null":                              {`{"resources":null}`, 0, false},
		"nothing about resources":           {`{}`, 0, false},
		"as many as may be":                 {`{"resources":[` + many(maxResources) + `]}`, maxResources, false},
		"one more":                          {`{"resources":[` + many(maxResources+1) + `]}`, 0, true},
		"said twice, the last one counts":   {`{"resources":[{},{}],"resources":[{}]}`, 1, false},
		"no list":                           {`{"resources":{}}`, 0, true},
		"a list of something else":          {`{"resources":[1]}`, 0, true},
		"a kind that is no text":            {`{"kind":1,"resources":[]}`, 0, true},
		"longer than a document may be":     {`{"groupVersion":"` + strings.Repeat("v", maxDiscovery) + `"}`, 0, true},
		"white space without end before it": {strings.Repeat(" ", maxDiscovery) + `{}`, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readResources(strings.NewReader(tc.document))
			if (err != nil) != tc.refused {
				t.Fatalf("got %v", err)
			}
			if !tc.refused && len(got) != tc.want {
				t.Errorf("got %d resources, want %d", len(got), tc.want)
			}
			if name == "an honest one" && (got[0].Name != "widgets" || got[0].Kind != "Widget" || len(got[0].Verbs) != 1) {
				t.Errorf("got %+v", got)
			}
		})
	}
}
