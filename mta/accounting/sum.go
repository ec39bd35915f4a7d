package accounting

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math/bits"
)

// Each record has a sum, the CRC-32C of its line without the eight digits themselves. It stands before event_id, so
// that programs from before it find that where they look for it.
const (
	sumShape = `,"sum":"00000000","event_id":"` // what stands around it
	sumAt    = len(`,"sum":"`)                  // where the digits begin
	sumEnd   = sumAt + 8
)

// findSum returns where the digits of a line's sum are; -1: it has none. A line that all but has the shape of one with
// a sum is damaged there.
func findSum(line []byte) (at int, damaged bool) {
	// The value of event_id ends with a position and has no quotes within.
	if end := len(line) - positionLength - len(`"}`); end > 0 {
		i := bytes.LastIndexByte(line[:end], '"') + 1 - len(sumShape)
		if wrong := sumFaults(line, i); wrong == 0 {
			return i + sumAt, false
		}
	}
	i := bytes.LastIndex(line, []byte(sumShape[sumEnd+1:])) - sumEnd - 1
	i = max(i, bytes.LastIndex(line, []byte(sumShape[:sumAt])))
	switch sumFaults(line, i) {
	case 0:
		return i + sumAt, false
	case 1:
		return -1, true
	}
	return -1, false
}

// sumFaults counts the octets at a place of a line that are not those of the shape.
func sumFaults(line []byte, at int) (n int) {
	if at < 0 || at+len(sumShape) > len(line) {
		return len(sumShape)
	}
	line = line[at:]
	if string(line[:sumAt]) == sumShape[:sumAt] && string(line[sumEnd:len(sumShape)]) == sumShape[sumEnd:] {
		return 0
	}
	for i := range len(sumShape) {
		if line[i] != sumShape[i] && (i < sumAt || i >= sumEnd) {
			n++
		}
	}
	return n
}

// sumOf computes the sum of a line whose digits are at a place.
func sumOf(line []byte, at int) (digits [8]byte) {
	crc := crc32.Update(crc32.Checksum(line[:at], castagnoli), castagnoli, line[at+8:])
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], crc)
	hex.Encode(digits[:], b[:])
	return digits
}

// seal fills in the sum of a line without its line end.
func seal(line []byte) {
	if at, _ := findSum(line); at >= 0 {
		digits := sumOf(line, at)
		copy(line[at:], digits[:])
	}
}

// sound reports whether a line is as it was written, as far as that shows: those of earlier programs have no sum, and
// those that a crash has cut off no end. Readers pass over the latter.
func sound(line []byte) bool {
	at, damaged := findSum(line)
	switch {
	case at < 0:
		return !damaged
	case bits.OnesCount8(line[len(line)-1]^'}') > 1:
		return true // cut off
	}
	digits := sumOf(line, at)
	return string(line[at:at+8]) == string(digits[:])
}
