package wasm

import (
	"errors"
	"fmt"
)

// instruction copies one instruction with renumbered functions, and returns the new depth of
// blocks. tick follows each loop's header; nil adds nothing, as in constant expressions.
func (m *metered) instruction(r *reader, out []byte, depth int, tick []byte) ([]byte, int) {
	from := r.buf
	op := r.byte()
	copied := func() []byte { return append(out, from[:len(from)-len(r.buf)]...) }
	switch {
	case op == 0x02 || op == 0x04 || op == 0x06: // block, if, try
		r.signed()
		if op == 0x06 {
			r.fail(errors.New("exceptions are not supported"))
		}
		return copied(), depth + 1
	case op == 0x03: // loop
		r.signed()
		return append(copied(), tick...), depth + 1
	case op == 0x0b: // end
		return copied(), depth - 1
	case op == 0x10 || op == 0x12 || op == 0xd2: // call, return_call, ref.func
		return appendUnsigned(append(out, op), uint64(m.shift(r.unsigned()))), depth
	case op == 0xfc:
		charged := m.extended(r) && tick != nil
		raw := from[:len(from)-len(r.buf)]
		if charged {
			out = appendUnsigned(append(out, 0x10), uint64(m.charge()))
		}
		return append(out, raw...), depth
	case op == 0xfd:
		r.vectorInstruction()
	default:
		r.immediates(op)
	}
	return copied(), depth
}

// extended skips the operands of an instruction with the prefix 0xfc. It reports whether the
// instruction copies or fills as much as the guest says. Its length is then on top of the stack.
func (m *metered) extended(r *reader) (byLength bool) {
	switch op := r.unsigned(); op {
	case 0, 1, 2, 3, 4, 5, 6, 7: // saturating truncation
		return false
	case 9, 13, 16: // data.drop, elem.drop, table.size
		r.unsigned()
		return false
	case 11, 17: // memory.fill, table.fill
		r.unsigned()
	case 8, 10, 12, 14: // memory.init, memory.copy, table.init, table.copy
		r.unsigned()
		r.unsigned()
	case 15:
		r.fail(errors.New("the instruction table.grow is not allowed"))
	default:
		r.fail(fmt.Errorf("the instruction 0xfc %d is unknown", op))
	}
	return true
}

// immediates skips the operands of an instruction without a prefix.
func (r *reader) immediates(op byte) {
	switch {
	case op == 0x00 || op == 0x01 || op == 0x05 || op == 0x0f || op == 0x1a || op == 0x1b || op == 0xd1:
		// unreachable, nop, else, return, drop, select, ref.is_null
	case op == 0x0c || op == 0x0d: // br, br_if
		r.unsigned()
	case op == 0x0e: // br_table
		for n := r.unsigned(); r.err == nil; n-- {
			r.unsigned()
			if n == 0 {
				break
			}
		}
	case op == 0x11 || op == 0x13: // call_indirect, return_call_indirect
		r.unsigned()
		r.unsigned()
	case op == 0x1c: // select with types
		r.skip(int(r.unsigned()))
	case op >= 0x20 && op <= 0x26: // locals, globals, tables
		r.unsigned()
	case op >= 0x28 && op <= 0x3e: // loads and stores
		r.memoryOperand()
	case op == 0x3f || op == 0x40: // memory.size, memory.grow
		r.unsigned()
	case op == 0x41 || op == 0x42: // i32.const, i64.const
		r.signed()
	case op == 0x43:
		r.skip(4)
	case op == 0x44:
		r.skip(8)
	case op >= 0x45 && op <= 0xc4: // numbers
	case op == 0xd0: // ref.null
		r.signed()
	default:
		r.fail(fmt.Errorf("the instruction %#x is unknown", op))
	}
}

func (r *reader) memoryOperand() {
	if r.unsigned()&0x40 != 0 {
		r.fail(errors.New("several memories are not supported"))
	}
	r.unsigned64()
}

// vectorInstruction skips the rest of an instruction with the prefix 0xfd.
func (r *reader) vectorInstruction() {
	switch op := r.unsigned(); {
	case op <= 11 || op == 92 || op == 93: // loads and stores
		r.memoryOperand()
	case op == 12 || op == 13: // v128.const, i8x16.shuffle
		r.skip(16)
	case op >= 21 && op <= 34: // lanes
		r.skip(1)
	case op >= 84 && op <= 91: // loads and stores of lanes
		r.memoryOperand()
		r.skip(1)
	case op <= 255:
	default:
		r.fail(fmt.Errorf("the instruction 0xfd %d is unknown", op))
	}
}
