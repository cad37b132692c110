package custom

import (
	"sync"
	"time"
)

// Kept makes a value at its first use, and forgets it after 30 to 60 s without use. Of a thousand
// definitions, only those in use cost the memory of their compiled schemas and rules. Safe for
// concurrent use.
//
// A client that installs a thousand definitions uses each compiled value once. Together they would
// take gigabytes, and the few surviving objects among them would keep a part of this memory for
// good. So a value is a newcomer until it is used on a second occasion. The process keeps
// mostNewcomers of them and forgets the oldest. A value that is made again within a minute is not a
// newcomer: a value in use is made at most twice.
type Kept[T any] struct {
	make func() T

	mu       sync.Mutex
	value    *T
	made     time.Time
	newcomer bool
	used     bool        // since the last check
	timer    *time.Timer // to the next check, while there is a value
}

// NewKept makes a Kept whose value is made by fn. fn is not called before Get.
func NewKept[T any](fn func() T) *Kept[T] { return &Kept[T]{make: fn} }

const (
	keptCheck = 30 * time.Second
	// occasion is the time within which all uses count as one.
	occasion = time.Second
	// mostNewcomers is enough for some twenty definitions, which have three values each. If these
	// are large, they take about 40 MB.
	mostNewcomers = 64
)

// Get returns the value. The caller may keep it after the Kept forgets it.
func (k *Kept[T]) Get() T {
	value, arrives := k.get(time.Now())
	if arrives {
		if oldest := arrivals.add(k); oldest != nil {
			oldest.forget()
		}
	}
	return value
}

func (k *Kept[T]) get(now time.Time) (value T, arrives bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = true
	if k.value != nil {
		k.newcomer = k.newcomer && now.Sub(k.made) < occasion
		return *k.value, false
	}
	value = k.make()
	k.value = &value
	k.newcomer = k.made.IsZero() || now.Sub(k.made) > 2*keptCheck
	k.made = now
	if k.timer == nil {
		k.timer = time.AfterFunc(keptCheck, k.check)
	} else {
		k.timer.Reset(keptCheck)
	}
	return value, k.newcomer
}

func (k *Kept[T]) check() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.value == nil:
	case !k.used:
		k.value = nil
	default:
		k.used = false
		k.timer.Reset(keptCheck)
	}
}

// forget forgets the value of a newcomer.
func (k *Kept[T]) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.newcomer {
		k.value = nil
	}
}

// arrivals has the latest newcomers of the process. Some of them may have become regular values.
var arrivals queue

type queue struct {
	mu   sync.Mutex
	ring [mostNewcomers]interface{ forget() }
	next int
}

// add returns the value to forget; nil if there is none.
func (q *queue) add(k interface{ forget() }) (oldest interface{ forget() }) {
	q.mu.Lock()
	defer q.mu.Unlock()
	oldest, q.ring[q.next] = q.ring[q.next], k
	q.next = (q.next + 1) % len(q.ring)
	return oldest
}
