// Command reference writes the generated pages of docs/reference.
// Usage: reference FOLDER.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/knarr-project/knarr/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: reference FOLDER")
		os.Exit(2)
	}
	for name, text := range cli.Reference() {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "reference:", err)
			os.Exit(1)
		}
	}
}
