package linelog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/klauspost/compress/zstd"

	"example.org/mta/internal/smallfile"
)

// A compressed file is in zstd's seekable format: independent frames of BlockSize octets, and a table of their
// sizes in a frame that other programs skip. Any zstd reads it, and the block of an offset is found without
// reading what precedes it.
const (
	tableMagic  = 0x184D2A5E
	footerMagic = 0x8F92EAB1
	footerSize  = 9
	// largestFrame bounds the memory for a frame that somebody else may have made.
	largestFrame = 8 << 20
)

// errNoTable is for a file that was compressed by another program.
var errNoTable = errors.New("no table of frames")

// Compress makes the compressed form of a finished file, and removes the plain one. Both are there after a
// crash in between, and either is good.
func Compress(f File, stop <-chan struct{}) error {
	in, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	part := f.Path + compressedSuffix + partSuffix
	out, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	defer os.Remove(part) // there only after an error
	err = writeFrames(out, in, stop)
	if err == nil {
		err = smallfile.Sync(out)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("compressing %s: %w", f.Path, err)
	}
	_ = os.Chtimes(part, info.ModTime(), info.ModTime())
	if err := os.Rename(part, f.Path+compressedSuffix); err != nil {
		return err
	}
	if err := smallfile.SyncDir(filepath.Dir(f.Path)); err != nil {
		return err
	}
	return os.Remove(f.Path)
}

// ErrStopped is the error of Compress when it was stopped.
var ErrStopped = errors.New("stopped")

// writeFrames writes what it reads as frames, and their table.
func writeFrames(out io.Writer, in io.Reader, stop <-chan struct{}) error {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(BlockSize))
	if err != nil {
		return err
	}
	defer e.Close()
	w := bufio.NewWriterSize(out, 1<<20)
	block := make([]byte, BlockSize)
	var frame, table []byte
	for {
		n, err := io.ReadFull(in, block)
		if n > 0 {
			frame = e.EncodeAll(block[:n], frame[:0])
			table = binary.LittleEndian.AppendUint32(table, uint32(len(frame)))
			table = binary.LittleEndian.AppendUint32(table, uint32(n))
			if _, err := w.Write(frame); err != nil {
				return err
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			return err
		}
		select {
		case <-stop:
			return ErrStopped
		default:
		}
	}
	frames := len(table) / 8
	head := binary.LittleEndian.AppendUint32(nil, tableMagic)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(table)+footerSize))
	table = binary.LittleEndian.AppendUint32(append(head, table...), uint32(frames))
	table = append(table, 0) // no checksums: zstd's frames have their own
	if _, err := w.Write(binary.LittleEndian.AppendUint32(table, footerMagic)); err != nil {
		return err
	}
	return w.Flush()
}

// frames is a compressed file.
type frames struct {
	f    *os.File
	ends []frameEnd // of each frame, in both forms

	decoder func() (*zstd.Decoder, error) // made once
}

type frameEnd struct{ compressed, plain int64 }

// size is that of the plain form.
func (z *frames) size() int64 {
	if len(z.ends) == 0 {
		return 0
	}
	return z.ends[len(z.ends)-1].plain
}

// openFrames reads the table of a compressed file.
func openFrames(f *os.File) (*frames, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var footer [footerSize]byte
	if _, err := f.ReadAt(footer[:], info.Size()-footerSize); err != nil {
		return nil, errNoTable
	}
	count := int64(binary.LittleEndian.Uint32(footer[:]))
	entry := int64(8 + 4*(footer[4]>>7))
	if binary.LittleEndian.Uint32(footer[5:]) != footerMagic || count*entry+footerSize+8 > info.Size() {
		return nil, errNoTable
	}
	table := make([]byte, count*entry)
	if _, err := f.ReadAt(table, info.Size()-footerSize-int64(len(table))); err != nil {
		return nil, errNoTable
	}
	z := &frames{f, make([]frameEnd, count), sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(largestFrame))
	})}
	var end frameEnd
	for i := range z.ends {
		e := table[int64(i)*entry:]
		c, p := int64(binary.LittleEndian.Uint32(e)), int64(binary.LittleEndian.Uint32(e[4:]))
		if c > largestFrame || p > largestFrame {
			return nil, errNoTable
		}
		end.compressed += c
		end.plain += p
		z.ends[i] = end
	}
	if end.compressed > info.Size() {
		return nil, errNoTable
	}
	return z, nil
}

