// Package smallfile keeps the relay's small files. Replace makes a file the old one or the new one, whole and durable,
// whatever happens; Sync and SyncDir serve others too. Marshal and Unmarshal keep JSON that may be damaged: a sum of
// the text is its last member, which programs without sums pass by; SetAside names the place for what is damaged.
// ReadSecret, UpdateSecret and Follow are for the files of users and API keys: others than the owner and its group may
// not read them, and a change counts without a reload. A Secret is made by the relay, with a second copy.
package smallfile

import (
	"bufio"
	"bytes"
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
)

// Replace writes a file anew, by way of a file beside it whose name ends in ".new". Of root's, it gets the owner of the
// file before, or of the folder.
func Replace(path string, mode fs.FileMode, write func(io.Writer) error) error {
	temporary := path + ".new"
	// What a crash has left has the rights that it had, and a link planted there leads elsewhere.
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 64<<10)
	if err = giveTo(f.Name(), path, filepath.Dir(path)); err == nil {
		err = write(w)
	}
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = Sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Write is Replace with a text.
func Write(path string, mode fs.FileMode, text []byte) error {
	return Replace(path, mode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// SyncDir makes durable what was created, renamed or removed in a folder.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// Inherit gives a file or folder that root has made to the owner of its folder: a relay that runs as another user must
// be able to write it.
func Inherit(path string) error { return giveTo(path, filepath.Dir(path)) }

// giveTo gives what root has made to the owner of the first of others that is there.
func giveTo(path string, others ...string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, other := range others {
		info, err := os.Stat(other)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); ok {
			return os.Lchown(path, int(owner.Uid), int(owner.Gid))
		}
	}
	return nil
}

const (
	sumBegins = `,"sum":"`
	sumEnds   = "\"}\n"
	sumDigits = 8
	trailer   = len(sumBegins) + sumDigits + len(sumEnds)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Marshal returns the text of an object that is not empty, with its sum.
func Marshal(object any) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSuffix(text, []byte("}"))
	return fmt.Appendf(text, "%s%08x%s", sumBegins, Sum(text), sumEnds), nil
}

// WriteObject replaces a file by the text of an object, see Marshal.
func WriteObject(path string, mode fs.FileMode, object any) error {
	text, err := Marshal(object)
	if err != nil {
		return err
	}
	return Write(path, mode, text)
}

// Sum is the sum of octets.
func Sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Unmarshal is json.Unmarshal for a text that Marshal or a program without sums has made. It reports whether the text
// has a sum. One without a sum may have no members but those of the object: it would be one whose sum is damaged.
func Unmarshal(text []byte, object any) (summed bool, err error) {
	if at := len(text) - trailer; at > 0 && string(text[at:at+len(sumBegins)]) == sumBegins {
		if summed = true; string(text[at+len(sumBegins):]) != fmt.Sprintf("%08x%s", Sum(text[:at]), sumEnds) {
			return true, errors.New("it is not what was written: its sum is another")
		}
	}
	if summed {
		return true, json.Unmarshal(text, object)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(object); err != nil {
		return false, err
	}
	if _, err := d.Token(); err != io.EOF {
		return false, errors.New("it goes on behind its end")
	}
	return false, nil
}

// damaged is in the name of each file that was set aside.
const damaged = ".damaged-"

// SetAside renames a file that is damaged, and returns its new name. Of one that is gone it keeps an empty file, so
// that there is an alarm for it, too.
func SetAside(path string, now time.Time) (aside string, err error) {
	aside = AsideName(path, now)
	if err = os.Rename(path, aside); errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(aside, nil, 0o600)
	}
	return aside, err
}

// AsideName is the name for a file that is damaged.
func AsideName(path string, now time.Time) string {
	return path + damaged + now.UTC().Format("20060102T150405.000")
}

// Aside lists the files of a folder that were set aside, by name.
func Aside(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.Contains(e.Name(), damaged) {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, err
}
