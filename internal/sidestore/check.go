package sidestore

// This file checks a bbolt file before bbolt opens it. bbolt maps its file and trusts what it
// finds: a damaged page can make it panic in a goroutine where nobody can recover, fault, or read
// for ever. Check reads the file page by page and gives an error instead.
//
// It checks structure alone: that a value is what was written, the one who wrote it must know.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// bbolt's format, version 2. It is in the byte order of the machine.
const (
	magic   = 0xED0CDAED
	version = 2

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	pageHeader  = 16 // id, flags, count, overflow
	element     = 16
	metaSize    = 64
	bucketValue = 16 // root page and sequence; a page follows when the root is 0
	bucketFlag  = 0x01

	noFreelist = ^uint64(0)
	maxDepth   = 64
)

var order = binary.NativeEndian

// ErrHead is a file whose tree is sound, and one of whose two heads is not. If that was the newer one, bbolt goes on
// from the state before the last transaction.
var ErrHead = errors.New("one of its two heads is damaged, and the last change may be missing")

// Check reads the file at path and gives the first thing that is wrong with it, nil when bbolt can
// open it. A file without any content is wrong: bbolt makes none of that kind.
func Check(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is not a file")
	case info.Size() == 0:
		return errors.New("it is empty")
	}
	c := checker{file: f, size: info.Size(), seen: make(map[uint64]bool)}
	if err := c.findMeta(); err != nil {
		return err
	}
	if c.size < int64(c.meta.pages)*c.pageSize {
		return fmt.Errorf("it is cut short: %d octets of %d", c.size, int64(c.meta.pages)*c.pageSize)
	}
	if _, err := c.tree(c.meta.root, nil, 0); err != nil {
		return err
	}
	if err := c.freelist(); err != nil {
		return err
	}
	if c.heads < 2 {
		return ErrHead
	}
	return nil
}

type meta struct{ root, freelist, pages, tx uint64 }

type checker struct {
	file     io.ReaderAt
	size     int64
	pageSize int64
	meta     meta
	heads    int             // how many are sound
	seen     map[uint64]bool // pages that are in use
}

// findMeta chooses the newer of the two meta pages that are sound, as bbolt does.
func (c *checker) findMeta() error {
	first, err := c.readMeta(0)
	sizes := []int64{int64(os.Getpagesize())}
	if err == nil {
		sizes = []int64{c.pageSize}
	} else {
		for size := int64(1024); size <= 16<<20; size *= 2 { // the second says how large its pages are
			sizes = append(sizes, size)
		}
	}
	found := err == nil
	if found {
		c.heads++
	}
	for _, size := range sizes {
		second, err := c.readMeta(size)
		if err != nil || c.pageSize != size {
			continue
		}
		c.heads++
		if !found || second.tx > first.tx {
			first, found = second, true
		}
		break
	}
	if !found {
		return errors.New("neither of its two heads is sound")
	}
	c.meta = first
	return nil
}

// readMeta reads the meta page at an offset, and the size of pages.
func (c *checker) readMeta(at int64) (m meta, err error) {
	b := make([]byte, pageHeader+metaSize)
	if _, err := c.file.ReadAt(b, at); err != nil {
		return m, err
	}
	b = b[pageHeader:]
	h := fnv.New64a()
	h.Write(b[:56])
	size := order.Uint32(b[8:])
	if order.Uint32(b) != magic || order.Uint32(b[4:]) != version || order.Uint64(b[56:]) != h.Sum64() || size < 1024 ||
		size&(size-1) != 0 {
		return m, errors.New("no sound head")
	}
	c.pageSize = int64(size)
	return meta{root: order.Uint64(b[16:]), freelist: order.Uint64(b[32:]), pages: order.Uint64(b[40:]),
		tx: order.Uint64(b[48:])}, nil
}

