package smallfile

import (
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
	"time"
)

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
