package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/knarr-project/knarr/internal/durable"
)

// Records remembers the images that the kubelet pulled, and the credentials that opened their
// registries. The index in memory answers; the files below the kubelet's folder restore it after a
// restart:
//
//	pulling/sha256-HASH  ImagePullIntent, while a pull runs
//	pulled/sha256-HASH   ImagePulledRecord, as long as the image exists
//
// The intent is on disk before a pull, and goes when its record is on disk. So an image without a
// record and without an intent was loaded by other means. An unreadable file counts as a record
// without credentials. Records is safe for concurrent use.
type Records struct {
	pulling, pulled string
	now             func() time.Time
	log             *slog.Logger

	// disk serializes changes of the files and of the index. It is taken before mu.
	disk sync.Mutex
	// mu guards the index. Keys are file names. Values of known are never changed.
	mu      sync.RWMutex
	known   map[string]known
	intents map[string]*intent
}

type known struct {
	record  kubeletconfig.ImagePulledRecord
	changed time.Time
}

// intent is about one image name. It is left over when no pull runs and the last result is unknown.
type intent struct {
	image  string // empty if the file is unreadable
	before string // the reference before the pulls, if they are of this process
	pulls  int    // running pulls
	ended  time.Time
}

// OpenRecords reads the records in a folder, which is made if it does not exist.
func OpenRecords(dir string, now func() time.Time, log *slog.Logger) (*Records, error) {
	r := &Records{
		pulling: filepath.Join(dir, "pulling"), pulled: filepath.Join(dir, "pulled"), now: now, log: log,
		known: map[string]known{}, intents: map[string]*intent{},
	}
	at := now()
	err := readFolder(r.pulling, log, func(name string, data []byte) error {
		i, err := parseIntent(name, data)
		r.intents[name] = &intent{ended: at}
		if err == nil {
			r.intents[name].image = i.Image
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = readFolder(r.pulled, log, func(name string, data []byte) error {
		p, err := parsePulled(name, data)
		if err != nil {
			p = &kubeletconfig.ImagePulledRecord{}
		}
		r.known[name] = known{*p, at}
		return err
	})
	return r, err
}

// readFolder hands each record over, without content if it cannot be read. It removes unfinished
// files.
func readFolder(dir string, log *slog.Logger, record func(name string, data []byte) error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("records of images: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("records of images: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fmt.Errorf("records of images: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, "."+filePrefix) {
			if err := root.Remove(name); err != nil {
				log.Warn("cannot remove an unfinished record of an image", "file", filepath.Join(dir, name), "error", err)
			}
			continue
		}
		if !strings.HasPrefix(name, filePrefix) || len(name) != fileNameLength {
			continue
		}
		data, err := readRecord(root, name)
		if parsed := record(name, data); err == nil {
			err = parsed
		}
		if err != nil {
			log.Warn("cannot use a record of an image; its credentials are checked again", "file", filepath.Join(dir, name), "error", err)
		}
	}
	return nil
}

// find returns the credentials recorded for the image's repository. pulled means that the kubelet
// pulled the image with this reference.
func (r *Records) find(image, ref string) (recorded kubeletconfig.ImagePullCredentials, pulled bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if k, ok := r.known[fileName(ref)]; ok {
		return k.record.CredentialMapping[repository(image)], true
	}
	if len(r.intents) == 0 {
		return recorded, false
	}
	i := r.intents[fileName(image)]
	// A running pull that has changed nothing says nothing about the image.
	return recorded, i != nil && (i.before == "" || i.before != ref)
}

// begin records that a pull starts. before is the reference that the image has now, if any.
func (r *Records) begin(image, before string) error {
	r.disk.Lock()
	defer r.disk.Unlock()
	name := fileName(image)
	r.mu.RLock()
	_, there := r.intents[name]
	r.mu.RUnlock()
	if !there {
		if err := writeRecord(filepath.Join(r.pulling, name), durable.WriteFile, kubeletconfig.ImagePullIntent{TypeMeta: typeOf(kindIntent), Image: image}); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !there {
		r.intents[name] = &intent{image: image, before: before}
	}
	r.intents[name].pulls++
	return nil
}

// succeeded records the result of a pull, and where the credentials that opened the registry came
// from. Without credentials, it is the node itself.
func (r *Records) succeeded(image, ref string, from source) {
	r.disk.Lock()
	defer r.disk.Unlock()
	if err := r.put(ref, durable.WriteFile, add(repository(image), from)); err != nil {
		r.log.Warn("cannot record the credentials of an image; they are checked again after a restart", "image", image, "error", err)
		r.end(image, false) // the intent stays for the next start
		return
	}
	r.end(image, true)
}

// failed records that a pull ended without an image. If the pull was interrupted, the runtime may
// have finished it: then the intent is left over.
func (r *Records) failed(image string, interrupted bool) {
	r.disk.Lock()
	defer r.disk.Unlock()
	r.end(image, !interrupted)
}

// end counts a pull as ended. The intent goes with the last pull, if its result is clear. The
// caller holds disk.
func (r *Records) end(image string, clear bool) {
	name := fileName(image)
	r.mu.Lock()
	i := r.intents[name]
	i.pulls--
	if !clear || i.pulls > 0 {
		i.ended = r.now()
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	r.drop(name)
}

// drop removes an intent. The caller holds disk.
func (r *Records) drop(name string) {
	if err := os.Remove(filepath.Join(r.pulling, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("cannot remove the record of a pull", "error", err)
	}
	r.mu.Lock()
	delete(r.intents, name)
	r.mu.Unlock()
}

// extend adds a secret that covers the image to its record. A lost write costs nothing: the content
// still covers the secret.
func (r *Records) extend(image, ref string, secret kubeletconfig.ImagePullSecret) {
	r.disk.Lock()
	defer r.disk.Unlock()
	if _, ok := r.known[fileName(ref)]; !ok {
		return // the image was removed meanwhile
	}
	if err := r.put(ref, durable.Replace, add(repository(image), source{secret: &secret})); err != nil {
		r.log.Warn("cannot extend the record of an image", "image", image, "error", err)
	}
}

// change returns the next mapping. The old one is not changed.
type change func(old map[string]kubeletconfig.ImagePullCredentials) map[string]kubeletconfig.ImagePullCredentials

func add(repository string, from source) change {
	return func(old map[string]kubeletconfig.ImagePullCredentials) map[string]kubeletconfig.ImagePullCredentials {
		out := map[string]kubeletconfig.ImagePullCredentials{}
		for k, v := range old {
			// Beyond the bound, any other repository is forgotten: its next use is checked.
			if k != repository && len(out) < maxRepository-1 {
				out[k] = v
			}
		}
		out[repository] = merge(old[repository], from)
		return out
	}
}

// put changes the record of a reference, or makes one. The index has it even if the write fails.
// The caller holds disk.
func (r *Records) put(ref string, write func(string, []byte) error, next change) error {
	name, at := fileName(ref), r.now()
	record := kubeletconfig.ImagePulledRecord{TypeMeta: typeOf(kindPulled), LastUpdatedTime: metav1.NewTime(at), ImageRef: ref}
	record.CredentialMapping = next(r.known[name].record.CredentialMapping)
	r.mu.Lock()
	r.known[name] = known{record, at}
	r.mu.Unlock()
	return writeRecord(filepath.Join(r.pulled, name), write, record)
}

func writeRecord(path string, write func(string, []byte) error, record any) error {
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return write(path, data)
}
