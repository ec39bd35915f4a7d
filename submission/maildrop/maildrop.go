// Package maildrop is where sendmail leaves messages while the relay is away, and where the relay
// picks them up: a directory that every user of the machine may put files into, and only the relay
// may list. A file holds a letter: an envelope, the content, and a checksum.
//
// The directory has two parts. "new" has mode 3733: anybody may add a file, nobody but the relay's
// user may list or remove those of others, and files get the relay's group, which lets the relay
// read them. "broken" is the relay's alone: it is for files that hold no letter.
//
// Nothing in a file is trusted: it gives its owner no more than the SMTP session would that
// sendmail has with the relay otherwise.
//
// Pickup takes the letters out, and has the only goroutine.
package maildrop

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"example.org/mta/internal/envelope"
)

// Limits of a letter.
const (
	// MaxSize is how large a file may be, in octets: the largest max_message_size, and the envelope.
	MaxSize = 1<<30 + maxHead
	// maxHead bounds the envelope, in octets: some 60,000 recipients.
	maxHead = 4 << 20
	// KeepFree is what Put leaves free on the disk, in octets.
	KeepFree = 256 << 20
)

// ErrBroken is returned for a file that holds no letter.
var ErrBroken = errors.New("not a letter")

// Envelope is what sendmail was told beside the message. Notify, Return and ID are those of RFC
// 3461, in SMTP's words; empty where nothing was said.
type Envelope struct {
	Sender     envelope.Address   `json:"sender"`
	Recipients []envelope.Address `json:"recipients"`
	Notify     []string           `json:"notify,omitempty"`
	Return     string             `json:"return,omitempty"`
	ID         string             `json:"envid,omitempty"`
	UTF8       bool               `json:"utf8,omitempty"`
}

// valid reports whether all of it is what may stand in a command of SMTP.
func (e *Envelope) valid() bool {
	if len(e.Recipients) == 0 || len(e.ID) > 100 || e.Return != "" && e.Return != "FULL" && e.Return != "HDRS" {
		return false
	}
	for _, word := range e.Notify {
		if !slices.Contains([]string{"NEVER", "SUCCESS", "FAILURE", "DELAY"}, word) {
			return false
		}
	}
	if strings.ContainsFunc(e.ID, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return false
	}
	if _, err := envelope.ParseAddress(string(e.Sender)); err != nil && !e.Sender.Null() {
		return false
	}
	return !slices.ContainsFunc(e.Recipients, func(r envelope.Address) bool {
		a, err := envelope.ParseAddress(string(r))
		return err != nil || a.Null()
	})
}

// head is the first line of a file.
type head struct {
	Version int   `json:"maildrop"`
	Size    int64 `json:"size"` // of the content, in octets
	Envelope
}

const version = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Dir is a maildrop.
type Dir string

// New is the name of the folder within a maildrop that has the letters.
const New = "new"

func (d Dir) new() string    { return filepath.Join(string(d), New) }
func (d Dir) broken() string { return filepath.Join(string(d), "broken") }

// Put leaves a letter, and returns when it is on stable storage. size is that of the content. After
// an error nothing is left.
func (d Dir) Put(e Envelope, content io.Reader, size int64) (err error) {
	if err := d.room(size); err != nil {
		return err
	}
	name := strings.ToLower(rand.Text())
	partly, whole := filepath.Join(d.new(), "."+name), filepath.Join(d.new(), name)
	f, err := os.OpenFile(partly, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	at := partly
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			os.Remove(at)
		}
	}()
	if err := write(f, e, content, size); err != nil {
		return err
	}
	if err := f.Chmod(0o640); err != nil { // whatever the umask: the relay has the group
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(partly, whole); err != nil {
		return err
	}
	at = whole
	// Who may not list the directory can't open it, and so can't sync it. To sync the file once more
	// makes its new name durable on the file systems that Linux has (ext4, XFS, Btrfs): the rename
	// has changed the file's inode, and is in the same transaction.
	return f.Sync()
}

// room says whether a letter of some octets may be put here.
func (d Dir) room(size int64) error {
	if size > MaxSize-maxHead {
		return fmt.Errorf("the message is larger than %d octets", MaxSize-maxHead)
	}
	free, err := d.free()
	if err == nil && free-size < KeepFree {
		err = fmt.Errorf("the disk of %s is nearly full: %d MiB are free", d, free>>20)
	}
	return err
}

// free is what is free on the disk for other users than root, in octets.
func (d Dir) free() (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(d.new(), &s); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: d.new(), Err: err}
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

func write(to io.Writer, e Envelope, content io.Reader, size int64) error {
	sum := crc32.New(castagnoli)
	w := bufio.NewWriterSize(io.MultiWriter(to, sum), 64<<10)
	line, err := json.Marshal(head{version, size, e})
	if err != nil {
		return err
	}
	if len(line) >= maxHead {
		return fmt.Errorf("the envelope is larger than %d octets: send to fewer recipients at once", maxHead)
	}
	w.Write(append(line, '\n'))
	n, err := io.Copy(w, content)
	switch {
	case err != nil:
		return err
	case n != size:
		return fmt.Errorf("the message has %d octets and not %d", n, size)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(to, "%08x\n", sum.Sum32())
	return err
}

// trailer is the length of the checksum's line.
const trailer = 9
