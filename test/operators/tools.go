//go:build tools

// Package operators pins the modules whose suites run.sh runs.
package operators

import _ "sigs.k8s.io/gateway-api/apis/v1"
