package inbox

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/format"
)

// Format is what this program knows of the formats of a Folder.
var Format = format.Store{Name: "inbound mail", Reads: keptVersion, Writes: keptVersion, Unstated: keptVersion}

// Folder keeps inbound mail that was not understood, for people to look at: the newest of it, within bounds. Each
// mail is a file, a line of JSON and then the content. It is safe for use by many goroutines.
type Folder struct {
	dir    string
	limits FolderLimits

	mu      sync.Mutex // guards the rest
	ids     envelope.IDs
	files   []keptFile // oldest first
	octets  int64
	dropped int64
}

// FolderLimits bound a folder.
type FolderLimits struct {
	Messages int
	Octets   int64
}

type keptFile struct {
	id     envelope.ID
	octets int64
}

// KeptMail is what is known of a mail in a Folder.
type KeptMail struct {
	Version    int                `json:"version"`
	ID         envelope.ID        `json:"-"`
	Time       time.Time          `json:"time"`
	Kind       string             `json:"kind"`
	Sender     envelope.Address   `json:"sender"`
	Recipients []envelope.Address `json:"recipients"`
	Peer       string             `json:"peer,omitempty"`
	Helo       string             `json:"helo,omitempty"`
	Size       int64              `json:"size"`
	From       string             `json:"from,omitempty"`
	Subject    string             `json:"subject,omitempty"`
	Message    string             `json:"message,omitempty"` // the id of the message that the token names
}

const (
	keptVersion = 1
	keptSuffix  = ".mail"
	// maxKeptLine bounds the first line of a file.
	maxKeptLine = 256 << 10
)

// ErrNotKept is of mail that is not in the folder, or no longer.
var ErrNotKept = errors.New("no such mail is kept")

// OpenFolder makes or opens a folder. What is beyond the limits goes.
func OpenFolder(dir string, limits FolderLimits) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	f := &Folder{dir: dir, limits: limits}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), keptSuffix)
		id, err := envelope.ParseID(name)
		if !ok || err != nil {
			if strings.HasSuffix(e.Name(), keptSuffix+".new") { // a write that was cut off
				os.Remove(filepath.Join(dir, e.Name()))
			}
			continue
		}
		if info, err := e.Info(); err == nil {
			f.files = append(f.files, keptFile{id, info.Size()})
			f.octets += info.Size()
			f.ids.Observe(id)
		}
	}
	slices.SortFunc(f.files, func(a, b keptFile) int { return cmp.Compare(a.id, b.id) })
	return f, f.shrink()
}

// Add returns when mail is durably in the folder. k gets its ID.
func (f *Folder) Add(k *KeptMail, content []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	k.Version, k.ID = keptVersion, f.ids.Next(k.Time)
	line, err := json.Marshal(k)
	if err != nil {
		return err
	}
	path := f.path(k.ID)
	if err := writeSynced(path+".new", append(append(line, '\n'), content...)); err != nil {
		os.Remove(path + ".new")
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	if err := syncFile(f.dir); err != nil {
		return err
	}
	f.files = append(f.files, keptFile{k.ID, int64(len(line) + 1 + len(content))})
	f.octets += f.files[len(f.files)-1].octets
	return f.shrink()
}

func (f *Folder) path(id envelope.ID) string { return filepath.Join(f.dir, id.String()+keptSuffix) }

func writeSynced(path string, b []byte) error {
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return errors.Join(err, w.Sync(), w.Close())
}

func syncFile(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// shrink deletes the oldest mail that is beyond the limits; f.mu is held, or f is new.
func (f *Folder) shrink() error {
	for len(f.files) > f.limits.Messages || f.octets > f.limits.Octets && len(f.files) > 0 {
		if err := os.Remove(f.path(f.files[0].id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f.octets -= f.files[0].octets
		f.files = f.files[1:]
		f.dropped++
	}
	return nil
}

// FolderStats is what a folder has.
type FolderStats struct {
	Messages int
	Octets   int64
	Dropped  int64 // since the start, to keep within the limits
}

// Stats counts what is there.
func (f *Folder) Stats() FolderStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return FolderStats{len(f.files), f.octets, f.dropped}
}

// List returns what is there, the newest first: at most limit, and those before an ID unless that is 0.
func (f *Folder) List(before envelope.ID, limit int) ([]KeptMail, error) {
	f.mu.Lock()
	files := slices.Clone(f.files)
	f.mu.Unlock()
	var out []KeptMail
	for _, file := range slices.Backward(files) {
		if before != 0 && file.id >= before {
			continue
		}
		if len(out) >= limit {
			break
		}
		k, r, err := f.open(file.id)
		if errors.Is(err, ErrNotKept) {
			continue // it made room meanwhile
		}
		if err != nil {
			return nil, err
		}
		r.Close()
		out = append(out, k)
	}
	return out, nil
}

// Get returns a mail with its content.
func (f *Folder) Get(id envelope.ID) (KeptMail, []byte, error) {
	k, r, err := f.open(id)
	if err != nil {
		return k, nil, err
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	return k, content, err
}

// open returns what is known of a mail, and a reader of its content.
func (f *Folder) open(id envelope.ID) (k KeptMail, _ io.ReadCloser, err error) {
	file, err := os.Open(f.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil, ErrNotKept
	}
	if err != nil {
		return k, nil, err
	}
	r := bufio.NewReaderSize(file, 4<<10)
	line, err := readLine(r)
	if err == nil {
		err = json.Unmarshal(line, &k)
	}
	if err == nil && k.Version != keptVersion {
		err = fmt.Errorf("its version is %d, and this relay reads %d", k.Version, keptVersion)
	}
	if err != nil {
		file.Close()
		return k, nil, fmt.Errorf("reading %s: %w", file.Name(), err)
	}
	k.ID = id
	return k, struct {
		io.Reader
		io.Closer
	}{r, file}, nil
}

func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case !errors.Is(err, bufio.ErrBufferFull) || len(line) > maxKeptLine:
			return nil, errors.New("its first line is damaged")
		}
	}
}
