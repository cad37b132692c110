package images

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/knarr-project/knarr/internal/durable"
)

// keepIntent is how long a left over intent stays when its image is absent. A runtime that the
// kubelet no longer waits for may finish a pull in this time.
const keepIntent = 2 * time.Minute

// settle turns left over intents into records: their images count as pulled, without known
// credentials. status returns the reference of a present image.
func (r *Records) settle(status func(image string) (ref string, err error)) {
	for _, left := range r.leftOver() {
		ref, err := status(left.image)
		if err != nil {
			continue // the intent counts until the runtime answers
		}
		r.settleOne(left, ref)
	}
}

func (r *Records) leftOver() (left []intent) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, i := range r.intents {
		if i.pulls == 0 && i.image != "" {
			left = append(left, *i)
		}
	}
	return left
}

func (r *Records) settleOne(left intent, ref string) {
	r.disk.Lock()
	defer r.disk.Unlock()
	name := fileName(left.image)
	r.mu.RLock()
	i := r.intents[name]
	stale := i == nil || *i != left // a pull began or ended meanwhile
	_, recorded := r.known[fileName(ref)]
	r.mu.RUnlock()
	switch {
	case stale:
		return
	case ref == "" && r.now().Sub(left.ended) < keepIntent:
		return
	case ref != "" && (recorded || ref != left.before): // the write of a known record failed
		same := func(old map[string]kubeletconfig.ImagePullCredentials) map[string]kubeletconfig.ImagePullCredentials {
			return old
		}
		if err := r.put(ref, durable.WriteFile, same); err != nil {
			r.log.Warn("cannot record an image whose pull was interrupted", "image", left.image, "error", err)
			return
		}
	}
	r.drop(name)
}

// prune removes the records of images that are not among refs. The list was asked for at since:
// later records stay.
func (r *Records) prune(refs []string, since time.Time) {
	there := map[string]bool{}
	for _, ref := range refs {
		there[fileName(ref)] = true
	}
	r.disk.Lock()
	defer r.disk.Unlock()
	for name, k := range r.known {
		if there[name] || !k.changed.Before(since) {
			continue
		}
		if err := os.Remove(filepath.Join(r.pulled, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.log.Warn("cannot remove the record of an image", "error", err)
			continue
		}
		r.mu.Lock()
		delete(r.known, name)
		r.mu.Unlock()
	}
}
