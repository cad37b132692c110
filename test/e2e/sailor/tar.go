package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// tarball packs one file to the standard output (tar cf - FILE) or unpacks files from the standard
// input (tar -xmf - [-C FOLDER]).
func tarball(args []string) error {
	folder := "/"
	for i, arg := range args {
		if arg == "-C" && i+1 < len(args) {
			folder = args[i+1]
		}
	}
	switch {
	case len(args) == 3 && args[0] == "cf":
		return pack(args[2])
	case strings.Contains(strings.Join(args, " "), "-xmf -"):
		return unpack(folder)
	}
	return fmt.Errorf("tar %v is not known", args)
}

func pack(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	w := tar.NewWriter(os.Stdout)
	if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.Close()
}

func unpack(folder string) error {
	r := tar.NewReader(os.Stdin)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, h.Name), data, os.FileMode(h.Mode)); err != nil {
			return err
		}
	}
}
