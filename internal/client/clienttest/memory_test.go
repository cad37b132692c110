package clienttest

import (
	"testing"

	"github.com/knarr-project/knarr/internal/client"
)

func TestMemoryConforms(t *testing.T) {
	Run(t, func(*testing.T) client.Interface { return NewMemory() })
}
