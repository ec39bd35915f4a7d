package store

import (
	"encoding/binary"
	"errors"
	"io"
)

const (
	windowSize = 1 << 20
	// blockSize is what is given up when reading fails.
	blockSize = 4096
)

// readError is an error of the disk, as opposed to wrong octets.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }

// window reads a file piece by piece.
type window struct {
	r    io.ReaderAt
	size int64
	buf  []byte
	off  int64 // of buf[0]
}

// at gives n octets at off, all of which are before the end of the file. They are valid until
// the next call.
func (w *window) at(off int64, n int) ([]byte, error) {
	if i := off - w.off; i >= 0 && i+int64(n) <= int64(len(w.buf)) {
		return w.buf[i : i+int64(n)], nil
	}
	if err := w.load(off, max(n, windowSize)); err == nil {
		return w.buf[:n], nil
	}
	// The fault may lie further on than what is asked for.
	if err := w.load(off, n); err != nil {
		return nil, &readError{err}
	}
	return w.buf[:n], nil
}

func (w *window) load(off int64, n int) error {
	n = int(min(int64(n), w.size-off))
	if cap(w.buf) < n {
		w.buf = make([]byte, max(n, min(windowSize, int(w.size))))
	}
	w.buf, w.off = w.buf[:n], off
	if _, err := w.r.ReadAt(w.buf, off); err != nil && !errors.Is(err, io.EOF) {
		w.buf = w.buf[:0]
		return err
	} else if err != nil && off+int64(n) < w.size {
		w.buf = w.buf[:0]
		return io.ErrUnexpectedEOF // the file is shorter than it said
	}
	return nil
}

// seek gives the first place from off on, a multiple of Align away from it, at which a header
// with salt may begin. Blocks that can't be read are passed over.
func (w *window) seek(off, limit int64, salt uint32) int64 {
	for off+HeaderSize <= limit {
		b, err := w.at(off, HeaderSize)
		if err != nil {
			off = (off/blockSize + 1) * blockSize
			continue
		}
		if rest := w.buf[off-w.off:]; len(rest) > len(b) {
			b = rest
		}
		for len(b) >= HeaderSize {
			if binary.LittleEndian.Uint32(b) == salt {
				return off
			}
			if len(b) < Align {
				break
			}
			b = b[Align:]
			off += Align
		}
	}
	return limit
}
