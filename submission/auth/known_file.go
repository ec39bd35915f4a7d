package auth

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"example.org/mta/internal/smallfile"
)

// Who has logged in from where outlives the process, so that guesses which go on over a restart keep nobody
// out. A kill loses what was new in the last minute.
const (
	writeKnown = time.Minute // how long what is new may be in memory only
	keepEvery  = time.Hour   // how exact the file is about the last login
	// maxKept is how many places the file has, those with the newest logins: 2 MB.
	maxKept      = 20_000
	maxKnownFile = 64 << 20
	knownVersion = 1
)

// knownPlace is a user at a network, as it is in the file. No secret is there.
type knownPlace struct {
	User    string       `json:"user"`
	Network netip.Prefix `json:"network"`
	Until   time.Time    `json:"until"`
}

// knownHeader is the file's first line; the second is the list, of which it has the SHA-256.
type knownHeader struct {
	Version int    `json:"version"`
	Sum     string `json:"sum"`
}

// knownFile is the file with the places.
type knownFile struct {
	path  string
	log   *slog.Logger
	write later
}

func newKnownFile(path string, log *slog.Logger) *knownFile {
	f := &knownFile{path: path, log: log}
	f.write.after = writeKnown
	f.write.closed = path == ""
	return f
}

// read gives the places of the file. One that can't be used is set aside: all that is lost is that guesses elsewhere
// may slow a user down until its next login.
func (f *knownFile) read(now time.Time) []knownPlace {
	if f.path == "" {
		return nil
	}
	list, err := readKnown(f.path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return list
	}
	aside, moved := smallfile.SetAside(f.path, now)
	err = errors.Join(err, moved)
	f.log.Error("the networks that users have logged in from can't be read: they are learned again with the next "+
		"logins; the file was set aside",
		"file", aside, "error", err)
	return nil
}

func readKnown(path string) (list []knownPlace, err error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxKnownFile))
	if err != nil {
		return nil, err
	}
	head, body, _ := bytes.Cut(text, []byte{'\n'})
	var h knownHeader
	switch err := json.Unmarshal(head, &h); {
	case err != nil:
		return nil, err
	case h.Version != knownVersion:
		return nil, fmt.Errorf("its format is version %d, and this mta reads version %d", h.Version, knownVersion)
	case h.Sum != sumOf(body):
		return nil, errors.New("its sum is wrong")
	}
	return list, json.Unmarshal(body, &list)
}

func sumOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// replace writes the file anew.
func (f *knownFile) replace(list []knownPlace) {
	slices.SortFunc(list, func(a, b knownPlace) int { return b.Until.Compare(a.Until) })
	body, err := json.Marshal(list[:min(len(list), maxKept)])
	if err == nil {
		body = append(body, '\n')
		err = smallfile.Replace(f.path, 0o600, func(w io.Writer) error {
			if err := json.NewEncoder(w).Encode(knownHeader{knownVersion, sumOf(body)}); err != nil {
				return err
			}
			_, err := w.Write(body)
			return err
		})
	}
	if err != nil {
		f.log.Warn("the networks that users have logged in from can't be written: they are written again with the "+
			"next login from another",
			"file", f.path, "error", err)
	}
}
