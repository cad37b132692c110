package image

import "fmt"

// Limits bound what an archive may make of a node's disk. A layer of a few kilobytes can unpack to
// petabytes, or to more files than a file system holds.
type Limits struct {
	// UnpackedBytes is the sum of all layers, unpacked. The archive's own content must not be
	// larger either.
	UnpackedBytes int64
	// Entries is the number of files, folders and links of all layers.
	Entries int64
	// Ratio is the number of unpacked bytes for each compressed byte of a layer. Layers of up to
	// RatioFrom bytes may have any ratio.
	Ratio, RatioFrom int64
	// Layers is the number of layers of one image.
	Layers int
}

// DefaultLimits are the limits without flags.
var DefaultLimits = Limits{UnpackedBytes: 64 << 30, Entries: 1_000_000, Ratio: 100, RatioFrom: 1 << 30, Layers: 500}

// Limits without a setting.
const (
	maxPath      = 4096      // PATH_MAX of Linux
	maxDocument  = 4 << 20   // of a manifest, an index or a configuration, as in registries
	maxDocuments = 64 << 20  // of all manifests and indexes
	maxManifests = 1000      // of an archive
	maxBlobs     = 10_000    // files of an archive
	maxDepth     = 4         // of indexes in indexes
	maxWindow    = 128 << 20 // of zstd's history, which the decompressor keeps in memory
	maxLimit     = 1 << 60   // sums of sizes stay within 64 bits
)

// Fields of LimitError. The first four have a setting.
const (
	FieldUnpackedBytes = "unpacked bytes"
	FieldEntries       = "entries"
	FieldRatio         = "unpacked bytes for each compressed byte"
	FieldLayers        = "layers"

	fieldPath      = "bytes of a path"
	fieldDocument  = "bytes of a manifest"
	fieldDocuments = "bytes of all manifests"
	fieldManifests = "manifests"
	fieldBlobs     = "files of the archive"
	fieldDepth     = "indexes in one another"
)

// LimitError is an archive that exceeds a limit.
type LimitError struct {
	Field   string
	Value   int64 // what was counted when the load ended
	Allowed int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: found %d, allowed are %d", e.Field, e.Value, e.Allowed)
}

// check returns an error if the value exceeds the limit.
func check(field string, value, allowed int64) error {
	if value <= allowed {
		return nil
	}
	return &LimitError{Field: field, Value: value, Allowed: allowed}
}

// Validate checks settings.
func (l Limits) Validate() error {
	for _, limit := range []struct {
		field string
		value int64
	}{
		{FieldUnpackedBytes, l.UnpackedBytes}, {FieldEntries, l.Entries}, {FieldRatio, l.Ratio}, {FieldLayers, int64(l.Layers)},
	} {
		if limit.value < 1 || limit.value > maxLimit {
			return fmt.Errorf("limit of %s: %d, allowed are 1 to %d", limit.field, limit.value, int64(maxLimit))
		}
	}
	return nil
}
