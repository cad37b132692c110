package main

import (
	"strings"
	"testing"
)

func TestComplaintsAboutDifferentObjectsAreOne(t *testing.T) {
	c := complaints{}
	if err := c.readLog("controllers", []byte(`I1122 02:55:25.789996      38 a.go:1] "fine"
E1122 02:55:25.789996      38 b.go:22] "bad" err="pods \"web-7d4f8bcd9-x2vzq\" not found" uid="0b6f2a0e-6c2f-4f7e-9c7e-0123456789ab"
E1122 02:55:26.789996      38 b.go:22] "bad" err="pods \"web-6c5f8bcd9-zzvzq\" not found" uid="1b6f2a0e-6c2f-4f7e-9c7e-0123456789ab"
time=2026-11-22T02:58:13.128Z level=WARN msg="odd" after=5s
2026/11/22 02:59:15 WARN can't do it after=5s
panic: oh
`)); err != nil {
		t.Fatal(err)
	}
	if len(c) != 4 {
		t.Errorf("wanted four complaints (one of klog, two of slog, a panic), got %q", c)
	}
}

func TestRefusedRequestsAreComplaints(t *testing.T) {
	event := func(user, verb, resource, name string, code int) string {
		return strings.NewReplacer("USER", user, "VERB", verb, "RESOURCE", resource, "NAME", name, "CODE", string('0'+rune(code/100))+string('0'+rune(code/10%10))+string('0'+rune(code%10))).Replace(
			`{"verb":"VERB","requestURI":"/x","user":{"username":"USER"},"objectRef":{"resource":"RESOURCE","name":"NAME"},"responseStatus":{"code":CODE}}`) + "\n"
	}
	c := complaints{}
	if err := c.readAudit([]byte(event("a", "list", "pods", "", 200) + event("a", "get", "pods", "x", 404) + event("a", "update", "pods", "x", 409) +
		event("admin", "create", "pods", "", 422) + event("a", "list", "pods", "", 403) + event("a", "list", "boats", "", 404))); err != nil {
		t.Fatal(err)
	}
	if len(c) != 2 {
		t.Errorf("wanted a 403 and a resource that is not there, got %q", c)
	}
}
