package main

import (
	"bytes"
	"os"
	"testing"
)

func TestTheGeneratedFileIsCurrent(t *testing.T) {
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../internal/api/openapi/zz_generated_enums.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Error("run go generate ./internal/api/openapi")
	}
}
