package main

// object is a Pod or Node in protobuf, as the host passes it. The numbers of the fields are in
// k8s.io/api/core/v1/generated.proto and k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto.
type object []byte

func (o object) label(key string) []byte      { return o.metadata(11, key) }
func (o object) annotation(key string) []byte { return o.metadata(12, key) }

// metadata looks a key up in a map of the object's metadata.
func (o object) metadata(field int, key string) []byte {
	for meta := o.first(1); len(meta) > 0; {
		number, entry, rest := next(meta)
		if number == field && string(object(entry).first(1)) == key {
			return object(entry).first(2)
		}
		meta = rest
	}
	return nil
}

// first returns the content of the first field with a number.
func (o object) first(field int) []byte {
	for len(o) > 0 {
		number, content, rest := next(o)
		if number == field {
			return content
		}
		o = rest
	}
	return nil
}

// next splits the first field from a message. Numbers have no content.
func next(b []byte) (field int, content, rest []byte) {
	tag, b := number(b)
	switch tag & 7 {
	case 0: // a number
		_, b = number(b)
	case 1: // 64 bits
		b = b[min(8, len(b)):]
	case 2: // bytes
		var size uint64
		size, b = number(b)
		size = min(size, uint64(len(b)))
		content, b = b[:size], b[size:]
	case 5: // 32 bits
		b = b[min(4, len(b)):]
	default:
		b = nil
	}
	return int(tag >> 3), content, b
}

// number reads a number of variable length.
func number(b []byte) (n uint64, rest []byte) {
	for i, c := range b {
		n |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return n, b[i+1:]
		}
	}
	return 0, nil
}
