package causes

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/insight/segments"
)

// The format of a Record: the revision and the time as differences to the Record before, the
// effect, ten texts, the request, the number of causes and each cause as a difference to the
// revision, then the note and the trace, if the effect has the bits hasNote and hasTrace. All
// numbers are varints. A text that was written before in the segment is its number.
//
// A text begins with one of these numbers; a higher one is the number of a known text plus
// firstKnown.
const (
	textEmpty  = iota
	textNew    // the length and the bytes follow
	textUUID   // 16 bytes follow
	firstKnown // of the known texts
)

// Bits of the effect's byte say that a note, and a trace, follow the causes.
const hasNote, hasTrace = 0x80, 0x40

// maxKnown bounds the known texts of a segment, and so the memory of its reader and writer.
const maxKnown = 8192

// encoder appends Records to a segment's bytes.
type encoder struct {
	place segments.Place
	known map[string]uint64
	// before are the texts of the Record before and their codes, which most often repeat.
	before [texts]struct {
		text string
		code uint64
	}
}

// append encodes a Record to the end of buf.
func (e *encoder) append(buf []byte, r *Record) []byte {
	buf = e.place.Append(buf, r.Revision, r.Time.UnixMicro())
	effect := byte(max(0, slices.Index(effects, r.Effect)))
	if r.Note != "" {
		effect |= hasNote
	}
	if r.Trace != "" {
		effect |= hasTrace
	}
	buf = append(buf, effect)
	for i, text := range r.texts() {
		if before := &e.before[i]; before.code != 0 && before.text == *text {
			buf = binary.AppendUvarint(buf, before.code)
			continue
		}
		buf = e.text(buf, *text, true)
		if n, ok := e.known[*text]; ok {
			e.before[i].text, e.before[i].code = *text, n+firstKnown
		}
	}
	buf = e.text(buf, r.Request, false)
	buf = append(buf, byte(r.Because.Len()))
	for _, cause := range r.Because.All() {
		buf = binary.AppendVarint(buf, r.Revision-cause)
	}
	if r.Note != "" {
		buf = e.text(buf, r.Note, false)
	}
	if r.Trace != "" {
		buf = e.text(buf, r.Trace, false)
	}
	return buf
}

func (e *encoder) text(buf []byte, text string, repeats bool) []byte {
	if text == "" {
		return append(buf, textEmpty)
	}
	if len(text) > maxText {
		text = text[:maxText]
	}
	if repeats {
		if n, ok := e.known[text]; ok {
			return binary.AppendUvarint(buf, n+firstKnown)
		}
		if len(e.known) < maxKnown {
			if e.known == nil {
				e.known = map[string]uint64{}
			}
			e.known[text] = uint64(len(e.known))
		}
	}
	if id, ok := parseUUID(text); ok {
		return append(append(buf, textUUID), id[:]...)
	}
	buf = binary.AppendUvarint(append(buf, textNew), uint64(len(text)))
	return append(buf, text...)
}

// parseUUID returns the bytes of a UUID in its usual form. Other texts of the same UUID, such as
// one in capital letters, are no such form: they would not read back the same.
func parseUUID(text string) (id [16]byte, ok bool) {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return id, false
	}
	at := 0
	for i := range id {
		if text[at] == '-' {
			at++
		}
		high, low := hexDigit(text[at]), hexDigit(text[at+1])
		if high > 15 || low > 15 {
			return id, false
		}
		id[i] = high<<4 | low
		at += 2
	}
	return id, true
}

func hexDigit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}

func formatUUID(id []byte) string {
	var out [36]byte
	hex.Encode(out[:8], id[:4])
	hex.Encode(out[9:13], id[4:6])
	hex.Encode(out[14:18], id[6:8])
	hex.Encode(out[19:23], id[8:10])
	hex.Encode(out[24:], id[10:16])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
	return string(out[:])
}

// decoder reads the Records of a segment in order.
type decoder struct {
	segments.Decoder
	place segments.Place
	known []string
}

// next decodes the Record at the beginning of Buf and removes it from there.
func (d *decoder) next(r *Record) error {
	if err := d.place.Next(&d.Decoder); err != nil {
		return err
	}
	*r = Record{Revision: d.place.Revision, Time: time.UnixMicro(d.place.Micros).UTC()}
	effect, err := d.Byte()
	if err != nil {
		return err
	}
	noted, traced, did := effect&hasNote != 0, effect&hasTrace != 0, int(effect&^(hasNote|hasTrace))
	if did >= len(effects) {
		return fmt.Errorf("%w: effect %d", segments.ErrMalformed, effect)
	}
	r.Effect = effects[did]
	for _, text := range r.texts() {
		if *text, err = d.text(true); err != nil {
			return err
		}
	}
	if r.Request, err = d.text(false); err != nil {
		return err
	}
	n, err := d.Byte()
	if err != nil {
		return err
	}
	if n > because.Max {
		return fmt.Errorf("%w: %d causes", segments.ErrMalformed, n)
	}
	for range n {
		back, err := d.Varint()
		if err != nil {
			return err
		}
		r.Because.Add(d.place.Revision - back)
	}
	if noted {
		if r.Note, err = d.text(false); err != nil {
			return err
		}
	}
	if traced {
		r.Trace, err = d.text(false)
	}
	return err
}

func (d *decoder) text(repeats bool) (text string, err error) {
	code, err := d.Uvarint()
	switch {
	case err != nil:
		return "", err
	case code == textEmpty:
		return "", nil
	case code == textNew:
		raw, err := d.Bytes(maxText)
		if err == nil && len(raw) == 0 {
			err = fmt.Errorf("%w: a text of 0 bytes", segments.ErrMalformed)
		}
		if err != nil {
			return "", err
		}
		text = string(raw)
	case code == textUUID:
		raw, err := d.Take(16)
		if err != nil {
			return "", err
		}
		text = formatUUID(raw)
	case code-firstKnown < uint64(len(d.known)):
		return d.known[code-firstKnown], nil
	default:
		return "", fmt.Errorf("%w: text %d of %d", segments.ErrMalformed, code-firstKnown, len(d.known))
	}
	if repeats && len(d.known) < maxKnown {
		d.known = append(d.known, text)
	}
	return text, nil
}
