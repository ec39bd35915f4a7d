package inbox

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/format"
	"example.org/mta/internal/network"
	"example.org/mta/internal/smallfile"
)

// Format is what this program knows of the formats of a Folder.
var Format = format.Store{Name: "inbound mail", Reads: keptVersion, Writes: keptVersion, Unstated: keptVersion}

// Folder keeps inbound mail that was not understood, for people to look at: the newest of it, within bounds, and that
// of no neighbourhood or flood at the expense of others. Each mail is a file, a line of JSON and then the content. It
// is safe for use by many goroutines.
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
	from   netip.Prefix // the neighbourhood of who brought it; zero when unknown
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
	Content    uint32             `json:"content,omitempty"` // its sum; 0 for one of an earlier program
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
			f.files = append(f.files, keptFile{id, info.Size(), f.fromOf(id)})
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
	k.Version, k.ID, k.Content = keptVersion, f.ids.Next(k.Time), smallfile.Sum(content)
	line, err := smallfile.Marshal(k)
	if err != nil {
		return err
	}
	path := f.path(k.ID)
	if err := writeSynced(path+".new", append(line, content...)); err != nil {
		os.Remove(path + ".new")
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	if err := syncFile(f.dir); err != nil {
		return err
	}
	f.files = append(f.files, keptFile{k.ID, int64(len(line) + len(content)), k.from()})
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

// shrink deletes mail that is beyond the limits; f.mu is held, or f is new.
func (f *Folder) shrink() error {
	for len(f.files) > f.limits.Messages || f.octets > f.limits.Octets && len(f.files) > 0 {
		i := f.surplus()
		if err := os.Remove(f.path(f.files[i].id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f.octets -= f.files[i].octets
		f.files = slices.Delete(f.files, i, i+1)
		f.dropped++
	}
	return nil
}

// surplus is the position of the mail that has to go: of a neighbourhood with much, old, and not long before or after
// other mail. So the oldest goes, except in a flood: that thins itself out, from any sender, and what was there
// before stays.
func (f *Folder) surplus() (least int) {
	has := make(map[netip.Prefix]int64)
	for _, file := range f.files {
		if has[file.from]++; f.octets > f.limits.Octets {
			has[file.from] += file.octets
		}
	}
	at := func(i int) time.Time { return f.files[max(0, min(i, len(f.files)-1))].id.Time() }
	worth := func(i int) float64 {
		gap, age := max(at(i).Sub(at(i-1)), at(i+1).Sub(at(i))), at(len(f.files)-1).Sub(at(i))
		return float64(gap+time.Millisecond) / float64(age+time.Millisecond) / float64(has[f.files[i].from])
	}
	lowest := math.Inf(1)
	for i := range f.files {
		if w := worth(i); w < lowest {
			least, lowest = i, w
		}
	}
	return least
}

// from is the neighbourhood of who brought a mail.
func (k *KeptMail) from() netip.Prefix {
	peer, err := netip.ParseAddr(k.Peer)
	if err != nil {
		return netip.Prefix{}
	}
	return network.Around(peer)
}

// fromOf is from of a mail in the folder, zero where that can't be read: its reader reports damage.
func (f *Folder) fromOf(id envelope.ID) netip.Prefix {
	file, err := os.Open(f.path(id))
	if err != nil {
		return netip.Prefix{}
	}
	defer file.Close()
	var k KeptMail
	if line, err := readLine(bufio.NewReader(file)); err == nil {
		_, err = smallfile.Unmarshal(append(line, '\n'), &k)
		if err != nil {
			return netip.Prefix{}
		}
	}
	return k.from()
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
		if errors.Is(err, ErrNotKept) || errors.Is(err, errDamaged) {
			continue // it made space meanwhile, or was set aside
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
	if err == nil && k.Content != 0 && k.Content != smallfile.Sum(content) {
		return k, nil, f.damaged(id, errors.New("its content is not what was written"))
	}
	return k, content, err
}

// errDamaged is of mail that is not what was kept.
var errDamaged = errors.New("it was damaged, and is set aside")

// damaged sets a mail aside.
func (f *Folder) damaged(id envelope.ID, why error) error {
	aside, err := smallfile.SetAside(f.path(id), id.Time())
	return errors.Join(fmt.Errorf("reading %s: %w: %w", aside, errDamaged, why), err)
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
		_, err = smallfile.Unmarshal(append(line, '\n'), &k)
	}
	if err != nil {
		file.Close()
		return k, nil, f.damaged(id, err)
	}
	if k.Version != keptVersion {
		file.Close()
		return k, nil, fmt.Errorf("reading %s: its version is %d, and this relay reads %d", file.Name(),
			k.Version, keptVersion)
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
