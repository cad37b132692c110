//go:build !inprocess

package runc

import program "github.com/knarr-project/knarr/runtime/go-runc"

// Runc executes the program runc. containerd itself is built with this one: it only needs the
// types.
type Runc = program.Runc
