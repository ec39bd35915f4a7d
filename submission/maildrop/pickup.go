package maildrop

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What is kept of files that hold no letter. What comes beyond is removed: sendmail has not made it, and
// whoever makes such files must not fill the disk with them.
const (
	maxBroken       = 100
	maxBrokenOctets = MaxSize // on the disk
)

// What one user may have of letters that are not finished. What is beyond is removed: no sendmail has returned
// success for it.
const (
	partlyFor       = 24 * time.Hour
	maxPartly       = 100
	maxPartlyOctets = MaxSize // on the disk
)

// Make makes the directory, or sees to it that one that is there is as it must be. It is for the
// relay, whose user owns it.
func (d Dir) Make() error {
	for _, part := range []struct {
		path string
		mode fs.FileMode
	}{
		{string(d), 0o711},
		{d.broken(), 0o700},
		{d.new(), fs.ModeSetgid | fs.ModeSticky | 0o733},
	} {
		if err := os.Mkdir(part.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		info, err := os.Lstat(part.path)
		if err != nil {
			return err
		}
		if stat := info.Sys().(*syscall.Stat_t); !info.IsDir() || int(stat.Uid) != os.Geteuid() {
			return fmt.Errorf("%s is not a directory of the relay's user: chown it, or remove it", part.path)
		}
		const rights = fs.ModePerm | fs.ModeSetgid | fs.ModeSticky
		if info.Mode()&rights == part.mode {
			continue // a service manager that forbids setgid would refuse even this
		}
		if err := os.Chmod(part.path, part.mode); err != nil { // Mkdir goes by the umask
			return err
		}
	}
	return nil
}

// Use is what a user has in the maildrop.
type Use struct {
	Letters, Partly            int   // files, finished or not
	LetterOctets, PartlyOctets int64 // on the disk
}

// Names calls each with the names of the letters that are there and the ids of the users who left them, in no
// order. It returns what each user has. It removes what was never finished: after a day, beyond what a
// user may have of that, and all of it when the disk is so full that sendmail would not begin.
func (d Dir) Names(now time.Time, each func(name string, uid int)) (map[int]*Use, error) {
	f, err := os.Open(d.new())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	free, err := d.free()
	if err != nil {
		return nil, err
	}
	used := map[int]*Use{}
	for {
		names, err := f.Readdirnames(256)
		for _, name := range names {
			info, err := os.Lstat(filepath.Join(d.new(), name))
			if err != nil {
				continue
			}
			stat := info.Sys().(*syscall.Stat_t)
			u := used[int(stat.Uid)]
			if u == nil {
				u = new(Use)
				used[int(stat.Uid)] = u
			}
			if !strings.HasPrefix(name, ".") {
				u.Letters++
				u.LetterOctets += stat.Blocks * blockSize
				each(name, int(stat.Uid))
				continue
			}
			u.Partly++
			u.PartlyOctets += stat.Blocks * blockSize
			if free < KeepFree || now.Sub(changed(stat)) > partlyFor || u.Partly > maxPartly ||
				u.PartlyOctets > maxPartlyOctets {
				os.Remove(filepath.Join(d.new(), name))
			}
		}
		if err == io.EOF {
			return used, nil
		}
		if err != nil {
			return used, err
		}
	}
}

// blockSize is the unit of Stat_t.Blocks, in octets.
const blockSize = 512

// Short reports whether the disk is so full that sendmail leaves nothing.
func (d Dir) Short() bool {
	free, err := d.free()
	return err == nil && free < KeepFree
}

// Letter is an open one.
type Letter struct {
	Envelope
	Name string
	UID  int       // of the user who left it
	Left time.Time // when
	Size int64     // of the content, in octets

	file  *os.File
	start int64 // of the content in the file
}

// Open opens a letter. ErrBroken says that the file holds none; fs.ErrNotExist that it is gone.
func (d Dir) Open(name string) (l *Letter, err error) {
	if strings.IndexFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		return nil, fmt.Errorf("%w: the name is not one that sendmail gives", ErrBroken) // it gets into a header field
	}
	path := filepath.Join(d.new(), name)
	// Whatever it is, to open it must neither wait (a FIFO) nor lead elsewhere (a symbolic link).
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENXIO), errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	case err != nil:
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: no regular file", ErrBroken)
	case stat.Nlink != 1: // a hard link to what may be another user's file
		return nil, fmt.Errorf("%w: the file has %d names", ErrBroken, stat.Nlink)
	case info.Size() < trailer:
		return nil, fmt.Errorf("%w: it is cut short", ErrBroken)
	case info.Size() > MaxSize:
		return nil, fmt.Errorf("%w: it is larger than %d octets", ErrBroken, int64(MaxSize))
	}
	l = &Letter{Name: name, UID: int(stat.Uid), Left: info.ModTime(), file: f}
	return l, l.read(info.Size())
}

