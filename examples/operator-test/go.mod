module github.com/knarr-project/knarr/examples/operator-test

go 1.26.0

require (
	github.com/knarr-project/knarr v0.0.0
	k8s.io/api v0.36.3
	k8s.io/apimachinery v0.36.3
	k8s.io/client-go v0.36.3
	sigs.k8s.io/controller-runtime v0.24.1
)

// A project of its own leaves this line out.
replace github.com/knarr-project/knarr => ../..
