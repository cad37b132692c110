package wasm

import (
	"bytes"
	"errors"
	"fmt"
)

// The names of the function that a metered guest imports.
const (
	meterModule = "knarr"
	meterName   = "refuel"
)

// Sections of a module, by the WebAssembly core specification 2.0.
const (
	sectionCustom   = 0
	sectionType     = 1
	sectionImport   = 2
	sectionFunction = 3
	sectionTable    = 4
	sectionGlobal   = 6
	sectionExport   = 7
	sectionStart    = 8
	sectionElement  = 9
	sectionCode     = 10
	sectionData     = 11
	sectionCount    = 12
	sectionTag      = 13
)

// sectionOrder has the sections in the order of the specification.
var sectionOrder = []byte{
	sectionType, sectionImport, sectionFunction, sectionTable, 5, sectionTag, sectionGlobal, sectionExport, sectionStart, sectionElement, sectionCount, sectionCode, sectionData,
}

// maxTable is the maximum number of entries of a guest's table. Compilers make one for indirect
// calls.
const maxTable = 1 << 20

var magic = []byte{0, 'a', 's', 'm', 1, 0, 0, 0}

// meter rewrites a module so that it gives the host a chance to end it. The guest counts loops,
// calls and copied bytes down in a new global. At zero it calls the host function refuel, which
// returns a new amount, or ends the guest.
//
// wazero's own check leaves the compiled code in each iteration of each loop, and starts a
// goroutine for each call. See ADR 102.
//
// A module with an instruction that meter does not know is refused.
func meter(module []byte) ([]byte, error) {
	if !bytes.HasPrefix(module, magic) {
		return nil, errors.New("the content is not a WebAssembly module (version 1)")
	}
	m := &metered{sections: map[byte][]byte{}}
	r := &reader{buf: module[len(magic):]}
	for len(r.buf) > 0 && r.err == nil {
		id, body := r.byte(), r.vector()
		if id == sectionCustom {
			continue // names, whose indexes would be wrong, and debug data
		}
		if _, twice := m.sections[id]; twice {
			return nil, fmt.Errorf("section %d is there twice", id)
		}
		m.sections[id] = body
	}
	if r.err == nil {
		r.err = m.rewrite()
	}
	if r.err != nil {
		return nil, fmt.Errorf("read the module: %w", r.err)
	}
	out := bytes.Clone(magic)
	for _, id := range sectionOrder {
		if body, ok := m.sections[id]; ok {
			out = append(out, id)
			out = appendVector(out, body)
			delete(m.sections, id)
		}
	}
	for id := range m.sections {
		return nil, fmt.Errorf("read the module: section %d is unknown", id)
	}
	return out, nil
}

// metered is a module in the making.
type metered struct {
	sections  map[byte][]byte
	imported  uint32 // imported functions of the original; refuel gets this index
	functions uint32 // all functions of the original
	globals   uint32 // all globals of the original; the counter gets this index
	refuelSig uint32 // index of the type () -> i32
	chargeSig uint32 // index of the type (i32) -> i32
}

// shift returns the new index of a function.
func (m *metered) shift(index uint32) uint32 {
	if index >= m.imported {
		return index + 1
	}
	return index
}

// charge is the index of the new function that counts bytes.
func (m *metered) charge() uint32 { return m.functions + 1 }

