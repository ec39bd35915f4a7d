package spool

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// A stored text is its form, its CRC-32C with all that makes it this entry's, its size and its octets, as they are or
// compressed.
const (
	formPlain byte = 1 + iota
	formZstd
)

// parts of an entry, for the checksum.
const (
	partChanges byte = 1 + iota
	partData
)

const beforeSize = 1 + crc32.Size

var (
	errDamaged = errors.New("it is damaged, or was edited: its checksum is wrong")
	errForm    = errors.New("a newer mta has written it")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// coder stores texts, and reads them.
type coder struct {
	to   *zstd.Encoder
	from *zstd.Decoder
}

func newCoder() (c coder, err error) {
	c.to, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	if err == nil {
		c.from, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true),
			zstd.WithDecoderMaxWindow(maxWindow))
	}
	return c, err
}

// maxWindow is how far back a compressed text of ours refers.
const maxWindow = 8 << 20

// sum is a stored text's.
func sum(log, entry uint64, part byte, text []byte) uint32 {
	b := binary.LittleEndian.AppendUint64(nil, log)
	b = append(binary.LittleEndian.AppendUint64(b, entry), part, text[0])
	return crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, text[beforeSize:])
}

// store gives the stored text of a part.
func (c coder) store(log, entry uint64, part byte, octets []byte) []byte {
	head := binary.AppendUvarint(make([]byte, beforeSize), uint64(len(octets)))
	head[0] = formZstd
	text := c.to.EncodeAll(octets, slices.Clone(head))
	if len(text) >= len(head)+len(octets) {
		head[0] = formPlain
		text = append(head, octets...)
	}
	binary.LittleEndian.PutUint32(text[1:], sum(log, entry, part, text))
	return text
}

// read gives what a stored text was made of: most octets of it.
func (c coder) read(log, entry uint64, part byte, text []byte, most int) ([]byte, error) {
	if len(text) <= beforeSize || binary.LittleEndian.Uint32(text[1:]) != sum(log, entry, part, text) {
		return nil, errDamaged
	}
	size, n := binary.Uvarint(text[beforeSize:])
	if n <= 0 || size > uint64(most) {
		return nil, errDamaged
	}
	octets := text[beforeSize+n:]
	switch text[0] {
	case formPlain:
	case formZstd:
		var err error
		if octets, err = c.from.DecodeAll(octets, make([]byte, 0, size)); err != nil {
			return nil, errDamaged
		}
	default:
		return nil, errForm
	}
	if uint64(len(octets)) != size {
		return nil, errDamaged
	}
	return octets, nil
}
