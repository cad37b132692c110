package local

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Names that the controller and the nodes agree on.
const (
	// Provisioner is the provisioner of StorageClasses for local volumes.
	Provisioner = "local.knarr.dev"
	// ReportAnnotation of a Node has its Report.
	ReportAnnotation = "local.knarr.dev/report"
	// NodeLabel of a PersistentVolume selects the volumes of one node. Its value is LabelOf(node).
	NodeLabel = "local.knarr.dev/node"
	// NodeAnnotation of a PersistentVolume is the name of its node.
	NodeAnnotation = "local.knarr.dev/node"
	// FolderAnnotation of a PersistentVolume is the name of its folder on the node.
	FolderAnnotation = "local.knarr.dev/folder"
	// KindAnnotation of a PersistentVolume is its Kind.
	KindAnnotation = "local.knarr.dev/kind"
	// PendingAnnotation of a PersistentVolume names the step that its node has to take: PendingMake
	// or PendingGrow.
	PendingAnnotation = "local.knarr.dev/pending"
	PendingMake       = "make"
	PendingGrow       = "grow"
	// Finalizer keeps a deleted PersistentVolume until its node has removed the content.
	Finalizer = "local.knarr.dev/content"
)

// Parameters of a StorageClass.
const (
	// ParameterFolder is the name of a node's folder. Default DefaultFolder.
	ParameterFolder = "folder"
	DefaultFolder   = "default"
	// ParameterEnforce says how the size of a file system is enforced. Default EnforceAuto.
	ParameterEnforce = "enforce"
	EnforceAuto      = "auto"  // by quota if the node's file system has one, else not
	EnforceQuota     = "quota" // by project quota; nodes without one get no volume
	EnforceImage     = "image" // by an ext4 image
	EnforceNone      = "none"
)

// Kind says how a volume is stored.
type Kind string

const (
	Plain Kind = "plain" // a folder; its size is not enforced
	Quota Kind = "quota" // a folder with a project quota
	Image Kind = "image" // an ext4 file system in a file
	Block Kind = "block" // a file behind a loop device
)

// Known reports whether k is one of the kinds.
func (k Kind) Known() bool { return k == Plain || k == Quota || k == Image || k == Block }

// Report is what a node says about its folders, and about the volumes that the controller waits
// for.
type Report struct {
	Folders map[string]Folder `json:"folders"`
	// Volumes has the answers for volumes that are pending or being deleted, by the name of the
	// PersistentVolume.
	Volumes map[string]Answer `json:"volumes,omitempty"`
}

// Folder is a place for volumes on a node. Sizes are in bytes.
type Folder struct {
	Path string `json:"path"`
	// Size is the size of the file system less the reserved part.
	Size int64 `json:"size"`
	// Room is what volumes with an enforced size may use: the available bytes less the reserved
	// part, and what such volumes use already.
	Room int64 `json:"room"`
	// Quota, Image and Loop tell which kinds the node can make here. Loop stands for Block.
	Quota bool `json:"quota,omitempty"`
	Image bool `json:"image,omitempty"`
	Loop  bool `json:"loop,omitempty"`
	// Trouble says why the node makes no volumes here; "" if it does.
	Trouble string `json:"trouble,omitempty"`
}

// State is a node's answer for one volume.
type State string

const (
	Ready   State = "ready"   // it exists in at least the size Bytes
	Failed  State = "failed"  // the pending step failed, for the reason Message
	Removed State = "removed" // nothing of it is left on the node
)

// Answer is a node's state of one volume.
type Answer struct {
	State   State  `json:"state"`
	Bytes   int64  `json:"bytes,omitempty"`
	Message string `json:"message,omitempty"`
}

const (
	// maxAnswers bounds the annotation. Further volumes are answered when these are done.
	maxAnswers = 500
	maxMessage = 300
	// maxReport is more than maxAnswers answers need; all annotations of an object have 256 KiB.
	maxReport = 200 << 10
)

// ParseReport reads the annotation of a Node. A node without one has an empty Report.
func ParseReport(node *corev1.Node) (Report, error) {
	var r Report
	text, ok := node.Annotations[ReportAnnotation]
	if !ok {
		return r, nil
	}
	if len(text) > maxReport {
		return r, fmt.Errorf("node %s: annotation %s has %d bytes; at most %d are allowed", node.Name, ReportAnnotation, len(text), maxReport)
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Report{}, fmt.Errorf("node %s: annotation %s: %w", node.Name, ReportAnnotation, err)
	}
	for name, f := range r.Folders {
		if f.Size < 0 || f.Room < 0 {
			return Report{}, fmt.Errorf("node %s: annotation %s: folder %s has a negative size", node.Name, ReportAnnotation, name)
		}
	}
	return r, nil
}

func (r Report) encode() (string, error) {
	data, err := json.Marshal(r)
	return string(data), err
}

// LabelOf returns the value of NodeLabel for a node. Label values are shorter than names may be.
func LabelOf(node string) string {
	if len(node) <= validation.LabelValueMaxLength {
		return node
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(node)))[:40]
}

// Free returns the bytes that are left for one more volume of a folder. allocated is the sum of all
// its volumes' sizes, enforced of those with an enforced size. What such a volume does not use yet
// is kept free for it.
func (f Folder) Free(allocated, enforced int64) int64 {
	return max(0, min(f.Size-allocated, f.Room-enforced))
}

// KindFor chooses the kind of a volume in the folder. why says why there is none.
func (f Folder) KindFor(enforce string, block bool) (kind Kind, why string) {
	switch {
	case f.Trouble != "":
		return "", f.Trouble
	case block && f.Loop:
		return Block, ""
	case block:
		return "", "the node has no loop devices for volumes of mode Block"
	}
	switch enforce {
	case "", EnforceAuto:
		if f.Quota {
			return Quota, ""
		}
		return Plain, ""
	case EnforceNone:
		return Plain, ""
	case EnforceQuota:
		if f.Quota {
			return Quota, ""
		}
		return "", "the file system of the folder has no project quota (mount option prjquota)"
	case EnforceImage:
		if f.Image {
			return Image, ""
		}
		return "", "the node cannot make images: it needs mkfs.ext4 and loop devices"
	}
	return "", fmt.Sprintf("parameter %s of the class is %q: allowed are %s, %s, %s and %s", ParameterEnforce, enforce, EnforceAuto, EnforceQuota, EnforceImage, EnforceNone)
}
