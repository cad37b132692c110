//go:build tools

// Package field pins the operator that the judge builds. The versions of its libraries are its own,
// since that is the operator that people run.
package field

import _ "github.com/cloudnative-pg/cloudnative-pg/cmd/manager"
