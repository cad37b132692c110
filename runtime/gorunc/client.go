//go:build !inprocess

package runc

import program "github.com/knarr-project/knarr/runtime/go-runc"

// Runc executes the program: this is what containerd itself is built with, which only needs the types.
type Runc = program.Runc