func (m *metered) rewrite() error {
	for _, step := range []func() error{m.types, m.imports, m.declarations, m.tables, m.counter, m.exports, m.start, m.elements, m.bodies} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// types adds the types of refuel and charge.
func (m *metered) types() error {
	r := &reader{buf: m.sections[sectionType]}
	n := r.count(m.sections[sectionType])
	m.refuelSig, m.chargeSig = n, n+1
	out := appendUnsigned(nil, uint64(n)+2)
	out = append(out, r.buf...)
	out = append(out, 0x60, 0, 1, 0x7f)
	out = append(out, 0x60, 1, 0x7f, 1, 0x7f)
	m.sections[sectionType] = out
	return r.err
}

// imports adds refuel after the imported functions.
func (m *metered) imports() error {
	body := m.sections[sectionImport]
	r := &reader{buf: body}
	n := r.count(body)
	rest := r.buf
	for range n {
		r.vector()
		r.vector()
		switch kind := r.byte(); kind {
		case 0:
			r.unsigned()
			m.imported++
		case 1:
			r.byte()
			r.limits()
		case 2:
			r.limits()
		case 3:
			r.skip(2)
			m.globals++
		default:
			return fmt.Errorf("import of kind %d is not supported", kind)
		}
		if r.err != nil {
			return r.err
		}
	}
	out := appendUnsigned(nil, uint64(n)+1)
	out = append(out, rest...)
	out = appendVector(out, []byte(meterModule))
	out = appendVector(out, []byte(meterName))
	out = append(out, 0)
	m.sections[sectionImport] = appendUnsigned(out, uint64(m.refuelSig))
	return r.err
}

// declarations declares charge after the module's functions.
func (m *metered) declarations() error {
	body := m.sections[sectionFunction]
	r := &reader{buf: body}
	n := r.count(body)
	m.functions = m.imported + n
	out := appendUnsigned(nil, uint64(n)+1)
	out = append(out, r.buf...)
	m.sections[sectionFunction] = appendUnsigned(out, uint64(m.chargeSig))
	return r.err
}

// tables refuses large tables, which the memory limit does not cover.
func (m *metered) tables() error {
	body := m.sections[sectionTable]
	r := &reader{buf: body}
	for range r.count(body) {
		r.byte()
		if least := r.limits(); least > maxTable {
			return fmt.Errorf("a table has %d entries: at most %d are allowed", least, maxTable)
		}
		if r.err != nil {
			return r.err
		}
	}
	return r.err
}

// counter adds the global with the amount that is left. It starts with zero, so the guest asks
// before its first loop.
func (m *metered) counter() error {
	body := m.sections[sectionGlobal]
	r := &reader{buf: body}
	n := r.count(body)
	m.globals += n
	out := appendUnsigned(nil, uint64(n)+1)
	for range n {
		out = append(out, r.take(2)...)
		out = m.constant(r, out)
		if r.err != nil {
			return r.err
		}
	}
	m.sections[sectionGlobal] = append(out, 0x7f, 1, 0x41, 0, 0x0b)
	return r.err
}

func (m *metered) exports() error {
	body, ok := m.sections[sectionExport]
	if !ok {
		return nil
	}
	r := &reader{buf: body}
	n := r.count(body)
	out := appendUnsigned(nil, uint64(n))
	for range n {
		out = appendVector(out, r.vector())
		kind, index := r.byte(), r.unsigned()
		if kind == 0 {
			index = m.shift(index)
		}
		out = appendUnsigned(append(out, kind), uint64(index))
		if r.err != nil {
			return r.err
		}
	}
	m.sections[sectionExport] = out
	return r.err
}

func (m *metered) start() error {
	body, ok := m.sections[sectionStart]
	if !ok {
		return nil
	}
	r := &reader{buf: body}
	m.sections[sectionStart] = appendUnsigned(nil, uint64(m.shift(r.unsigned())))
	return r.err
}

// elements renumbers the functions in segments for tables.
func (m *metered) elements() error {
	body, ok := m.sections[sectionElement]
	if !ok {
		return nil
	}
	r := &reader{buf: body}
	n := r.count(body)
	out := appendUnsigned(nil, uint64(n))
	for range n {
		flags := r.unsigned()
		out = appendUnsigned(out, uint64(flags))
		if flags > 7 {
			return fmt.Errorf("an element segment has the flags %d: at most 7 are known", flags)
		}
		active := flags&1 == 0
		if active {
			if flags&2 != 0 {
				out = appendUnsigned(out, uint64(r.unsigned()))
			}
			out = m.constant(r, out)
		}
		if flags&3 != 0 {
			out = append(out, r.byte()) // kind or type
		}
		entries := r.unsigned()
		out = appendUnsigned(out, uint64(entries))
		for range entries {
			if flags&4 != 0 {
				out = m.constant(r, out)
			} else {
				out = appendUnsigned(out, uint64(m.shift(r.unsigned())))
			}
			if r.err != nil {
				return r.err
			}
		}
	}
	m.sections[sectionElement] = out
	return r.err
}

// constant copies a constant expression.
func (m *metered) constant(r *reader, out []byte) []byte {
	for depth := 1; depth > 0 && r.err == nil; {
		out, depth = m.instruction(r, out, depth, nil)
	}
	return out
}

// bodies adds the counting to all functions, and the body of charge.
func (m *metered) bodies() error {
	body := m.sections[sectionCode]
	r := &reader{buf: body}
	n := r.count(body)
	out := appendUnsigned(nil, uint64(n)+1)
	for range n {
		code := &reader{buf: r.vector()}
		if r.err != nil {
			return r.err
		}
		changed, err := m.body(code)
		if err != nil {
			return err
		}
		out = appendVector(out, changed)
	}
	m.sections[sectionCode] = appendVector(out, m.chargeBody())
	return r.err
}

func (m *metered) body(r *reader) ([]byte, error) {
	groups := r.unsigned()
	out := appendUnsigned(nil, uint64(groups))
	for range groups {
		out = appendUnsigned(out, uint64(r.unsigned()))
		out = append(out, r.byte())
		if r.err != nil {
			return nil, r.err
		}
	}
	steps := len(r.buf)/stepBytes + 1
	tick := m.tick(steps)
	var code []byte
	entry := entryTick{straight: true}
	for depth := 1; depth > 0 && r.err == nil; {
		if len(r.buf) > 0 {
			entry.see(r.buf[0])
		}
		code, depth = m.instruction(r, code, depth, tick)
	}
	if r.err == nil && len(r.buf) > 0 {
		return nil, errors.New("a function has instructions after its end")
	}
	if entry.needed() || steps > 1 {
		out = append(out, tick...)
	}
	return append(out, code...), r.err
}

// entryTick finds out whether a small function must count when it begins. One without calls need
// not: its loops count, and the rest soon ends. Nor need one that surely reaches a loop before it
// calls, as all functions that Go compiles.
type entryTick struct {
	straight bool // no branch and no call so far
	calls    bool
	loops    bool // a loop is surely reached
}

func (e *entryTick) see(op byte) {
	switch op {
	case 0x03: // loop
		e.loops = e.loops || e.straight
	case 0x10, 0x11, 0x12, 0x13: // calls
		e.calls, e.straight = true, false
	case 0x04, 0x0c, 0x0d, 0x0e, 0x0f: // if, br, br_if, br_table, return
		e.straight = false
	}
}

func (e *entryTick) needed() bool { return e.calls && !e.loops }

// stepBytes is the size of a function that counts one step at a time. A larger one counts more,
// since it can do more between two of its loops and calls.
const stepBytes = 1 << 10

// tick counts steps. It leaves the stack as it was.
func (m *metered) tick(steps int) []byte {
	out := m.globalOp(nil, 0x23) // global.get
	out = append(out, 0x41)      // i32.const
	out = appendSigned(out, int64(steps))
	out = append(out, 0x6b)                       // i32.sub
	return m.refuelIfSpent(m.globalOp(out, 0x24)) // global.set
}

// refuelIfSpent asks the host if nothing is left.
func (m *metered) refuelIfSpent(out []byte) []byte {
	out = m.globalOp(out, 0x23)
	out = append(out, 0x41, 0, 0x4c, 0x04, 0x40)                // i32.const 0, i32.le_s, if
	out = appendUnsigned(append(out, 0x10), uint64(m.imported)) // call refuel
	out = m.globalOp(out, 0x24)
	return append(out, 0x0b) // end
}

func (m *metered) globalOp(out []byte, op byte) []byte {
	return appendUnsigned(append(out, op), uint64(m.globals))
}

// bytesPerStep is the logarithm of the number of bytes that cost as much as a step.
const bytesPerStep = 6

// chargeBody counts the bytes in its parameter, and returns it.
func (m *metered) chargeBody() []byte {
	out := m.globalOp([]byte{0}, 0x23) // no locals
	// local.get 0, i32.const, i32.shr_u, i32.sub
	out = append(out, 0x20, 0, 0x41, bytesPerStep, 0x76, 0x6b)
	out = m.refuelIfSpent(m.globalOp(out, 0x24))
	return append(out, 0x20, 0, 0x0b) // local.get 0, end
}
