//go:build tools

// Package operators keeps the modules in go.mod whose suites run.sh runs.
package operators

import _ "sigs.k8s.io/gateway-api/apis/v1"
