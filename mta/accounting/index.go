package accounting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/linelog"
)

// An index says in which blocks of a file a message has records. It is a file beside it, of pages, each with a
// checksum: a lookup reads two of them. Damage is noticed, and the file itself is read then. An index is never
// synced, since it can be made again.
//
// It consists of sections, one after the other: a page that describes the section, and those with the entries, a
// hash table whose full pages spill into the next one.
const (
	pageSize    = 4 << 10
	entrySize   = 12                                // id, block
	pageHead    = 8                                 // checksum, number of entries, whether the page has spilled
	pageEntries = (pageSize - pageHead) / entrySize // 340
	pageFill    = pageEntries * 2 / 3               // on average

	// sectionEntries bounds the memory for a section: 16 octets each.
	sectionEntries = 256 << 10

	indexMagic = "mtaidx1\n"
)

// entry says that a message has records that begin in a block.
type entry struct {
	id    envelope.ID
	block uint32
}

// anyID is that of a damaged record, which can be of any message.
const anyID envelope.ID = 0

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// section describes a part of an index.
type section struct {
	from, to int64 // the part of the file that it is about, in octets
	pages    int64 // with entries
	at       int64 // of its first page, in the index
	min, max envelope.ID
}

func (s *section) encode() []byte {
	p := make([]byte, pageSize)
	b := append(p[:4], indexMagic...)
	for _, n := range []int64{s.from, s.to, s.pages, int64(s.min), int64(s.max)} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	sealPage(p)
	return p
}

// sealPage writes the checksum of a page.
func sealPage(page []byte) {
	binary.LittleEndian.PutUint32(page, crc32.Checksum(page[4:], castagnoli))
}

var errIndex = errors.New("the index is damaged")

// readPage reads a page and checks it.
func readPage(f io.ReaderAt, at int64, page []byte) error {
	if n, err := f.ReadAt(page, at); n < pageSize {
		if err == io.EOF && n == 0 {
			return io.EOF
		}
		return errIndex
	}
	if binary.LittleEndian.Uint32(page) != crc32.Checksum(page[4:], castagnoli) {
		return errIndex
	}
	return nil
}

// readSection reads the description at a place of an index; io.EOF is its end.
func readSection(f io.ReaderAt, at int64, page []byte) (s section, err error) {
	if err := readPage(f, at, page); err != nil {
		return s, err
	}
	b, ok := bytes.CutPrefix(page[4:], []byte(indexMagic))
	if !ok {
		return s, errIndex
	}
	n := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }
	s = section{from: n(0), to: n(1), pages: n(2), at: at + pageSize, min: envelope.ID(n(3)), max: envelope.ID(n(4))}
	if s.from < 0 || s.to < s.from || s.pages < 0 || s.pages > 16*sectionEntries {
		return s, errIndex
	}
	return s, nil
}

// end is where the next section begins.
func (s *section) end() int64 { return s.at + s.pages*pageSize }

// home is the page that an id belongs to.
func (s *section) home(id envelope.ID) int64 { return int64(mixed(id) % uint64(s.pages)) }

