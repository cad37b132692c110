package wasm

// The signatures of assembled functions, by index.
const (
	toI32  = iota // () -> i32
	toI64         // () -> i64
	toNone        // () -> ()
	read2         // (i32, i32) -> i32
	write2        // (i32, i32) -> ()
	read4         // (i32, i32, i32, i32) -> i32
	write4
	write3
	write5
	write1
	signatures
)

var signatureTypes = [signatures][2]int{toI32: {0, 1}, toI64: {0, -1}, toNone: {0, 0}, read2: {2, 1}, write2: {2, 0}, read4: {4, 1}, write4: {4, 0}, write3: {3, 0}, write5: {5, 0}, write1: {1, 0}}

type imported struct {
	module, name string
	signature    int
}

type defined struct {
	name      string // of the export
	signature int
	code      []byte // without the end
}

// assemble makes a module with one page of memory.
func assemble(imports []imported, functions ...defined) []byte {
	section := func(out []byte, id byte, n int, entries []byte) []byte {
		return appendVector(append(out, id), append(appendUnsigned(nil, uint64(n)), entries...))
	}
	var types, imps, funcs, exps, codes []byte
	for _, s := range signatureTypes {
		types = append(types, 0x60)
		types = appendUnsigned(types, uint64(s[0]))
		for range s[0] {
			types = append(types, 0x7f)
		}
		switch s[1] {
		case 1:
			types = append(types, 1, 0x7f)
		case -1:
			types = append(types, 1, 0x7e)
		default:
			types = append(types, 0)
		}
	}
	for _, i := range imports {
		imps = appendVector(appendVector(imps, []byte(i.module)), []byte(i.name))
		imps = append(imps, 0, byte(i.signature))
	}
	exps = append(appendVector(nil, []byte("memory")), 2, 0)
	for i, f := range functions {
		funcs = append(funcs, byte(f.signature))
		exps = append(appendVector(exps, []byte(f.name)), 0)
		exps = appendUnsigned(exps, uint64(len(imports)+i))
		codes = appendVector(codes, append(append([]byte{0}, f.code...), 0x0b))
	}
	out := append([]byte{}, magic...)
	out = section(out, sectionType, int(signatures), types)
	out = section(out, sectionImport, len(imports), imps)
	out = section(out, sectionFunction, len(functions), funcs)
	out = section(out, 5, 1, []byte{0, 1})
	out = section(out, sectionExport, len(functions)+1, exps)
	return section(out, sectionCode, len(functions), codes)
}

// constI32 and constI64 push a number.
func constI32(n int32) []byte { return appendSigned([]byte{0x41}, int64(n)) }
func constI64(n int64) []byte { return appendSigned([]byte{0x42}, n) }

func callImport(index byte, args ...int32) (code []byte) {
	for _, a := range args {
		code = append(code, constI32(a)...)
	}
	return append(code, 0x10, index)
}

func join(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// forever is a loop without an end.
var forever = []byte{0x03, 0x40, 0x0c, 0, 0x0b}

// storeText writes a text to memory, byte by byte.
func storeText(at int32, text string) (code []byte) {
	for i := range len(text) {
		code = append(code, constI32(at+int32(i))...)
		code = append(code, constI32(int32(text[i]))...)
		code = append(code, 0x3a, 0, 0) // i32.store8
	}
	return code
}
