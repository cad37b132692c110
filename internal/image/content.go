package image

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// content is what an archive holds, as far as it decides what the archive unpacks to.
type content struct {
	limits    Limits
	blobs     map[string]blob   // by digest, without heads
	files     map[string]string // names in the archive → digests
	links     map[string]string // symbolic links in the archive
	documents map[string]document
	read      map[string]bool // names of the documents that an archive has once
	count     int64           // files and links
	bytes     int64           // of the files
	unpacked  size            // of all blobs, each once

	documentBytes int64
}

// document is a manifest or an index.
type document struct {
	Manifests []descriptor `json:"manifests"`
	Layers    []descriptor `json:"layers"`
	Config    descriptor   `json:"config"`
}

type descriptor struct {
	Digest string `json:"digest"`
}

func newContent(limits Limits) *content {
	return &content{
		limits: limits, blobs: map[string]blob{}, files: map[string]string{}, links: map[string]string{},
		documents: map[string]document{}, read: map[string]bool{},
	}
}

// enter counts a file of the archive before its content is read.
func (c *content) enter(name string, length int64) error {
	c.count++
	c.bytes += length
	if c.bytes < length {
		c.bytes = c.limits.UnpackedBytes + 1
	}
	return cmp.Or(
		check(FieldUnpackedBytes, c.bytes, c.limits.UnpackedBytes),
		check(fieldBlobs, c.count, maxBlobs),
		check(fieldPath, int64(len(name)), maxPath))
}

// once refuses a second document of the same name: readers differ in the one that they use.
func (c *content) once(name string) error {
	if c.read[name] {
		return fmt.Errorf("the archive holds %s twice", name)
	}
	c.read[name] = true
	return nil
}

// add records a measured blob.
func (c *content) add(name string, b blob) error {
	c.files[name] = b.digest
	if _, known := c.blobs[b.digest]; known {
		return nil
	}
	var d document
	if b.head != nil && json.Unmarshal(b.head, &d) == nil && len(d.Manifests)+len(d.Layers) > 0 {
		c.documents[b.digest] = d
		c.documentBytes += b.length
		err := cmp.Or(
			check(FieldLayers, int64(len(d.Layers)), int64(c.limits.Layers)),
			check(fieldManifests, int64(max(len(d.Manifests), len(c.documents))), maxManifests),
			check(fieldDocuments, c.documentBytes, maxDocuments))
		if err != nil {
			return err
		}
	}
	b.head = nil
	c.blobs[b.digest] = b
	c.unpacked.bytes += b.layer.bytes
	c.unpacked.entries += b.layer.entries
	return cmp.Or(
		check(FieldUnpackedBytes, c.unpacked.bytes, c.limits.UnpackedBytes),
		check(FieldEntries, c.unpacked.entries, c.limits.Entries))
}

// plan counts what containerd will unpack: each layer on top of the same ones once.
type plan struct {
	content *content
	chains  map[string]bool   // lists of layers that are counted
	absent  map[string]string // layers outside of the archive → their chain
	total   size
	visits  int64
}

func (c *content) plan() *plan {
	return &plan{content: c, chains: map[string]bool{}, absent: map[string]string{}}
}

// index counts the images of an OCI index.
func (p *plan) index(d document, depth int64) error {
	if err := check(fieldDepth, depth, maxDepth); err != nil {
		return err
	}
	for _, manifest := range d.Manifests {
		p.visits++
		if err := check(fieldManifests, p.visits, maxManifests); err != nil {
			return err
		}
		if err := check(fieldDocument, p.content.blobs[manifest.Digest].length, maxDocument); err != nil {
			return err
		}
		known := p.content.documents[manifest.Digest]
		if err := p.index(known, depth+1); err != nil {
			return err
		}
		layers := make([]string, len(known.Layers))
		for i, layer := range known.Layers {
			layers[i] = layer.Digest
		}
		if err := p.image(known.Config.Digest, layers); err != nil {
			return err
		}
	}
	return nil
}

// image counts the layers of one image.
func (p *plan) image(config string, layers []string) error {
	err := cmp.Or(
		check(FieldLayers, int64(len(layers)), int64(p.content.limits.Layers)),
		check(fieldDocument, p.content.blobs[config].length, maxDocument))
	if err != nil {
		return err
	}
	chain := ""
	for _, layer := range layers {
		chain = chainOf(chain, layer)
		if p.chains[chain] {
			continue
		}
		p.chains[chain] = true
		found, measured := p.content.blobs[layer]
		if !measured {
			if other := p.absent[layer]; other != "" && other != chain {
				return fmt.Errorf("layer %.80q is not in the archive, but is used several times", layer)
			}
			p.absent[layer] = chain
		}
		p.total.bytes += found.layer.bytes
		p.total.entries += found.layer.entries
		err := cmp.Or(
			check(FieldUnpackedBytes, p.total.bytes, p.content.limits.UnpackedBytes),
			check(FieldEntries, p.total.entries, p.content.limits.Entries))
		if err != nil {
			return err
		}
	}
	return nil
}

// chainOf names a list of layers by its last one and the name of those below.
func chainOf(below, layer string) string {
	sum := sha256.Sum256([]byte(below + "\n" + layer))
	return string(sum[:])
}

// dockerImage counts an image of docker's manifest.json, which names files of the archive.
func (p *plan) dockerImage(config string, layers []string) error {
	p.visits++
	if err := check(fieldManifests, p.visits, maxManifests); err != nil {
		return err
	}
	digests := make([]string, len(layers))
	for i, layer := range layers {
		digests[i] = p.content.digestOf(layer)
	}
	return p.image(p.content.digestOf(config), digests)
}

// digestOf returns the digest of a file or link of the archive. The name itself stands for a file
// that is not in the archive.
func (c *content) digestOf(name string) string {
	if target, link := c.links[name]; link {
		name = target
	}
	if digest, found := c.files[name]; found {
		return digest
	}
	if algorithm, hash, found := strings.Cut(strings.TrimPrefix(path.Clean(name), "blobs/"), "/"); found {
		return algorithm + ":" + hash
	}
	return name
}
