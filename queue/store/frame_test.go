package store

import (
	"bytes"
	"errors"
	"io"
	"math/rand"
	"slices"
	"testing"
)

var testSegment = SegmentID{Number: 7, Salt: 0x5ca1ab1e}

// build writes groups of records, each with a random payload, and says where each begins.
func build(rng *rand.Rand, groups int) (file []byte, offsets, groupOffsets []int64) {
	for range groups {
		group := int64(len(file))
		groupOffsets = append(groupOffsets, group)
		for range 1 + rng.Intn(4) {
			offsets = append(offsets, int64(len(file)))
			var start int
			file, start = BeginRecord(file)
			file = append(file, randomBytes(rng, rng.Intn(300))...)
			file = FinishRecord(file, start, testSegment, group, 2, uint64(len(offsets)))
		}
	}
	return file, offsets, groupOffsets
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	rng.Read(b)
	return b
}

func scanAll(t *testing.T, r io.ReaderAt, size, end int64) ([]uint64, ScanResult) {
	t.Helper()
	var ids []uint64
	res, err := ScanRecords(r, size, testSegment, end, func(rec Record) error {
		ids = append(ids, rec.ID)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids, res
}

func TestScanWhole(t *testing.T) {
	file, offsets, _ := build(rand.New(rand.NewSource(1)), 50)
	padded := append(slices.Clone(file), make([]byte, 5000)...)
	for _, c := range []struct {
		file []byte
		end  int64
	}{{file, UnknownEnd}, {file, int64(len(file))}, {padded, UnknownEnd}, {padded, int64(len(file))}} {
		ids, res := scanAll(t, bytes.NewReader(c.file), int64(len(c.file)), c.end)
		if len(ids) != len(offsets) || res.End != int64(len(file)) || res.Torn != 0 || res.Damaged != nil {
			t.Fatalf("%d of %d records, %+v, want end %d", len(ids), len(offsets), res, len(file))
		}
	}
}

// TestScanFlippedBit flips each octet of a file once: one record and no other may be missing, and
// the damage must be told, save in the last group, where it can't be told from a torn write.
func TestScanFlippedBit(t *testing.T) {
	file, offsets, groups := build(rand.New(rand.NewSource(2)), 6)
	lastGroup := groups[len(groups)-1]
	for i := range file {
		file[i] ^= 1 << (i % 8)
		hit, _ := slices.BinarySearch(offsets, int64(i)+1)
		hit-- // the record that has octet i
		var want []uint64
		for n := range offsets {
			if n != hit {
				want = append(want, uint64(n+1))
			}
		}
		ids, res := scanAll(t, bytes.NewReader(file), int64(len(file)), int64(len(file)))
		padding := false
		if len(ids) == len(offsets) { // octets between records carry nothing
			padding = true
		} else if !slices.Equal(ids, want) || len(res.Damaged) != 1 || res.Damaged[0].Offset != offsets[hit] {
			t.Fatalf("octet %d, end known: records %v, damage %v", i, ids, res.Damaged)
		}
		ids, res = scanAll(t, bytes.NewReader(file), int64(len(file)), UnknownEnd)
		switch {
		case padding:
		case offsets[hit] < lastGroup:
			if !slices.Equal(ids, want) || len(res.Damaged) != 1 || res.Damaged[0].Offset != offsets[hit] {
				t.Fatalf("octet %d, end unknown: records %v, damage %v", i, ids, res.Damaged)
			}
		case !slices.Equal(ids, want[:hit]) || res.Damaged != nil || res.End != offsets[hit]:
			t.Fatalf("octet %d in the last group: records %v, %+v", i, ids, res)
		}
		file[i] ^= 1 << (i % 8)
	}
}

// TestScanTornTail drops sectors of the last group in every combination: all before it must be
// found, and of it only what has nothing broken before it.
func TestScanTornTail(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	for range 300 {
		file, offsets, groups := build(rng, 4)
		last := groups[len(groups)-1]
		broken := int64(len(file))
		for at := last; at < int64(len(file)); at += 64 {
			if rng.Intn(3) == 0 {
				end := min(at+64, int64(len(file)))
				broken = min(broken, at)
				clear(file[at:end])
			}
		}
		ids, res := scanAll(t, bytes.NewReader(file), int64(len(file)), UnknownEnd)
		n, _ := slices.BinarySearch(offsets, last)
		if len(ids) < n || res.Damaged != nil {
			t.Fatalf("%d records, want at least %d: %+v", len(ids), n, res)
		}
		for _, off := range offsets[n:len(ids)] {
			if off > broken {
				t.Fatalf("record at %d was given though %d is broken", off, broken)
			}
		}
	}
}

// TestScanDisplaced: an octet that is missing before the last group, or one too many, is no torn end.
func TestScanDisplaced(t *testing.T) {
	file, offsets, groups := build(rand.New(rand.NewSource(4)), 6)
	for at := range groups[len(groups)-2] {
		for _, b := range [][]byte{slices.Delete(slices.Clone(file), int(at), int(at)+1), slices.Insert(slices.Clone(file), int(at), 7)} {
			b = append(b, make([]byte, 5*Align)...) // the file has room left
			n, here := slices.BinarySearch(offsets, at)
			if !here {
				n--
			}
			ids, res := scanAll(t, bytes.NewReader(b), int64(len(b)), UnknownEnd)
			if len(res.Damaged) != 1 || res.Damaged[0].Offset < offsets[n] || res.Torn != 0 || len(ids) > n+1 {
				t.Fatalf("octet %d: %d records before %d, %+v", at, len(ids), n, res)
			}
		}
	}
}

// TestScanForged has a message whose content is a sound record, but for the salt, behind damage.
func TestScanForged(t *testing.T) {
	forged, start := BeginRecord(nil)
	forged = FinishRecord(forged, start, SegmentID{Number: testSegment.Number, Salt: 1}, 16, 2, 666)
	file, start := BeginRecord(nil)
	file = append(file, forged...)
	file = FinishRecord(file, start, testSegment, 0, 2, 1)
	second := len(file)
	file, start = BeginRecord(file)
	file = FinishRecord(file, start, testSegment, int64(second), 2, 2)
	file[8]++ // the length of the first record
	ids, res := scanAll(t, bytes.NewReader(file), int64(len(file)), UnknownEnd)
	if !slices.Equal(ids, []uint64{2}) || len(res.Damaged) != 1 {
		t.Fatalf("records %v, %+v", ids, res)
	}
}

type badDisk struct {
	*bytes.Reader
	from, to int64
}

var errDisk = errors.New("input/output error")

func (d badDisk) ReadAt(p []byte, off int64) (int, error) {
	if off < d.to && off+int64(len(p)) > d.from {
		return 0, errDisk
	}
	return d.Reader.ReadAt(p, off)
}

func TestScanUnreadableBlock(t *testing.T) {
	file, offsets, _ := build(rand.New(rand.NewSource(4)), 200)
	from := int64(3 * blockSize)
	ids, res := scanAll(t, badDisk{bytes.NewReader(file), from, from + blockSize}, int64(len(file)), UnknownEnd)
	lost := 0
	for i, off := range offsets {
		next := int64(len(file))
		if i+1 < len(offsets) {
			next = offsets[i+1]
		}
		if off < from+blockSize && next > from {
			lost++
		}
	}
	if len(ids) < len(offsets)-lost-1 || len(ids) > len(offsets)-lost || len(res.Damaged) != 1 || !errors.Is(res.Damaged[0].Err, errDisk) {
		t.Fatalf("%d of %d records, %d lie in the block, damage %v", len(ids), len(offsets), lost, res.Damaged)
	}
}

func TestScanShorterThanKnown(t *testing.T) {
	file, offsets, _ := build(rand.New(rand.NewSource(5)), 5)
	cut := offsets[len(offsets)-2]
	ids, res := scanAll(t, bytes.NewReader(file[:cut]), cut, int64(len(file)))
	if len(ids) != len(offsets)-2 || len(res.Damaged) != 1 || res.Damaged[0].Offset != cut {
		t.Fatalf("%d of %d records, %+v", len(ids), len(offsets), res)
	}
}

func FuzzScan(f *testing.F) {
	file, _, _ := build(rand.New(rand.NewSource(6)), 3)
	f.Add(file, int64(UnknownEnd))
	f.Add(file[:len(file)/2], int64(len(file)))
	f.Fuzz(func(t *testing.T, b []byte, end int64) {
		if end < UnknownEnd {
			end = UnknownEnd
		}
		last := int64(-1)
		res, err := ScanRecords(bytes.NewReader(b), int64(len(b)), testSegment, end, func(rec Record) error {
			if rec.Offset <= last || rec.Offset%Align != 0 || rec.Offset+RecordSize(len(rec.Payload)) > int64(len(b))+Align {
				t.Fatalf("record at %d after %d", rec.Offset, last)
			}
			last = rec.Offset
			return nil
		})
		if err != nil || res.End > max(int64(len(b)), end) {
			t.Fatalf("%v %+v", err, res)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	rng := rand.New(rand.NewSource(1))
	var file []byte
	for len(file) < 16<<20 {
		var start int
		group := int64(len(file))
		file, start = BeginRecord(file)
		file = append(file, randomBytes(rng, 2048)...)
		file = FinishRecord(file, start, testSegment, group, 2, 1)
	}
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if _, err := ScanRecords(bytes.NewReader(file), int64(len(file)), testSegment, UnknownEnd, func(Record) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