// DamageError is the error for a part of a compressed file that can't be read.
type DamageError struct {
	Name       string
	Begin, End int64 // of the part, in octets of the plain form; End 0: nothing behind it can be read
	Err        error
}

func (e *DamageError) Error() string { return fmt.Sprintf("%s is damaged: %v", e.Name, e.Err) }

func (e *DamageError) Unwrap() error { return e.Err }

// frame decompresses the i-th frame.
func (z *frames) frame(i int, to []byte) ([]byte, error) {
	var start frameEnd
	if i > 0 {
		start = z.ends[i-1]
	}
	in := make([]byte, z.ends[i].compressed-start.compressed)
	if _, err := z.f.ReadAt(in, start.compressed); err != nil {
		return nil, err
	}
	d, err := z.decoder()
	if err != nil {
		return nil, err
	}
	out, err := d.DecodeAll(in, to[:0])
	if err == nil && int64(len(out)) != z.ends[i].plain-start.plain {
		err = fmt.Errorf("frame %d has %d octets", i, len(out))
	}
	if err != nil {
		err = &DamageError{z.f.Name(), start.plain, z.ends[i].plain, err}
	}
	return out, err
}

// framesReader reads a compressed file from an offset on.
type framesReader struct {
	z    *frames
	next int // frame
	left []byte
	buf  []byte
}

func (r *framesReader) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		if r.next == len(r.z.ends) {
			return 0, io.EOF
		}
		var err error
		if r.buf, err = r.z.frame(r.next, r.buf); err != nil {
			return 0, err
		}
		r.left, r.next = r.buf, r.next+1
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (r *framesReader) Close() error { return r.z.f.Close() }

// from begins at an offset.
func (z *frames) from(offset int64) (io.ReadCloser, error) {
	r := &framesReader{z: z}
	for r.next < len(z.ends) && z.ends[r.next].plain <= offset {
		r.next++
	}
	if r.next > 0 {
		offset -= z.ends[r.next-1].plain
	}
	if r.next < len(z.ends) && offset > 0 {
		var err error
		if r.buf, err = z.frame(r.next, nil); err != nil {
			return nil, err
		}
		r.left, r.next = r.buf[offset:], r.next+1
	}
	return r, nil
}

// from opens the file, in whichever form it is there, and reads from an offset on. The error is fs.ErrNotExist
// if it was deleted.
func (f File) from(offset int64) (io.ReadCloser, error) {
	in, err := os.Open(f.Plain())
	if err == nil {
		if offset > 0 {
			_, err = in.Seek(offset, io.SeekStart)
		}
		if err != nil {
			in.Close()
			return nil, err
		}
		return in, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if in, err = os.Open(f.Plain() + compressedSuffix); err != nil {
		return nil, err
	}
	z, err := openFrames(in)
	if err == nil {
		var r io.ReadCloser
		if r, err = z.from(offset); err == nil {
			return r, nil
		}
	}
	if errors.Is(err, errNoTable) {
		return foreign(in, offset)
	}
	in.Close()
	return nil, err
}

// Size is that of the plain form of a file.
func (f File) Size() (int64, error) {
	if info, err := os.Stat(f.Plain()); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return sizeOf(info), err
	}
	in, err := os.Open(f.Plain() + compressedSuffix)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	z, err := openFrames(in)
	if err == nil {
		return z.size(), nil
	}
	r, err := foreign(in, 0)
	if err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, r)
}

func sizeOf(info os.FileInfo) int64 {
	if info == nil {
		return 0
	}
	return info.Size()
}

// foreign reads a file that another program has compressed: from its beginning, whatever the offset.
func foreign(in *os.File, offset int64) (io.ReadCloser, error) {
	d, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(largestFrame))
	if err != nil {
		in.Close()
		return nil, err
	}
	r := &foreignReader{d, in}
	if _, err := io.CopyN(io.Discard, r, offset); err != nil && err != io.EOF {
		r.Close()
		return nil, err
	}
	return r, nil
}

type foreignReader struct {
	*zstd.Decoder
	f *os.File
}

func (r *foreignReader) Read(p []byte) (int, error) {
	n, err := r.Decoder.Read(p)
	if err != nil && err != io.EOF {
		err = &DamageError{Name: r.f.Name(), Err: err}
	}
	return n, err
}

func (r *foreignReader) Close() error {
	r.Decoder.Close()
	return r.f.Close()
}
