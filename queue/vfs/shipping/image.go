package shipping

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Image is what the entries of a log make of a directory: its files, and which entry has which part of each.
type Image struct {
	files map[uint32]*file
	names map[string]uint32
	live  map[uint64]int64 // octets of each entry that a file has; none: it is not here
	last  uint32           // number of a file
	parts int              // of all files
	total int64            // octets of all parts

	entry uint64 // of Read's: the last one
}

type file struct {
	name  string
	size  int64
	parts []part // by offset; between them are zeros
}

// part is octets of a file that an entry has.
type part struct {
	at, size int64
	entry    uint64
	from     int64  // in the entry's data
	sum      uint32 // of the write that it is of, from first to first+whole in the file
	first    int64
	whole    int64
}

func (p *part) end() int64 { return p.at + p.size }

// uncut reports whether it is all of the write, so that it has the sum.
func (p *part) uncut() bool { return p.size == p.whole }

func newImage() *Image {
	return &Image{files: make(map[uint32]*file), names: make(map[string]uint32), live: make(map[uint64]int64)}
}

// use counts octets of an entry, which may be less.
func (m *Image) use(entry uint64, octets int64) {
	m.total += octets
	if m.live[entry] += octets; m.live[entry] == 0 {
		delete(m.live, entry)
	}
}

// apply carries out the changes of an entry.
func (m *Image) apply(entry uint64, all []change) error {
	for i := range all {
		if err := m.change(entry, &all[i]); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
	}
	return nil
}

func (m *Image) change(entry uint64, c *change) error {
	if c.kind == opImage {
		last := m.entry
		*m = *c.all.clone()
		m.entry = last
		return nil
	}
	f := m.files[c.file]
	if f == nil && c.kind != opCreate {
		return fmt.Errorf("there is no file %d", c.file)
	}
	switch c.kind {
	case opCreate:
		if f != nil || m.names[c.name] != 0 || c.file == 0 {
			return fmt.Errorf("file %d, %.300q, is there already", c.file, c.name)
		}
		m.files[c.file], m.names[c.name] = &file{name: c.name}, c.file
		m.last = max(m.last, c.file)
	case opRename:
		if other := m.names[c.name]; other == c.file {
			return nil
		} else if other != 0 {
			m.remove(other)
		}
		delete(m.names, f.name)
		f.name, m.names[c.name] = c.name, c.file
	case opRemove:
		m.remove(c.file)
	case opVoid:
		m.cut(f, 0, maxSize)
	case opSize:
		m.cut(f, c.at, maxSize)
		f.size = c.at
	case opWrite:
		m.write(f, part{at: c.at, size: c.size, entry: entry, from: c.from, sum: c.sum, first: c.at, whole: c.size})
	}
	return nil
}

func (m *Image) remove(number uint32) {
	f := m.files[number]
	m.cut(f, 0, maxSize)
	delete(m.names, f.name)
	delete(m.files, number)
}

// cut takes what is between two offsets out of a file's parts.
func (m *Image) cut(f *file, from, to int64) {
	i, _ := slices.BinarySearchFunc(f.parts, from, func(p part, at int64) int {
		if p.end() <= at {
			return -1
		}
		return 1
	})
	j := i
	var kept []part
	for ; j < len(f.parts) && f.parts[j].at < to; j++ {
		p := f.parts[j]
		m.use(p.entry, -p.size)
		m.parts--
		if p.at < from {
			kept = append(kept, p.of(p.at, from))
		}
		if p.end() > to {
			kept = append(kept, p.of(to, p.end()))
		}
	}
	for _, p := range kept {
		m.use(p.entry, p.size)
		m.parts++
	}
	if i < j || len(kept) > 0 {
		f.parts = slices.Replace(f.parts, i, j, kept...)
	}
}

// of is the part of a part between two offsets.
func (p part) of(from, to int64) part {
	p.from += from - p.at
	p.at, p.size = from, to-from
	return p
}

