package shipping

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path"
	"strings"
)

// Limits of an entry. What is longer was not written by us.
const (
	// MaxData is how many octets of writes an entry has, MaxChanges how many octets its changes take.
	MaxData    = 4 << 20
	MaxChanges = 64 << 20
	maxWrite   = 1 << 20 // of one change
	maxPath    = 255
	maxSize    = 1 << 50
)

type kind uint8

const (
	opCreate kind = 1 + iota // a file, which is empty
	opRename                 // a file; one that has the name is removed
	opRemove                 // a file
	opSize                   // of a file; what is new reads as zeros
	opWrite                  // octets of the entry's data
	opVoid                   // what a file has is needed no longer, and its size stays
	opImage                  // all files, before the changes that follow
)

// change is one of the directory's. Files have numbers, which stay when they get other names.
type change struct {
	kind kind
	file uint32
	name string // of opCreate and opRename: relative to the directory, with slashes
	at   int64  // the offset of opWrite, the size of opSize
	size int64  // of opWrite
	sum  uint32 // of what opWrite writes, CRC-32C
	from int64  // where the entry's data has that; it is not encoded
	all  *Image // of opImage
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sumOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func appendName(b []byte, name string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(name))), name...)
}

func (c *change) append(b []byte) []byte {
	b = append(b, byte(c.kind))
	if c.kind == opImage {
		return c.all.append(b)
	}
	b = binary.AppendUvarint(b, uint64(c.file))
	switch c.kind {
	case opCreate, opRename:
		b = appendName(b, c.name)
	case opSize:
		b = binary.AppendUvarint(b, uint64(c.at))
	case opWrite:
		b = binary.AppendUvarint(b, uint64(c.at))
		b = binary.AppendUvarint(b, uint64(c.size))
		b = binary.LittleEndian.AppendUint32(b, c.sum)
	}
	return b
}

// errChanges is why changes can't be read.
var errChanges = errors.New("its changes can't be read")

// reader takes numbers and names off the front of encoded changes. After an error all are zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number(most uint64) uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > most || r.bad {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) sum() uint32 {
	if len(r.b) < 4 || r.bad {
		r.bad, r.b = true, nil
		return 0
	}
	n := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	return n
}

// name is one within the directory.
func (r *reader) name() string {
	n := int(r.number(maxPath))
	if n > len(r.b) || r.bad {
		r.bad, r.b = true, nil
		return ""
	}
	name := string(r.b[:n])
	r.b = r.b[n:]
	if name == "" || path.Clean("/"+name) != "/"+name || strings.ContainsAny(name, "\\\x00") {
		r.bad, r.b = true, nil
	}
	return name
}

func (r *reader) file() uint32 { return uint32(r.number(1<<32 - 1)) }

// parse reads the changes of an entry with so many octets of data.
func parse(text []byte, data int64) (all []change, err error) {
	r, at := &reader{b: text}, int64(0)
	for len(r.b) > 0 {
		c := change{kind: kind(r.b[0])}
		if r.b = r.b[1:]; c.kind == opImage {
			if len(all) > 0 {
				return nil, fmt.Errorf("%w: an image follows other changes", errChanges)
			}
			c.all = readImage(r)
		} else {
			c.file = r.file()
		}
		switch c.kind {
		case opImage, opRemove, opVoid:
		case opCreate, opRename:
			c.name = r.name()
		case opSize:
			c.at = int64(r.number(maxSize))
		case opWrite:
			c.at, c.size, c.sum, c.from = int64(r.number(maxSize)), int64(r.number(maxWrite)), r.sum(), at
			if at += c.size; at > data {
				return nil, fmt.Errorf("%w: they write more than its %d octets", errChanges, data)
			}
		default:
			return nil, fmt.Errorf("%w: a change has kind %d", errChanges, c.kind)
		}
		if r.bad {
			return nil, errChanges
		}
		all = append(all, c)
	}
	if at != data {
		return nil, fmt.Errorf("%w: they write %d of its %d octets", errChanges, at, data)
	}
	return all, nil
}

// HasImage reports whether the changes of an entry begin with an image, so that no earlier changes need be read.
func HasImage(changes []byte) bool { return len(changes) > 0 && kind(changes[0]) == opImage }
