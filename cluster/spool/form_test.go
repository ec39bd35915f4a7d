package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestATextComesBack(t *testing.T) {
	c, err := newCoder()
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rand.N(256))
	}
	for _, octets := range [][]byte{{}, []byte("x"), noise, bytes.Repeat([]byte("mail "), 5<<20), noise[:1000]} {
		text := c.store(1, 2, partData, octets)
		if len(text) > beforeSize+binary.MaxVarintLen64+len(octets) {
			t.Errorf("%d octets become %d", len(octets), len(text))
		}
		if got, err := c.read(1, 2, partData, text, len(octets)); err != nil || !bytes.Equal(got, octets) {
			t.Errorf("%d octets come back as %d: %v", len(octets), len(got), err)
		}
		if len(octets) > 0 {
			if _, err := c.read(1, 2, partData, text, len(octets)-1); !errors.Is(err, errDamaged) {
				t.Errorf("%d octets are more than may be: %v", len(octets), err)
			}
		}
	}
	if text := c.store(1, 2, partData, bytes.Repeat([]byte("mail "), 5<<20)); len(text) > 100<<10 {
		t.Errorf("it is not compressed: %d octets", len(text))
	}
}

// TestADamagedText: each octet counts, and which part of which entry it is.
func TestADamagedText(t *testing.T) {
	c, err := newCoder()
	if err != nil {
		t.Fatal(err)
	}
	text := c.store(1, 2, partData, bytes.Repeat([]byte("mail "), 20))
	if text[0] != formZstd {
		t.Fatal("it is not compressed")
	}
	for i := range text {
		damaged := bytes.Clone(text)
		damaged[i] ^= 4
		if _, err := c.read(1, 2, partData, damaged, 100); !errors.Is(err, errDamaged) {
			t.Errorf("octet %d: %v", i, err)
		}
		if _, err := c.read(1, 2, partData, text[:i], 100); !errors.Is(err, errDamaged) {
			t.Errorf("%d octets: %v", i, err)
		}
	}
	for _, of := range []struct {
		log, entry uint64
		part       byte
	}{{2, 2, partData}, {1, 3, partData}, {1, 2, partChanges}} {
		if _, err := c.read(of.log, of.entry, of.part, text, 100); !errors.Is(err, errDamaged) {
			t.Errorf("read as %+v: %v", of, err)
		}
	}
}

// made gives a stored text with a right checksum.
func made(form byte, size uint64, octets []byte) []byte {
	text := append(binary.AppendUvarint(make([]byte, beforeSize), size), octets...)
	text[0] = form
	binary.LittleEndian.PutUint32(text[1:], sum(1, 2, partData, text))
	return text
}

func TestATextThatWeHaveNotWritten(t *testing.T) {
	c, err := newCoder()
	if err != nil {
		t.Fatal(err)
	}
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := w.EncodeAll(make([]byte, 64<<20), nil)
	for name, test := range map[string]struct {
		text []byte
		want error
	}{
		"a newer form":           {made(3, 1, []byte("x")), errForm},
		"more than announced":    {made(formZstd, 1000, bomb), errDamaged},
		"twice what is":          {made(formZstd, 10, bytes.Repeat(w.EncodeAll(make([]byte, 10), nil), 2)), errDamaged},
		"less than announced":    {made(formZstd, 1000, w.EncodeAll(make([]byte, 999), nil)), errDamaged},
		"more than may be":       {made(formZstd, 64<<20, bomb), errDamaged},
		"more than a number has": {made(formPlain, 1<<63, nil), errDamaged},
		"no size":                {made(formPlain, 1, nil)[:beforeSize], errDamaged},
		"another size":           {made(formPlain, 2, []byte("x")), errDamaged},
		"no zstd":                {made(formZstd, 2, []byte("xy")), errDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := c.read(1, 2, partData, test.text, 1000)
			if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 8<<20 || !errors.Is(err, test.want) {
				t.Errorf("%d octets, %v, with %d allocated", len(got), err, after.TotalAlloc-before.TotalAlloc)
			}
		})
	}
}
