package zpages

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"sync"
)

// Identity identifies this machine's API server. Metrics contain its Hashed form under the label
// apiserver_id_hash.
var Identity = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		return "" // metrics still work without an identity
	}
	return "apiserver-" + host
})

// Hashed returns the form in which metrics show identifying texts.
func Hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}
