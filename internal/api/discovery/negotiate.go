package discovery

import (
	"mime"
	"slices"
	"strconv"
	"strings"
)

const (
	mediaJSON     = "application/json"
	mediaYAML     = "application/yaml"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// form is a document's media type and shape.
type form struct {
	media      string
	aggregated bool
}

const aggregatedParameters = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func (f form) contentType() string {
	if f.aggregated {
		return f.media + aggregatedParameters
	}
	return f.media
}

// negotiate picks the first available form of an Accept header. canAggregate: the path has an
// aggregated form too.
func negotiate(accept string, canAggregate bool) (form, bool) {
	if strings.TrimSpace(accept) == "" {
		return form{media: mediaJSON}, true
	}
	type clause struct {
		form
		q float64
	}
	var clauses []clause
	for _, text := range strings.Split(accept, ",") {
		media, params, err := mime.ParseMediaType(text)
		if err != nil {
			continue
		}
		c := clause{q: 1}
		switch media {
		case mediaJSON, mediaYAML, mediaProtobuf:
			c.media = media
		case "*/*", "application/*":
			c.media = mediaJSON
		default:
			continue
		}
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			c.q = q
		}
		if as := params["as"]; as != "" {
			if !canAggregate || as != "APIGroupDiscoveryList" || params["g"] != "apidiscovery.k8s.io" || params["v"] != "v2" {
				continue
			}
			c.aggregated = true
		}
		clauses = append(clauses, c)
	}
	if len(clauses) == 0 {
		return form{}, false
	}
	slices.SortStableFunc(clauses, func(a, b clause) int {
		switch {
		case a.q > b.q:
			return -1
		case a.q < b.q:
			return 1
		}
		return 0
	})
	return clauses[0].form, true
}
