package datadir

// This file is the archive of a backup, which knows files only: a tar archive with the files of the data directory at
// one instant and, last, a manifest with their sums. A backup without its manifest ended too early and is refused.

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/format"
)

// Part is a file that goes into a backup.
type Part struct {
	Name string // within the backup, with slashes
	Mode fs.FileMode
	// Open returns the content and its size in octets. An error that is fs.ErrNotExist says that there is none.
	Open func() (io.ReadCloser, int64, error)
}

// PartOf is a part that lies on the disk. What is appended to it while it is read is left out.
func PartOf(name, path string) Part {
	return Part{name, 0o600, func() (io.ReadCloser, int64, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, 0, err
		}
		info, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, 0, err
		}
		return f, info.Size(), nil
	}}
}

// Manifest describes a backup.
type Manifest struct {
	Backup     int       `json:"backup"`  // the format of the backup
	Version    string    `json:"version"` // of mta
	Hostname   string    `json:"hostname"`
	NodeID     string    `json:"nodeid"`
	At         time.Time `json:"at"` // the instant of the queue
	Messages   int       `json:"messages"`
	Recipients int       `json:"recipients"`
	Secrets    bool      `json:"secrets"` // with the configuration and keys
	Log        bool      `json:"log"`     // with the accounting log
	Files      []Summed  `json:"files"`
}

// Summed is a file of a backup.
type Summed struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// ManifestName is the name of the last file of a backup.
const ManifestName = "backup.json"

const (
	version     = 1
	maxManifest = 256 << 20 // octets
	maxFiles    = 1 << 20
)

// ErrIncomplete is wrapped by errors about a backup that is not whole.
var ErrIncomplete = errors.New("the backup is damaged or incomplete: take another one")

// WriteBackup writes a backup with the parts in order. m has all but the files.
func WriteBackup(w io.Writer, m Manifest, parts iter.Seq[Part]) error {
	t := tar.NewWriter(w)
	m.Backup, m.Files = version, nil
	for p := range parts {
		summed, err := writePart(t, &p, m.At)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("backing up %s: %w", p.Name, err)
		}
		m.Files = append(m.Files, summed)
	}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	if len(m.Files) > maxFiles || len(text) > maxManifest {
		return fmt.Errorf("%d files are more than a backup can have", len(m.Files))
	}
	if err := t.WriteHeader(&tar.Header{Name: ManifestName, Mode: 0o600, Size: int64(len(text)),
		ModTime: m.At}); err != nil {
		return err
	}
	if _, err := t.Write(text); err != nil {
		return err
	}
	return t.Close()
}

func writePart(t *tar.Writer, p *Part, at time.Time) (Summed, error) {
	from, size, err := p.Open()
	if err != nil {
		return Summed{}, err
	}
	defer from.Close()
	if err := t.WriteHeader(&tar.Header{Name: p.Name, Mode: int64(p.Mode), Size: size, ModTime: at}); err != nil {
		return Summed{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(t, sum), io.LimitReader(from, size))
	if err == nil && n < size {
		err = fmt.Errorf("it ends after %d octets of %d", n, size)
	}
	return Summed{p.Name, size, hex.EncodeToString(sum.Sum(nil))}, err
}

// UnpackBackup reads a backup into a directory that is empty or not there, and makes it durable. After an error the
// directory has a part of it.
func UnpackBackup(r io.Reader, dir string) (*Manifest, error) {
	left, err := os.ReadDir(dir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case len(left) > 0:
		return nil, fmt.Errorf("%s is not empty: name another directory", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	t, sums := tar.NewReader(r), map[string]Summed{}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("it has no manifest: %w", ErrIncomplete)
		}
		if err != nil {
			return nil, fmt.Errorf("%w (%v)", ErrIncomplete, err)
		}
		if !filepath.IsLocal(h.Name) || h.Typeflag != tar.TypeReg || sparse(h) {
			return nil, fmt.Errorf("%q does not belong to a backup: %w", h.Name, ErrIncomplete)
		}
		if len(sums) > maxFiles || h.Name == ManifestName && h.Size > maxManifest {
			return nil, fmt.Errorf("it has more files than a backup can have: %w", ErrIncomplete)
		}
		sum := sha256.New()
		if err := unpack(filepath.Join(dir, filepath.FromSlash(h.Name)), t, h.Size, sum); err != nil {
			return nil, err
		}
		if h.Name == ManifestName {
			return finish(dir, sums)
		}
		sums[h.Name] = Summed{h.Name, h.Size, hex.EncodeToString(sum.Sum(nil))}
	}
}

// sparse reports whether a file's size is not that of its part of the archive, by far: a small archive could fill the
// disk.
func sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func unpack(path string, from io.Reader, size int64, sum hash.Hash) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.MultiWriter(f, sum), from)
	if errors.Is(err, io.ErrUnexpectedEOF) || err == nil && n < size {
		err = ErrIncomplete
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("unpacking %s: %w", path, err)
	}
	return nil
}

// finish holds the manifest in dir against the files that were unpacked, and makes their names durable.
func finish(dir string, found map[string]Summed) (*Manifest, error) {
	m, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	if len(m.Files) != len(found) {
		return nil, fmt.Errorf("it has %d files of %d: %w", len(found), len(m.Files), ErrIncomplete)
	}
	for _, f := range m.Files {
		if found[f.Name] != f {
			return nil, fmt.Errorf("%s is not what was written: %w", f.Name, ErrIncomplete)
		}
		delete(found, f.Name) // a name that comes twice must not stand for another file
	}
	return m, syncFolders(dir)
}

func syncFolders(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Sync()
	})
}

func readManifest(dir string) (*Manifest, error) {
	f, err := os.Open(filepath.Join(dir, ManifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no %s: %w", dir, ManifestName, ErrIncomplete)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := new(Manifest)
	if err := json.NewDecoder(io.LimitReader(f, maxManifest)).Decode(m); err != nil {
		return nil, fmt.Errorf("%s: %w (%v)", ManifestName, ErrIncomplete, err)
	}
	if m.Backup != version {
		return nil, fmt.Errorf(
			"%w: the backup has format %d, and this program reads %d: restore it with mta %s, which took it",
			format.ErrRefused, m.Backup, version, m.Version)
	}
	return m, nil
}

// ReadBackup streams a backup that was unpacked into a directory, for UnpackBackup to check.
func ReadBackup(dir string) (io.ReadCloser, error) {
	m, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	var parts []Part
	for _, f := range m.Files {
		if !filepath.IsLocal(f.Name) {
			return nil, fmt.Errorf("%q does not belong to a backup: %w", f.Name, ErrIncomplete)
		}
		parts = append(parts, PartOf(f.Name, filepath.Join(dir, filepath.FromSlash(f.Name))))
	}
	out, in := io.Pipe()
	go func() { in.CloseWithError(copyAll(in, dir, m, parts)) }() // ended by the reader's Close
	return out, nil
}

// copyAll writes the parts with the manifest as it was, so that a part that has changed is found.
func copyAll(w io.Writer, dir string, m *Manifest, parts []Part) error {
	t := tar.NewWriter(w)
	for _, p := range append(parts, PartOf(ManifestName, filepath.Join(dir, ManifestName))) {
		if _, err := writePart(t, &p, m.At); err != nil {
			return err
		}
	}
	return t.Close()
}

// SortedParts orders parts by name, each name once: a file can have several roles.
func SortedParts(parts []Part) []Part {
	slices.SortFunc(parts, func(a, b Part) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(parts, func(a, b Part) bool { return a.Name == b.Name })
}
