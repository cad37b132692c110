package core_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestServiceAccountsAreWarnedOfANewAnnotationOnly(t *testing.T) {
	account := func(value string) string {
		return "apiVersion: v1\nkind: ServiceAccount\nmetadata: {annotations: {kubernetes.io/enforce-mountable-secrets: '" + value + "'}}\n"
	}
	old, s := resourcetest.Read(t, rules.For, account("false"))
	obj, _ := resourcetest.Read(t, rules.For, account("true"))
	if got := s.Warnings(obj, old); len(got) > 0 {
		t.Errorf("it was there before: %v", got)
	}
}

func TestWarningsOfServiceAccounts(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a service account with secrets", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {annotations: {kubernetes.io/enforce-mountable-secrets: 'false'}}\n", []string{
			"metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectWarnings(t, s.Warnings(obj, nil), c.want)
		})
	}
}