func (m *Image) write(f *file, p part) {
	if p.size == 0 {
		return
	}
	m.cut(f, p.at, p.end())
	i, _ := slices.BinarySearchFunc(f.parts, p.at, func(q part, at int64) int {
		if q.at < at {
			return -1
		}
		return 1
	})
	f.parts = slices.Insert(f.parts, i, p)
	f.size = max(f.size, p.end())
	m.use(p.entry, p.size)
	m.parts++
}

func (m *Image) clone() *Image {
	n := &Image{files: make(map[uint32]*file, len(m.files)), names: maps.Clone(m.names), live: maps.Clone(m.live),
		last: m.last, parts: m.parts, total: m.total}
	for number, f := range m.files {
		n.files[number] = &file{f.name, f.size, slices.Clone(f.parts)}
	}
	return n
}

// numbers are those of the files, in order.
func (m *Image) numbers() []uint32 { return slices.Sorted(maps.Keys(m.files)) }

// Octets is how much the files have that is in the log.
func (m *Image) Octets() int64 { return m.total }

func (m *Image) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(m.last))
	b = binary.AppendUvarint(b, uint64(len(m.files)))
	for _, number := range m.numbers() {
		f := m.files[number]
		b = appendName(binary.AppendUvarint(b, uint64(number)), f.name)
		b = binary.AppendUvarint(b, uint64(f.size))
		b = binary.AppendUvarint(b, uint64(len(f.parts)))
		for i := range f.parts {
			p := &f.parts[i]
			for _, n := range [...]uint64{uint64(p.at), uint64(p.size), p.entry, uint64(p.from), uint64(p.at - p.first),
				uint64(p.whole)} {
				b = binary.AppendUvarint(b, n)
			}
			b = binary.LittleEndian.AppendUint32(b, p.sum)
		}
	}
	return b
}

// readImage reads what append has written. What is wrong is noted in r.
func readImage(r *reader) *Image {
	m := newImage()
	m.last = r.file()
	for n := r.number(1 << 32); n > 0 && !r.bad; n-- {
		number := r.file()
		f := &file{name: r.name(), size: int64(r.number(maxSize))}
		if number == 0 || number > m.last || m.files[number] != nil || m.names[f.name] != 0 {
			r.bad = true
			break
		}
		m.files[number], m.names[f.name] = f, number
		at := int64(0)
		for parts := r.number(1 << 32); parts > 0 && !r.bad; parts-- {
			p := part{at: int64(r.number(maxSize)), size: int64(r.number(maxWrite)), entry: r.number(1 << 62),
				from: int64(r.number(MaxData))}
			p.first, p.whole = p.at-int64(r.number(maxWrite)), int64(r.number(maxWrite))
			p.sum = r.sum()
			if p.at < at || p.size == 0 || p.end() > f.size || p.first < 0 || p.end() > p.first+p.whole ||
				p.from+p.size > MaxData {
				r.bad = true
			}
			at = p.end()
			f.parts = append(f.parts, p)
			m.use(p.entry, p.size)
			m.parts++
		}
	}
	return m
}

// Read makes the image of a log by its newest image and what follows that. each calls a function with the number, the
// changes and the size of the data of these entries, in order; the first begins with an image, unless it is entry 1.
func Read(each func(func(entry uint64, changes []byte, data int64) error) error) (*Image, error) {
	m := newImage()
	err := each(func(entry uint64, changes []byte, data int64) error {
		all, err := parse(changes, data)
		switch {
		case err != nil:
		case m.entry == 0 && entry != 1 && !HasImage(changes):
			err = errors.New("it does not begin with an image, and entries before it are gone")
		case m.entry != 0 && entry != m.entry+1:
			err = fmt.Errorf("it follows entry %d", m.entry)
		default:
			m.entry = entry
			err = m.apply(entry, all)
		}
		if err != nil {
			return fmt.Errorf("entry %d: %w", entry, err)
		}
		return nil
	})
	return m, err
}

// Entry is the last one that was read, 0 without one.
func (m *Image) Entry() uint64 { return m.entry }