// File opens the file of a letter, for a copy, and returns its size in octets. Its errors are those of Open.
func (d Dir) File(name string) (io.ReadCloser, int64, error) {
	l, err := d.Open(name)
	if err != nil {
		return nil, 0, err
	}
	return l.file, l.start + l.Size + trailer, nil // from the beginning: Open reads at offsets
}

// read reads the envelope, and the rest for its checksum.
func (l *Letter) read(size int64) error {
	sum := crc32.New(castagnoli)
	all := bufio.NewReaderSize(io.TeeReader(io.NewSectionReader(l.file, 0, size-trailer), sum), 64<<10)
	line, err := readLine(all)
	if err != nil {
		return err
	}
	var h head
	if err := json.Unmarshal(line, &h); err != nil {
		return fmt.Errorf("%w: envelope: %w", ErrBroken, err)
	}
	l.Envelope, l.Size, l.start = h.Envelope, h.Size, int64(len(line))
	switch {
	case h.Version != version:
		return fmt.Errorf("%w: version %d is not known", ErrBroken, h.Version)
	case !h.valid():
		return fmt.Errorf("%w: the envelope is not one that SMTP can carry", ErrBroken)
	case l.start+h.Size+trailer != size:
		return fmt.Errorf("%w: it has not the size that it says", ErrBroken)
	}
	if _, err := io.Copy(io.Discard, all); err != nil {
		return err
	}
	written := make([]byte, trailer)
	if _, err := l.file.ReadAt(written, size-trailer); err != nil {
		return err
	}
	if string(written) != fmt.Sprintf("%08x\n", sum.Sum32()) {
		return fmt.Errorf("%w: wrong checksum", ErrBroken)
	}
	return nil
}

// readLine reads the first line with its end.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for len(line) <= maxHead {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case err == io.EOF:
			return nil, fmt.Errorf("%w: it has no envelope", ErrBroken)
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: the envelope is larger than %d octets", ErrBroken, maxHead)
}

// Content gives the message from its beginning.
func (l *Letter) Content() io.Reader { return io.NewSectionReader(l.file, l.start, l.Size) }

// Close closes the file.
func (l *Letter) Close() error { return l.file.Close() }

// Remove takes a letter out: it was dealt with.
func (d Dir) Remove(name string) error { return os.Remove(filepath.Join(d.new(), name)) }

// SetAside puts a file where it is left alone, and returns its new path: "" when there are too many of those,
// or it can't be kept, and it was removed. A directory of another user stays in "new" with a name that begins
// with a dot.
func (d Dir) SetAside(name string) (path string, err error) {
	from := filepath.Join(d.new(), name)
	room, err := d.roomAside(from)
	if err != nil {
		return "", err
	}
	if path = filepath.Join(d.broken(), name); room && os.Rename(from, path) == nil {
		return path, nil
	}
	err = os.Remove(from)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	// A directory of another user can't have another parent, but it can have another name.
	path = filepath.Join(d.new(), "."+strings.ToLower(rand.Text()))
	return path, os.Rename(from, path)
}

// roomAside reports whether a file may be kept with those that were set aside.
func (d Dir) roomAside(file string) (bool, error) {
	n, octets, err := d.Broken()
	if err != nil {
		return false, err
	}
	info, err := os.Lstat(file)
	if err != nil {
		return false, err
	}
	return n < maxBroken && octets+info.Sys().(*syscall.Stat_t).Blocks*blockSize <= maxBrokenOctets, nil
}

// Broken counts the files that were set aside, and their octets on the disk.
func (d Dir) Broken() (n int, octets int64, err error) {
	f, err := os.Open(d.broken())
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxBroken + 1)
	if err == io.EOF {
		err = nil
	}
	for _, name := range names {
		if info, err := os.Lstat(filepath.Join(d.broken(), name)); err == nil {
			octets += info.Sys().(*syscall.Stat_t).Blocks * blockSize
		}
	}
	return len(names), octets, err
}
