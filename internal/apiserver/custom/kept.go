package custom

import (
	"sync"
	"time"
)

// Kept is a value that is made when it is first needed and forgotten when nobody has asked for it for half a minute to a minute: of a thousand
// definitions only those in use cost what their schemas and rules take when they are compiled. Safe for concurrent use.
type Kept[T any] struct {
	make func() T

	mu    sync.Mutex
	value *T
	used  bool // since the last look
}

// NewKept gives a value that fn makes. Nothing runs until it is asked for.
func NewKept[T any](fn func() T) *Kept[T] { return &Kept[T]{make: fn} }

const keptLook = 30 * time.Second

// Get gives the value. Whoever got it may go on with it when it is forgotten.
func (k *Kept[T]) Get() T {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = true
	if k.value == nil {
		value := k.make()
		k.value = &value
		time.AfterFunc(keptLook, k.look)
	}
	return *k.value
}

func (k *Kept[T]) look() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.used {
		k.value = nil
		return
	}
	k.used = false
	time.AfterFunc(keptLook, k.look)
}
