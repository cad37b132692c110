//go:build tools

// Package critest pins critest, the suite that validates container runtimes. run.sh runs it against
// the included runtime.
package critest

import (
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
