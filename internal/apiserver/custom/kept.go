package custom

import (
	"sync"
	"time"
)

// Kept is a value that is made when it is first needed and forgotten when nobody has asked for it for half a minute to a minute: of a thousand
// definitions only those in use cost what their schemas and rules take when they are compiled. Safe for concurrent use.
//
// Who installs a thousand definitions asks once for what each compiles to, and not again; all of that at a time would be gigabytes, of which the
// few objects that stay, strewn among them, would hold a part for good. So a value that nobody has asked for on two occasions is a newcomer, and the oldest newcomer
// is forgotten when there are too many. Whoever is asked for again within a minute after that is none: values in use are made twice at most, however many there are.
type Kept[T any] struct {
	make func() T

	mu       sync.Mutex
	value    *T
	made     time.Time
	newcomer bool
	used     bool        // since the last look
	timer    *time.Timer // to the next look, while there is a value
}

// NewKept gives a value that fn makes. Nothing runs until it is asked for.
func NewKept[T any](fn func() T) *Kept[T] { return &Kept[T]{make: fn} }

const (
	keptLook = 30 * time.Second
	// occasion is how long one request may go on asking.
	occasion = time.Second
	// mostNewcomers are those of some twenty definitions, which have three each: about 40 MB when they are large.
	mostNewcomers = 64
)

// Get gives the value. Whoever got it may go on with it when it is forgotten.
func (k *Kept[T]) Get() T {
	value, arrives := k.get(time.Now())
	if arrives {
		if oldest := arrivals.add(k); oldest != nil {
			oldest.giveWay()
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
	k.newcomer = k.made.IsZero() || now.Sub(k.made) > 2*keptLook
	k.made = now
	if k.timer == nil {
		k.timer = time.AfterFunc(keptLook, k.look)
	} else {
		k.timer.Reset(keptLook)
	}
	return value, k.newcomer
}

func (k *Kept[T]) look() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.value == nil:
	case !k.used:
		k.value = nil
	default:
		k.used = false
		k.timer.Reset(keptLook)
	}
}

// giveWay forgets the value of a newcomer.
func (k *Kept[T]) giveWay() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.newcomer {
		k.value = nil
	}
}

// arrivals are the newest newcomers of the whole process, and some who are none any more.
var arrivals queue

type queue struct {
	mu   sync.Mutex
	ring [mostNewcomers]interface{ giveWay() }
	next int
}

// add gives whoever has to make room, if any.
func (q *queue) add(k interface{ giveWay() }) (oldest interface{ giveWay() }) {
	q.mu.Lock()
	defer q.mu.Unlock()
	oldest, q.ring[q.next] = q.ring[q.next], k
	q.next = (q.next + 1) % len(q.ring)
	return oldest
}
