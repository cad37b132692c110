package zpages

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"sync"
)

// Identity tells this machine's API server from those of others. Metrics have Hashed of it, under the label apiserver_id_hash.
var Identity = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		return "" // metrics tell of this server all the same
	}
	return "apiserver-" + host
})

// Hashed is how metrics show what they do not spell out.
func Hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}