// page reads a page with those that belong to it.
func (c *checker) page(id uint64) (b []byte, err error) {
	if id < 2 || id >= c.meta.pages {
		return nil, fmt.Errorf("page %d of %d", id, c.meta.pages)
	}
	if c.seen[id] {
		return nil, fmt.Errorf("page %d is used twice", id)
	}
	head := make([]byte, pageHeader)
	if _, err := c.file.ReadAt(head, int64(id)*c.pageSize); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	more := uint64(order.Uint32(head[12:]))
	if order.Uint64(head) != id || id+more >= c.meta.pages {
		return nil, fmt.Errorf("page %d is not where it should be", id)
	}
	for i := id; i <= id+more; i++ {
		if c.seen[i] {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		c.seen[i] = true
	}
	b = make([]byte, int64(more+1)*c.pageSize)
	if _, err := c.file.ReadAt(b, int64(id)*c.pageSize); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return b, nil
}

// tree checks a page and all below it, and returns its last key. Its first key must not be below least.
func (c *checker) tree(id uint64, least []byte, depth int) (last []byte, err error) {
	if depth > maxDepth {
		return nil, errors.New("its pages go too deep")
	}
	b, err := c.page(id)
	if err != nil {
		return nil, err
	}
	if last, err = c.elements(b, least, depth); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return last, nil
}

// elements checks what is in a page, which may be one within a value, and returns the last key of all below it.
func (c *checker) elements(b, least []byte, depth int) (last []byte, err error) {
	flags, count := order.Uint16(b[8:]), int(order.Uint16(b[10:]))
	if flags != branchPage && flags != leafPage || flags == branchPage && count == 0 {
		return nil, fmt.Errorf("kind %#x with %d entries", flags, count)
	}
	if pageHeader+count*element > len(b) {
		return nil, fmt.Errorf("%d entries are more than fit", count)
	}
	last = least
	for i := range count {
		at := pageHeader + i*element
		e := b[at : at+element]
		start, keySize, valueSize := uint64(order.Uint32(e)), uint64(order.Uint32(e[4:])), uint64(0)
		if flags == leafPage {
			start, keySize, valueSize = uint64(order.Uint32(e[4:])), uint64(order.Uint32(e[8:])),
				uint64(order.Uint32(e[12:]))
		}
		start += uint64(at)
		if start+keySize+valueSize > uint64(len(b)) {
			return nil, fmt.Errorf("entry %d ends behind the page", i)
		}
		key, value := b[start:start+keySize], b[start+keySize:start+keySize+valueSize]
		if cmp := bytes.Compare(key, last); cmp < 0 || cmp == 0 && i > 0 {
			return nil, fmt.Errorf("entry %d is out of order", i)
		}
		switch last = key; {
		case flags == branchPage: // the keys below the next entry come after all below this one
			last, err = c.tree(order.Uint64(e[8:]), key, depth+1)
		case order.Uint32(e)&bucketFlag != 0:
			err = c.bucket(value, depth+1)
		}
		if err != nil {
			return nil, err
		}
	}
	return last, nil
}

func (c *checker) bucket(value []byte, depth int) error {
	if len(value) < bucketValue {
		return errors.New("a bucket is too short")
	}
	if root := order.Uint64(value); root != 0 {
		_, err := c.tree(root, nil, depth)
		return err
	}
	if len(value) < bucketValue+pageHeader {
		return errors.New("a bucket is too short")
	}
	_, err := c.elements(value[bucketValue:], nil, depth)
	return err
}

// freelist checks the list of pages that are free, where the file has one.
func (c *checker) freelist() error {
	if c.meta.freelist == noFreelist {
		return nil
	}
	b, err := c.page(c.meta.freelist)
	if err != nil {
		return err
	}
	if order.Uint16(b[8:]) != freelistPage {
		return errors.New("the list of free pages is not valid")
	}
	count, b := uint64(order.Uint16(b[10:])), b[pageHeader:]
	if count == 0xFFFF {
		count, b = order.Uint64(b), b[8:]
	}
	if count > uint64(len(b)/8) {
		return errors.New("the list of free pages is longer than its pages")
	}
	for i := range count {
		id := order.Uint64(b[8*i:])
		if id < 2 || id >= c.meta.pages || c.seen[id] {
			return fmt.Errorf("page %d can't be free", id)
		}
		c.seen[id] = true
	}
	return nil
}
