package store

// The frames of records in a segment file. scan.go finds records again when part of the file was torn by a power cut or
// damaged on the disk.
//
// A segment is written in groups; each group is synced before the next one is written. A record
// is a header of 32 octets and a payload, and begins at a multiple of 16 octets:
//
//	 0 salt     random, the segment's own, also in the name of its file
//	 4 crc      CRC-32C of the payload and then of the header from octet 8 on
//	 8 length   of the payload
//	12 kind, then three octets of zero
//	16 id       of the message, or 0
//	24 group    where its group begins, in units of 16 octets
//	28 segment  number of the segment
//
// All numbers are little-endian. The salt keeps octets of a message, which a stranger chose,
// from being taken for a record when one is looked for behind damage. The group distinguishes damage
// from a torn tail: a sound record whose group begins behind a broken place proves that the
// place had been synced.

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	// HeaderSize is the octets before a payload.
	HeaderSize = 32
	// Align is what the place of each record is a multiple of.
	Align = 16
	// MaxPayload bounds the payload of a record; a larger length is a broken header.
	MaxPayload = 1 << 28
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC-32C of b, continued from crc.
func Checksum(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// Kind says what a record is.
type Kind uint8

// SegmentID is the identity of a segment file; its records carry it.
type SegmentID struct {
	Number uint32
	Salt   uint32
}

// Record is one record as it was found.
type Record struct {
	Kind    Kind
	ID      uint64
	Payload []byte // valid during the visit only
	Offset  int64
	Group   int64 // offset at which its group begins
}

// RecordSize is what a record with a payload of n octets takes, the gap to the next one included.
func RecordSize(n int) int64 { return int64(HeaderSize+n+Align-1) &^ (Align - 1) }

// BeginRecord appends room for a header to b; the payload is to be appended next and then FinishRecord
// called. It returns where in b the record begins.
func BeginRecord(b []byte) ([]byte, int) {
	var header [HeaderSize]byte
	return append(b, header[:]...), len(b)
}

// FinishRecord completes the record that begins at start in b and ends with b, and pads b to where the
// next one begins. b[0] must go to a multiple of Align in the segment; group is the offset at
// which the group begins.
func FinishRecord(b []byte, start int, seg SegmentID, group int64, kind Kind, id uint64) []byte {
	h := b[start : start+HeaderSize]
	payload := b[start+HeaderSize:]
	le := binary.LittleEndian
	le.PutUint32(h[0:], seg.Salt)
	le.PutUint32(h[8:], uint32(len(payload)))
	h[12], h[13], h[14], h[15] = byte(kind), 0, 0, 0
	le.PutUint64(h[16:], id)
	le.PutUint32(h[24:], uint32(group/Align))
	le.PutUint32(h[28:], seg.Number)
	le.PutUint32(h[4:], Checksum(Checksum(0, payload), h[8:]))
	var zeros [Align]byte
	return append(b, zeros[:-len(b)&(Align-1)]...)
}

// header is a header as read.
type header struct {
	crc, length, segment uint32
	kind                 Kind
	id                   uint64
	group                int64
}

// parseHeader reads a header and reports whether it can be one of seg at offset off, before the
// end of the file at size. The record's sum covers it.
func parseHeader(b []byte, seg SegmentID, off, size int64) (h header, ok bool) {
	if len(b) < HeaderSize {
		return h, false
	}
	le := binary.LittleEndian
	h = header{
		crc: le.Uint32(b[4:]), length: le.Uint32(b[8:]), kind: Kind(b[12]),
		id: le.Uint64(b[16:]), group: int64(le.Uint32(b[24:])) * Align, segment: le.Uint32(b[28:]),
	}
	ok = le.Uint32(b) == seg.Salt && h.segment == seg.Number && b[13]|b[14]|b[15] == 0 &&
		h.length <= MaxPayload && off+HeaderSize+int64(h.length) <= size && h.group <= off
	return h, ok
}

// claim is parseHeader for a header of which only the salt and the number say that it is one.
func claim(b []byte, seg SegmentID) (header, bool) { return parseHeader(b, seg, 1<<40, 1<<62) }

// ParseRecord reads the record that b begins with, which was read from offset off. It reports whether
// it is whole and sound. The payload is a part of b.
func ParseRecord(b []byte, seg SegmentID, off int64) (Record, bool) {
	h, ok := parseHeader(b, seg, off, off+int64(len(b)))
	if !ok {
		return Record{}, false
	}
	payload := b[HeaderSize : HeaderSize+int(h.length)]
	if Checksum(Checksum(0, payload), b[8:HeaderSize]) != h.crc {
		return Record{}, false
	}
	return Record{Kind: h.kind, ID: h.id, Payload: payload, Offset: off, Group: h.group}, true
}
