package store

import (
	"encoding/binary"
	"slices"

	"example.org/mta/internal/envelope"
)

// Keyed is the payload of a keyed record. It precedes the messages of its group, and the latest of a key has
// all that is known of the request.
type Keyed struct {
	Key     envelope.RequestKey
	Request [16]byte
	Whole   bool
	At      uint32 // when the key came first, in seconds since 1970
	Until   uint32
	// earlier messages are on the disk if this record is; own ones lie behind it, in the same group, of which a
	// power cut can leave the beginning only: see bind.
	Earlier, Own []Placed
	Answer       []byte
}

// Placed is a message of a request.
type Placed struct {
	Position int
	ID       envelope.ID
}

// AppendKeyed makes the payload of a keyed record.
func AppendKeyed(b []byte, form uint8, k *Keyed) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.b = append(append(e.b, k.Key[:]...), k.Request[:]...)
	e.bool(k.Whole)
	e.uint(uint64(k.At))
	e.uint(uint64(k.Until))
	e.placed(k.Earlier)
	e.placed(k.Own)
	e.string(string(k.Answer))
	return e.b
}

func (e *encoder) placed(list []Placed) {
	e.uint(uint64(len(list)))
	var last Placed
	for _, p := range list {
		e.uint(uint64(p.Position - last.Position))
		e.int(int64(p.ID - last.ID))
		last = p
	}
}

// DecodeKeyed is the inverse of AppendKeyed.
func DecodeKeyed(b []byte) (Keyed, error) {
	d := decoder{s: string(b)}
	d.version()
	var k Keyed
	copy(k.Key[:], d.take(len(k.Key)))
	copy(k.Request[:], d.take(len(k.Request)))
	k.Whole = d.bool()
	k.At, k.Until = uint32(d.uint()), uint32(d.uint())
	k.Earlier, k.Own = d.placed(), d.placed()
	k.Answer = []byte(d.string())
	if d.err == nil && d.s != "" {
		d.fail(errShort)
	}
	return k, d.err
}

// KeyHead is what the start of a keyed record says.
type KeyHead struct {
	Key       envelope.RequestKey
	Imported  bool // see Queue.keyTables
	At, Until uint32
	// needs is the id of the first message that must be there, 0 when none must: see bind.
	needs uint64
}

// DecodeKeyHead reads no more of a keyed record than that: compaction and starts read many.
func DecodeKeyHead(b []byte) (h KeyHead, err error) {
	if len(b) < KeyHeadSize {
		return h, errShort
	}
	if err := checkVersion(b[0]); err != nil {
		return h, err
	}
	h.Key = KeyOf(b)
	h.Imported = h.Key == [16]byte(b[1+16:])
	b = b[KeyHeadSize:]
	var n [4]uint64 // at, until, earlier messages, own messages
	for i := range n {
		if i == 3 && n[2] > 0 {
			break
		}
		v, size := binary.Uvarint(b)
		if size <= 0 {
			return h, errShort
		}
		n[i], b = v, b[size:]
	}
	if h.At, h.Until = uint32(n[0]), uint32(n[1]); n[3] > 0 {
		_, size := binary.Uvarint(b) // its position
		if size <= 0 {
			return h, errShort
		}
		id, size := binary.Varint(b[size:])
		if size <= 0 {
			return h, errShort
		}
		h.needs = uint64(id)
	}
	return h, nil
}

// KeyHeadSize is what precedes the times: version, key, request, whether it is whole.
const KeyHeadSize = 1 + 16 + 16 + 1

// take reads n octets.
func (d *decoder) take(n int) string {
	if n > len(d.s) {
		d.fail(errShort)
		return ""
	}
	v := d.s[:n]
	d.s = d.s[n:]
	return v
}

func (d *decoder) placed() []Placed {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	list := make([]Placed, n)
	var last Placed
	for i := range list {
		last.Position += int(uint32(d.uint()))
		last.ID += envelope.ID(d.int())
		list[i] = last
	}
	return list
}

// Bind makes one list of the messages, without those of the record's own group that a power cut took away.
// Ids grow along a segment, so those are the ones above maxID, the largest that is left in the segment. An
// answer that speaks of them was never given.
func (k *Keyed) Bind(maxID uint64) {
	torn := slices.IndexFunc(k.Own, func(p Placed) bool { return uint64(p.ID) > maxID })
	if torn >= 0 {
		k.Own, k.Whole, k.Answer = k.Own[:torn], false, nil
	}
	k.Earlier, k.Own = append(k.Earlier, k.Own...), nil
}

// KeyOf is the key of a keyed record's payload.
func KeyOf(payload []byte) (key envelope.RequestKey) {
	copy(key[:], payload[1:])
	return key
}
