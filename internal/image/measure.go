package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// size is what a layer unpacks to.
type size struct {
	bytes, entries int64
}

// blob is a measured file of an archive.
type blob struct {
	digest string // "sha256:..." of the content as it is
	length int64
	layer  size   // zero for other content than layers
	head   []byte // the whole content if it is small and begins like JSON
}

// copyMeasured copies a blob and measures it meanwhile. It keeps back the last part until the blob
// has been measured: so containerd never has the whole of a blob that exceeds the limits.
func copyMeasured(to io.Writer, from io.Reader, limits Limits) (blob, error) {
	reader, writer := io.Pipe()
	type result struct {
		size size
		err  error
	}
	done := make(chan result, 1)
	go func() {
		found, err := measure(reader, limits)
		if err == nil {
			_, err = io.Copy(io.Discard, reader)
		}
		reader.CloseWithError(err)
		done <- result{found, err}
	}()
	var out blob
	sum := sha256.New()
	parts := [2][]byte{make([]byte, 256<<10), make([]byte, 256<<10)}
	var kept []byte
	var err error
	for i := 0; err == nil; i++ {
		part := parts[i%2]
		n, readErr := io.ReadFull(from, part)
		part = part[:n]
		out.length += int64(n)
		sum.Write(part)
		out.keepHead(part)
		if n > 0 { // a pipe passes on empty writes
			if _, err = writer.Write(part); err != nil {
				break
			}
		}
		if _, err = to.Write(kept); err != nil {
			break
		}
		kept = part
		if errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF) {
			break
		}
		err = readErr
	}
	writer.CloseWithError(err) // nil is the end of the blob
	measured := <-done
	if err == nil {
		err = measured.err
	}
	if err == nil {
		_, err = to.Write(kept)
	}
	out.digest, out.layer = "sha256:"+hex.EncodeToString(sum.Sum(nil)), measured.size
	return out, err
}

func (b *blob) keepHead(part []byte) {
	if b.length == int64(len(part)) { // the first part
		if text := bytes.TrimLeft(part, " \t\r\n"); len(text) == 0 || text[0] == '{' {
			b.head = []byte{}
		}
	}
	switch {
	case b.head == nil:
	case b.length > maxDocument:
		b.head = nil
	default:
		b.head = append(b.head, part...)
	}
}

// measure reads a layer as containerd does: a tar, plain or compressed by gzip or zstd. It ignores
// content that is not a tar, as it cannot be unpacked.
func measure(from io.Reader, limits Limits) (size, error) {
	compressed := &countingReader{from: from}
	plain, packed, err := decompressor(bufio.NewReaderSize(compressed, 64<<10))
	if err != nil {
		return size{}, err
	}
	defer plain.Close()
	unpacked := &countingReader{from: plain}
	unpacked.check = func(count int64) error {
		if err := check(FieldUnpackedBytes, count, limits.UnpackedBytes); err != nil || !packed || count <= limits.RatioFrom {
			return err
		}
		return check(FieldRatio, count/max(compressed.count, 1), limits.Ratio)
	}
	found, err := measureTar(tar.NewReader(unpacked), limits)
	switch {
	case errors.Is(err, errNoTar):
		return size{}, unpacked.err // of the compression
	case err != nil:
		return size{}, err
	}
	// containerd decompresses what comes after the tar, too.
	if _, err := io.Copy(io.Discard, unpacked); err != nil {
		return size{}, err
	}
	found.bytes = max(found.bytes, unpacked.count)
	return found, nil
}

// errNoTar is content that does not begin as a tar.
var errNoTar = errors.New("not a tar")

func measureTar(archive *tar.Reader, limits Limits) (size, error) {
	var found size
	for {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return found, nil
		case found.entries == 0 && (errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF)):
			return size{}, errNoTar
		case err != nil:
			return size{}, err
		}
		found.entries++
		// A sparse file has more bytes than its part of the tar.
		if found.bytes += header.Size; found.bytes < header.Size {
			found.bytes = limits.UnpackedBytes + 1
		}
		err = cmp.Or(
			check(FieldEntries, found.entries, limits.Entries),
			check(FieldUnpackedBytes, found.bytes, limits.UnpackedBytes),
			check(fieldPath, int64(max(len(header.Name), len(header.Linkname))), maxPath))
		if err != nil {
			return size{}, err
		}
	}
}

// decompressor detects the compression from the first bytes, as containerd does. A plain stream is
// returned as it is.
func decompressor(from *bufio.Reader) (plain io.ReadCloser, packed bool, err error) {
	magic, err := from.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b, 0x08}):
		plain, err = gzip.NewReader(from)
		return plain, true, err
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}),
		isSkippable(magic):
		decoder, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, false, err
		}
		return decoder.IOReadCloser(), true, nil
	default:
		return io.NopCloser(from), false, nil
	}
}

// countingReader counts the bytes, and ends with an error when check returns one.
type countingReader struct {
	from  io.Reader
	count int64
	err   error // of the reader, other than its end
	check func(count int64) error
}

func (r *countingReader) Read(buffer []byte) (int, error) {
	n, err := r.from.Read(buffer)
	r.count += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	if r.check != nil {
		if limit := r.check(r.count); limit != nil {
			return 0, limit
		}
	}
	return n, err
}

// isSkippable tells a frame of zstd that decompressors skip. Content can begin with one.
func isSkippable(magic []byte) bool {
	return len(magic) == 4 && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:], []byte{0x2a, 0x4d, 0x18})
}
