package main

import (
	"bytes"
	"os"
	"testing"
)

// docs/images/up.svg must be drawn from docs/images/up.cast.
func TestThePictureIsCurrent(t *testing.T) {
	var drawn bytes.Buffer
	if err := draw("../../docs/images/up.cast", &drawn); err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile("../../docs/images/up.svg")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(drawn.Bytes(), picture) {
		t.Error("the picture is stale: go run ./hack/cast draw docs/images/up.cast >docs/images/up.svg")
	}
}
