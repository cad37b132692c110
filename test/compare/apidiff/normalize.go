package main

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"strings"
)

var (
	uuid     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	moment   = regexp.MustCompile(`20[2-9][0-9]-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	token    = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
	suffixed = regexp.MustCompile(`\bgen-[bcdfghjklmnpqrstvwxz2456789]{5}\b`)
	revision = regexp.MustCompile(`(StorageError: |ResourceVersion|resourceVersion|resource version)[^"]{0,40}?\d+`)
	port     = regexp.MustCompile(`\b3[0-2]\d{3}\b`)
	quoted   = regexp.MustCompile(`10\.47\.\d+\.\d+`)
	age      = regexp.MustCompile(`^\d+s$`)
	address  = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// normalize takes out of an answer what must differ between two servers. It changes v.
func normalize(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			switch k {
			case "uid", "resourceVersion", "selfLink", "remainingItemCount":
				if s, ok := x.(string); ok && s != "" {
					v[k] = "<" + k + ">"
				}
			case "continue":
				v[k] = "<continue>"
			case "creationTimestamp", "deletionTimestamp", "time":
				if x != nil {
					v[k] = "<time>"
				}
			default:
				v[k] = normalize(x, k)
			}
		}
	case []any:
		for i, x := range v {
			v[i] = normalize(x, key)
		}
	case string:
		if key == "cells" {
			return port.ReplaceAllString(age.ReplaceAllString(text(v), "<age>"), "<port>")
		}
		return text(v)
	case json.Number:
		if key == "nodePort" || key == "healthCheckNodePort" {
			return port.ReplaceAllString(v.String(), "<port>")
		}
	}
	return v
}

func text(s string) string {
	s = uuid.ReplaceAllString(s, "<uid>")
	s = token.ReplaceAllString(s, "kube-api-access-<random>")
	s = suffixed.ReplaceAllString(s, "gen-<random>")
	s = revision.ReplaceAllString(s, "$1<revision>")
	if !strings.HasPrefix(s, "2024-") {
		s = moment.ReplaceAllString(s, "<time>")
	}
	if a, err := netip.ParseAddr(s); err == nil && netip.MustParsePrefix(serviceRange).Contains(a) {
		return "<ip>"
	}
	return quoted.ReplaceAllString(address.ReplaceAllString(s, "<server>"), "<ip>")
}