// mixed is the hash of an id: ids are made in a row (splitmix64).
func mixed(id envelope.ID) uint64 {
	x := uint64(id)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// spans reports whether an id is among those of the section, or between them.
func (s *section) spans(id envelope.ID) bool {
	return s.pages > 0 && (s.min == anyID || s.min <= id && id <= s.max)
}

// find adds the blocks in which a message has records, or may have some that are damaged.
func (s *section) find(f io.ReaderAt, id envelope.ID, to []int64, page []byte) (_ []int64, err error) {
	if !s.spans(id) {
		return to, nil
	}
	if s.min == anyID && id != anyID {
		if to, err = s.find(f, anyID, to, page); err != nil {
			return to, err
		}
	}
	for n, i := int64(0), s.home(id); n < s.pages; n, i = n+1, (i+1)%s.pages {
		if err := readPage(f, s.at+i*pageSize, page); err != nil {
			return to, errIndex
		}
		count := int(binary.LittleEndian.Uint16(page[4:]))
		if count > pageEntries {
			return to, errIndex
		}
		for e := page[pageHead:]; count > 0; e, count = e[entrySize:], count-1 {
			if envelope.ID(binary.LittleEndian.Uint64(e)) == id {
				to = append(to, int64(binary.LittleEndian.Uint32(e[8:])))
			}
		}
		if page[6] == 0 {
			break
		}
	}
	return to, nil
}

// appendSection adds entries about a part of a file to an index.
func appendSection(index *os.File, at int64, from, to int64, entries []entry) (end int64, err error) {
	s := section{from: from, to: to, at: at + pageSize}
	if n := int64(len(entries)); n > 0 {
		s.pages = (n + pageFill - 1) / pageFill
		s.min = entries[0].id
	}
	pages := make([]byte, s.pages*pageSize)
	for _, e := range entries {
		s.min, s.max = min(s.min, e.id), max(s.max, e.id)
		i := s.home(e.id)
		for {
			p := pages[i*pageSize : (i+1)*pageSize]
			if count := int(binary.LittleEndian.Uint16(p[4:])); count < pageEntries {
				binary.LittleEndian.PutUint64(p[pageHead+count*entrySize:], uint64(e.id))
				binary.LittleEndian.PutUint32(p[pageHead+count*entrySize+8:], e.block)
				binary.LittleEndian.PutUint16(p[4:], uint16(count+1))
				break
			}
			p[6] = 1
			i = (i + 1) % s.pages
		}
	}
	for i := range s.pages {
		sealPage(pages[i*pageSize : (i+1)*pageSize])
	}
	if _, err := index.WriteAt(pages, s.at); err != nil {
		return at, err
	}
	if _, err := index.WriteAt(s.encode(), at); err != nil {
		return at, err
	}
	return s.end(), nil
}

// sections lists those of an index, up to the first that is not sound; whole has all pages read and checked.
func sections(f io.ReaderAt, whole bool) (all []section, err error) {
	page := make([]byte, pageSize)
	var at, from int64
	for {
		s, err := readSection(f, at, page)
		if err == nil && s.from != from {
			err = errIndex
		}
		for i := int64(0); err == nil && whole && i < s.pages; i++ {
			if err = readPage(f, s.at+i*pageSize, page); err != nil {
				err = errIndex
			}
		}
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, s)
		at, from = s.end(), s.to
	}
}

// lookup is the answer of an index: the blocks of a file in which a message has records.
type lookup struct {
	blocks  []int64
	covered int64 // up to where the index knows that
	whole   bool  // that is the end of the file, which grows no more
}

// indexOf is the name of a file's index.
func indexOf(f linelog.File) string { return f.Beside(indexSuffix) }

// blocksOf looks a message up in the index of a file.
func blocksOf(f linelog.File, id envelope.ID) (r lookup) {
	index, err := os.Open(indexOf(f))
	if err != nil {
		return r
	}
	defer index.Close()
	var page [pageSize]byte
	for at := int64(0); ; {
		s, err := readSection(index, at, page[:])
		if err != nil || s.from != r.covered {
			break
		}
		if r.blocks, err = s.find(index, id, r.blocks, page[:]); err != nil {
			break
		}
		at, r.covered = s.end(), s.to
	}
	r.whole = f.Compressed && r.covered > 0 // it was indexed before
	return r
}

// blocksIn is blocksOf for a file whose sections are known, and cover all of it. A section that can't have the message
// costs nothing: no file is opened.
func blocksIn(f linelog.File, all []section, id envelope.ID) (r lookup, err error) {
	r.whole = true
	var index *os.File
	var page [pageSize]byte
	for i := range all {
		s := &all[i]
		if r.covered = s.to; !s.spans(id) {
			continue
		}
		if index == nil {
			if index, err = os.Open(indexOf(f)); err != nil {
				return r, err
			}
			defer index.Close()
		}
		if r.blocks, err = s.find(index, id, r.blocks, page[:]); err != nil {
			return r, err
		}
	}
	return r, nil
}

// lostEnd returns the octets at the end of a file that are damaged, or missing though its index has them; none if from
// is to.
func lostEnd(d linelog.Dir, f linelog.File) (from, to int64) {
	var known int64
	if index, err := os.Open(indexOf(f)); err == nil {
		if all, _ := sections(index, false); len(all) > 0 {
			known = all[len(all)-1].to
		}
		index.Close()
	}
	e, err := d.EndOf(f)
	if err != nil {
		return 0, 0 // deleted; or who reads it gets the error
	}
	return e.Lost(known)
}

// indexer makes the index of a file, as the file grows. It is for one goroutine.
type indexer struct {
	file    linelog.File
	at      int64 // the end of the index
	from    int64 // the part of the file that the entries are about
	to      int64
	entries []entry
	// A hash table of the entries: heads has the number of the newest of those with equal hashes, older that of the
	// next; 0 is none.
	heads, older []uint32
}

