package lossydisk

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func whole(c *content) []byte {
	data := make([]byte, c.size)
	c.readAt(data, 0)
	return data
}

func filled(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

// A model of plain byte slices does the same writes, truncations and syncs.
func TestAFileReadsAsItWasWritten(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		f, model, synced := newFile(), []byte{}, []byte{}
		for range 40 {
			switch random.IntN(4) {
			case 0, 1:
				data, offset := filled(byte(1+random.IntN(255)), 1+random.IntN(3*pageSize)), random.IntN(4*pageSize)
				f.writeAt(data, int64(offset))
				if end := offset + len(data); end > len(model) {
					model = append(model, make([]byte, end-len(model))...)
				}
				copy(model[offset:], data)
			case 2:
				size := random.IntN(4 * pageSize)
				f.truncate(int64(size))
				model = append(model[:min(size, len(model))], make([]byte, max(0, size-len(model)))...)
			case 3:
				f.sync()
				synced = bytes.Clone(model)
			}
			if !bytes.Equal(whole(&f.live), model) {
				t.Fatalf("seed %d: the live state differs from the model", seed)
			}
			if !bytes.Equal(whole(&f.disk), synced) {
				t.Fatalf("seed %d: the disk state differs from the model at the last sync", seed)
			}
		}
		f.sync()
		if lost := f.crash(random); lost != 0 || !bytes.Equal(whole(&f.live), model) {
			t.Fatalf("seed %d: a crash after a sync lost %d pages", seed, lost)
		}
	}
}

// Each unsynced sector is old or new after a crash. All three kinds of pages appear.
func TestACrashLosesAPartOfWhatWasNotSynced(t *testing.T) {
	kinds := map[string]int{}
	for seed := range uint64(300) {
		f := newFile()
		f.writeAt(filled('o', 2*pageSize), 0)
		f.sync()
		f.writeAt(filled('n', pageSize), 0)
		f.crash(rand.New(rand.NewPCG(seed, 0)))
		data := whole(&f.live)
		if !bytes.Equal(data[pageSize:], filled('o', pageSize)) {
			t.Fatalf("seed %d: a synced page has changed", seed)
		}
		fresh := 0
		for at := 0; at < pageSize; at += sectorSize {
			switch sector := data[at : at+sectorSize]; {
			case bytes.Equal(sector, filled('n', sectorSize)):
				fresh++
			case !bytes.Equal(sector, filled('o', sectorSize)):
				t.Fatalf("seed %d: the sector at %d is neither old nor new", seed, at)
			}
		}
		switch fresh {
		case 0:
			kinds["old"]++
		case pageSize / sectorSize:
			kinds["new"]++
		default:
			kinds["torn"]++
		}
		if !f.clean() {
			t.Fatalf("seed %d: there is something to sync after a crash", seed)
		}
	}
	if len(kinds) != 3 {
		t.Errorf("the pages were %v, expected some old, new and torn ones", kinds)
	}
}

func TestASizeThatWasNotSyncedIsOldOrNew(t *testing.T) {
	sizes := map[int64]int{}
	for seed := range uint64(100) {
		f := newFile()
		f.writeAt(filled('o', 100), 0)
		f.sync()
		f.truncate(3 * pageSize)
		f.crash(rand.New(rand.NewPCG(seed, 0)))
		sizes[f.live.size]++
	}
	if sizes[100] == 0 || sizes[3*pageSize] == 0 || len(sizes) != 2 {
		t.Errorf("the sizes were %v, expected 100 and %d", sizes, 3*pageSize)
	}
}

// As on Linux: the pages of a failed sync count as written, although they are not on disk.
func TestASyncAfterAFailedOneDoesNotWriteItsPages(t *testing.T) {
	lost := 0
	for seed := range uint64(100) {
		f := newFile()
		f.writeAt(filled('n', pageSize), 0)
		f.failSync()
		f.sync()
		f.crash(rand.New(rand.NewPCG(seed, 0)))
		if !bytes.Equal(whole(&f.live), filled('n', pageSize)) {
			lost++
		}
		f.writeAt(filled('m', pageSize), 0)
		f.sync()
		f.crash(rand.New(rand.NewPCG(seed, 1)))
		if !bytes.Equal(whole(&f.live), filled('m', pageSize)) {
			t.Fatalf("seed %d: a page that was written again and synced is lost", seed)
		}
	}
	if lost == 0 {
		t.Error("no crash lost the page of a failed sync")
	}
}