// newIndexer goes on with the index that there is, as far as it is sound.
func newIndexer(f linelog.File) *indexer {
	x := &indexer{file: f}
	index, err := os.Open(indexOf(f))
	if err != nil {
		return x
	}
	defer index.Close()
	all, _ := sections(index, true)
	if len(all) > 0 {
		last := all[len(all)-1]
		x.at, x.from, x.to = last.end(), last.to, last.to
	}
	return x
}

// line takes in the line at x.to.
func (x *indexer) line(line []byte, size int64) error {
	id, ok := idOf(line)
	if !linelog.Sound(line) {
		id, ok = anyID, true
	}
	if ok {
		x.add(entry{id, uint32(x.to / linelog.BlockSize)})
	}
	x.to += size
	if len(x.entries) >= sectionEntries {
		return x.flush()
	}
	return nil
}

// add notes an entry once.
func (x *indexer) add(e entry) {
	if len(x.entries) == len(x.heads)/2 {
		x.grow()
	}
	head := &x.heads[mixed(e.id)%uint64(len(x.heads))]
	for i := *head; i > 0 && x.entries[i-1].block == e.block; i = x.older[i-1] {
		if x.entries[i-1].id == e.id {
			return
		}
	}
	x.entries, x.older = append(x.entries, e), append(x.older, *head)
	*head = uint32(len(x.entries))
}

// grow makes room for as many entries again.
func (x *indexer) grow() {
	x.heads = make([]uint32, max(1<<10, 2*len(x.heads)))
	for i, e := range x.entries {
		head := &x.heads[mixed(e.id)%uint64(len(x.heads))]
		x.older[i], *head = *head, uint32(i+1)
	}
}

// flush writes a section with what was taken in.
func (x *indexer) flush() error {
	if x.to == x.from {
		return nil
	}
	index, err := os.OpenFile(indexOf(x.file), os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return err
	}
	defer index.Close()
	if err := index.Truncate(x.at); err != nil { // what follows is not sound
		return err
	}
	end, err := appendSection(index, x.at, x.from, x.to, x.entries)
	if err != nil {
		return fmt.Errorf("writing %s: %w", indexOf(x.file), err)
	}
	x.at, x.from = end, x.to
	x.entries, x.older = x.entries[:0], x.older[:0]
	clear(x.heads)
	return nil
}

// find adds the blocks that are not in the index yet.
func (x *indexer) find(id envelope.ID, to []int64) []int64 {
	if len(x.entries) == 0 {
		return to
	}
	for _, id := range []envelope.ID{id, anyID} {
		for i := x.heads[mixed(id)%uint64(len(x.heads))]; i > 0; i = x.older[i-1] {
			if e := x.entries[i-1]; e.id == id {
				to = append(to, int64(e.block))
			}
		}
	}
	return to
}

// indexed reports whether the index of a file covers all of it, or more than is left, and gives the sections. It is
// read whole.
func indexed(f linelog.File) (all []section, good bool, err error) {
	size, err := f.Size()
	if err != nil {
		return nil, false, err
	}
	index, err := os.Open(indexOf(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, size == 0, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer index.Close()
	all, err = sections(index, true)
	if err != nil && !errors.Is(err, errIndex) {
		return nil, false, err
	}
	return all, err == nil && (size == 0 || len(all) > 0 && all[len(all)-1].to >= size), nil
}

// idOf returns the id in a line.
func idOf(line []byte) (envelope.ID, bool) {
	_, text := headOf(line)
	if len(text) == 0 {
		return 0, false
	}
	id, err := envelope.ParseID(string(text))
	return id, err == nil
}

// headOf returns the type and the id in a line, with which the writer begins each; nil if the line begins otherwise.
func headOf(line []byte) (kind, id []byte) {
	const begin, key = `{"type":"`, `","id":"`
	rest, ok := bytes.CutPrefix(line, []byte(begin))
	if !ok {
		return nil, nil
	}
	end := bytes.IndexByte(rest, '"')
	if end < 0 || !bytes.HasPrefix(rest[end:], []byte(key)) {
		return nil, nil
	}
	kind, rest = rest[:end], rest[end+len(key):]
	if end = bytes.IndexByte(rest, '"'); end < 0 {
		return nil, nil
	}
	return kind, rest[:end]
}
