package shipping_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/shipping"
	"example.org/mta/queue/vfs/shipping/shippingtest"
	"example.org/mta/queue/vfs/vfstest"
)

const dir = "/q"

var names = shipping.Names{
	Dirs:  []string{".", "large"},
	Local: func(name string) bool { return path.Ext(name) == ".tmp" },
	Void:  func(name string) bool { return path.Ext(name) == ".spare" },
}

// tape is a log that keeps the entries it is given, and that can be away.
type tape struct {
	*shippingtest.Log
	mu       sync.Mutex
	entries  []taped
	away     chan struct{} // nil: it is there
	noDrop   bool
	appended []time.Time
}

type taped struct {
	number        uint64
	changes, data []byte
}

func (l *tape) Append(ctx context.Context, number uint64, changes, data []byte) error {
	l.mu.Lock()
	away := l.away
	l.mu.Unlock()
	if away != nil {
		select {
		case <-away:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if len(changes) > shipping.MaxChanges {
		return errors.New("the changes are more than an entry has")
	}
	l.mu.Lock()
	l.entries = append(l.entries, taped{number, bytes.Clone(changes), bytes.Clone(data)})
	l.appended = append(l.appended, time.Now())
	l.mu.Unlock()
	return l.Log.Append(ctx, number, changes, data)
}

func (l *tape) Drop(ctx context.Context, image uint64, kept []uint64) error {
	if l.noDrop {
		return errors.New("no answer")
	}
	return l.Log.Drop(ctx, image, kept)
}

func config(disk vfs.FS, log shipping.Log) shipping.Config {
	return shipping.Config{FS: disk, Dir: dir, Names: names, Log: log, Slog: slog.New(slog.DiscardHandler)}
}

func open(t *testing.T, disk vfs.FS, log *tape) *shipping.FS {
	t.Helper()
	image, err := log.Read()
	if err != nil {
		t.Fatal(err)
	}
	fs, err := shipping.Open(context.Background(), config(disk, log), image)
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

func start(t *testing.T) (vfs.FS, *tape, *shipping.FS) {
	t.Helper()
	disk, log := vfstest.Memory(), &tape{Log: shippingtest.New()}
	return disk, log, open(t, disk, log)
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, fs vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := fs.Create(dir + "/" + name)
	ok(t, err)
	return f
}

func write(t *testing.T, f vfs.File, octets string, at int64) {
	t.Helper()
	_, err := f.WriteAt([]byte(octets), at)
	ok(t, err)
}

// content is what a directory has, but for files that are not shipped, and octets that are not needed.
func content(t *testing.T, disk vfs.FS) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, sub := range names.Dirs {
		files, err := disk.List(path.Join(dir, sub))
		ok(t, err)
		for _, i := range files {
			name := path.Join(sub, i.Name)
			switch {
			case names.Local(name):
			case names.Void(name):
				all[name] = fmt.Sprint(i.Size, " octets")
			default:
				f, err := disk.Open(dir + "/" + name)
				ok(t, err)
				b := make([]byte, i.Size)
				if n, err := f.ReadAt(b, 0); int64(n) != i.Size || err != nil && err != io.EOF {
					t.Fatal(n, err)
				}
				all[name] = string(b)
			}
		}
	}
	return all
}

func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name := range want {
		if got[name] != want[name] {
			t.Fatalf("%s: %s has %d octets, another content than the %d it should", what, name, len(got[name]),
				len(want[name]))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: the files are %q, want %q", what, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// restored compares what is restored from a log into an empty directory.
func restored(t *testing.T, log *tape, want map[string]string) *shipping.Image {
	t.Helper()
	image, err := log.Read()
	ok(t, err)
	disk := vfstest.Memory()
	for range 2 { // it can be repeated
		ok(t, shipping.Restore(t.Context(), config(disk, log), image))
		same(t, "restored", content(t, disk), want)
	}
	return image
}

// model makes random changes.
type model struct {
	t    *testing.T
	rng  *rand.Rand
	disk vfs.FS
	fs   *shipping.FS
	open map[string]vfs.File
	gone []vfs.File // open files without a name
}

func (m *model) name() string {
	return []string{"", "large/"}[m.rng.Intn(2)] + string(rune('a'+m.rng.Intn(6))) +
		[]string{"", "", "", "", ".tmp", ".spare"}[m.rng.Intn(6)]
}

func (m *model) octets() []byte {
	b := make([]byte, []int{1, 100, 5000, 70_000, 1_500_000}[m.rng.Intn(20)/4%4+m.rng.Intn(30)/29])
	m.rng.Read(b)
	return b
}

func (m *model) file() (string, vfs.File) {
	all := slices.Sorted(maps.Keys(m.open))
	if len(all) == 0 {
		return "", nil
	}
	name := all[m.rng.Intn(len(all))]
	return name, m.open[name]
}

func (m *model) forget(name string) {
	if f := m.open[name]; f != nil {
		m.gone = append(m.gone[max(0, len(m.gone)-2):], f)
		delete(m.open, name)
	}
}

func (m *model) step() {
	name, f := m.file()
	op := m.rng.Intn(20)
	if f == nil || op < 2 {
		if name = m.name(); m.open[name] == nil {
			m.open[name] = create(m.t, m.fs, name)
		}
		return
	}
	var err error
	switch {
	case op < 9:
		size, _ := f.Size()
		_, err = f.WriteAt(m.octets(), m.rng.Int63n(size+size/4+300))
	case op < 10:
		size, _ := f.Size()
		err = f.Truncate(m.rng.Int63n(size + 1))
	case op < 11:
		err = f.Allocate(m.rng.Int63n(100_000))
	case op < 13:
		to := m.name()
		if to == name || names.Local(name) && !names.Local(to) {
			return
		}
		ok(m.t, m.fs.Rename(dir+"/"+name, dir+"/"+to))
		m.forget(to)
		m.open[to] = f
		if delete(m.open, name); names.Void(name) { // as the queue does, before it relies on what it has
			err = f.Truncate(0)
		} else if names.Local(to) { // and it does not come back
			m.forget(to)
			err = m.fs.Remove(dir + "/" + to)
		}
	case op < 14:
		err = m.fs.Remove(dir + "/" + name)
		m.forget(name)
	case op < 15 && len(m.gone) > 0:
		f = m.gone[m.rng.Intn(len(m.gone))]
		_, err = f.WriteAt(m.octets(), 0)
		ok(m.t, err)
		ok(m.t, f.Truncate(10))
		err = f.Sync()
	case op < 17:
		err = f.Sync()
	case op < 18:
		err = m.fs.SyncDir(dir)
	}
	ok(m.t, err)
}

func (m *model) sync() {
	for _, name := range slices.Sorted(maps.Keys(m.open)) {
		ok(m.t, m.open[name].Sync())
	}
	ok(m.t, m.fs.SyncDir(dir))
}

// spoil takes away what the disk has and the log, too, or makes files longer than the log knows.
func (m *model) spoil(want map[string]string) {
	for name, text := range content(m.t, m.disk) {
		if names.Void(name) || m.rng.Intn(3) > 0 {
			continue
		}
		f, err := m.disk.OpenWrite(dir + "/" + name)
		ok(m.t, err)
		switch m.rng.Intn(4) {
		case 0:
			err = f.Allocate(int64(len(text)) + 100)
			want[name] += strings.Repeat("\x00", 100)
		case 1:
			err = m.disk.Remove(dir + "/" + name)
		case 2:
			err = f.Truncate(int64(len(text)) / 2)
		default: // an octet that was written
			if at := strings.IndexFunc(text, func(r rune) bool { return r != 0 }); at >= 0 {
				_, err = f.WriteAt([]byte{text[at] ^ 255}, int64(at))
			}
		}
		ok(m.t, err)
	}
}

// TestRandomChanges: the log has what the disk has, after each sync, and after each start with a disk that has lost
// something, or has more.
func TestRandomChanges(t *testing.T) {
	for seed := range int64(map[bool]int{false: 12, true: 2}[bubble.RaceEnabled]) {
		bubble.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewSource(seed))
			disk, log := vfstest.NewDisk(rng), &tape{Log: shippingtest.New()}
			m := &model{t: t, rng: rng, disk: disk, fs: open(t, disk, log), open: map[string]vfs.File{}}
			defer func() { m.fs.Close() }()
			for round := range 25 {
				for range rng.Intn(60) {
					m.step()
				}
				m.sync()
				want := content(t, disk)
				image := restored(t, log, want)
				if size := log.Size(); size > 2*image.Octets()+32<<20 {
					t.Fatalf("the log has %d octets of %d that are needed", size, image.Octets())
				}
				if rng.Intn(4) > 0 {
					continue
				}
				ok(t, m.fs.Close())
				m.spoil(want)
				only := fmt.Sprint("only-here-", round)
				f, err := disk.Create(dir + "/" + only)
				ok(t, err)
				write(t, f, "an outcome", 100_000)
				want[only] = strings.Repeat("\x00", 100_000) + "an outcome"
				m.fs, m.open, m.gone = open(t, disk, log), map[string]vfs.File{}, nil
				same(t, "opened", content(t, disk), want)
				restored(t, log, want)
				for name := range want {
					f, err := m.fs.OpenWrite(dir + "/" + name)
					ok(t, err)
					m.open[name] = f
				}
				for _, sub := range names.Dirs { // as the queue does with what it makes anew
					files, err := disk.List(path.Join(dir, sub))
					ok(t, err)
					for _, i := range files {
						if names.Local(i.Name) {
							ok(t, m.fs.Remove(path.Join(dir, sub, i.Name)))
						}
					}
				}
			}
		})
	}
}

// TestAnUnchangedDirectory ships next to nothing.
func TestAnUnchangedDirectory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		disk, log, fs := start(t)
		f := create(t, fs, "a")
		write(t, f, strings.Repeat("mail", 1000), 0)
		write(t, f, "sparse", 1<<20)
		write(t, f, "overlap", 10)
		ok(t, f.Sync())
		ok(t, fs.Rename(dir+"/a", dir+"/b"))
		ok(t, create(t, fs, "c.spare").Allocate(1<<20))
		ok(t, fs.Close())
		before, entries := log.Octets, len(log.entries)
		for range 3 {
			ok(t, open(t, disk, log).Close())
		}
		if log.Octets != before || len(log.entries) != entries {
			t.Errorf("%d octets more are shipped", log.Octets-before)
		}
	})
}

// TestTheLogStaysSmall: what no file has any more goes, also if dropping it has failed before, or was cut off.
func TestTheLogStaysSmall(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		disk, log, fs := start(t)
		log.noDrop = true
		kept := create(t, fs, "kept")
		write(t, kept, "this stays", 0)
		ok(t, kept.Sync())
		churn := func() {
			for range 300 {
				f := create(t, fs, "a")
				for at := range int64(50) {
					write(t, f, strings.Repeat("x", 100), 100*at)
				}
				ok(t, f.Sync())
				ok(t, fs.Remove(dir+"/a"))
			}
			ok(t, fs.SyncDir(dir))
		}
		churn()
		if log.Dropped > 0 || log.Size() < 1<<20 {
			t.Fatal("something was dropped", log.Size())
		}
		ok(t, fs.Close())
		log.noDrop = false
		fs = open(t, disk, log)
		had, octets := len(log.entries), log.Octets
		churn()
		if size := log.Size(); size > 256<<10+64<<10*7 {
			t.Errorf("the log has %d octets", size)
		}
		images := 0
		for _, e := range log.entries[had:] {
			if shipping.HasImage(e.changes) {
				images++
			}
		}
		if most := int(log.Octets-octets) / (64 << 10); images < 2 || images > most {
			t.Errorf("there are %d images, and may be %d", images, most)
		}
		restored(t, log, map[string]string{"kept": "this stays"})
		ok(t, fs.Close())
	})
}

// TestAnImageThatIsTooLarge: the log goes on without it, and keeps all.
func TestAnImageThatIsTooLarge(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, log, fs := start(t)
		name := strings.Repeat("x", 240)
		for i := range shipping.MaxChanges / len(name) {
			if create(t, fs, fmt.Sprint(name, i)); i%50_000 == 0 {
				ok(t, fs.SyncDir(dir))
			}
		}
		ok(t, fs.Close())
		image, err := log.Read()
		if ok(t, err); image.Entry() != fs.Status().Entry || log.Size() > 3*shipping.MaxChanges {
			t.Errorf("the log ends at entry %d, and has %d octets", image.Entry(), log.Size())
		}
	})
}

// TestASpareFile takes no octets in the log.
func TestASpareFile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, log, fs := start(t)
		f := create(t, fs, "a")
		write(t, f, "mail", 0)
		ok(t, f.Sync())
		ok(t, fs.Rename(dir+"/a", dir+"/a.spare"))
		ok(t, fs.Close())
		if image := restored(t, log, map[string]string{"a.spare": "4 octets"}); image.Octets() != 0 {
			t.Errorf("it takes %d octets", image.Octets())
		}
	})
}

// few counts the files that are open.
type few struct {
	vfs.FS
	open, most int
}

type fewFile struct {
	vfs.File
	of *few
}

func (f *few) OpenWrite(name string) (vfs.File, error) { return f.add(f.FS.OpenWrite(name)) }
func (f *few) Create(name string) (vfs.File, error)    { return f.add(f.FS.Create(name)) }

func (f *few) add(file vfs.File, err error) (vfs.File, error) {
	f.open++
	f.most = max(f.most, f.open)
	return fewFile{file, f}, err
}

func (f fewFile) Close() error {
	f.of.open--
	return f.File.Close()
}

// TestManyFilesAreRestored with few open at a time.
func TestManyFilesAreRestored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		disk, log, fs := start(t)
		var files []vfs.File
		for i := range 3000 {
			files = append(files, create(t, fs, fmt.Sprintf("large/%d", i)))
		}
		for i, f := range slices.Concat(files, files) {
			write(t, f, fmt.Sprint(i), int64(10*i))
			ok(t, f.Sync())
		}
		ok(t, fs.Close())
		want := content(t, disk)
		restored(t, log, want)
		image, err := log.Read()
		ok(t, err)
		to := &few{FS: vfstest.Memory()}
		ok(t, shipping.Restore(t.Context(), config(to, log), image))
		if same(t, "restored", content(t, to), want); to.open != 0 || to.most > 256 {
			t.Errorf("%d files were open at a time, %d are", to.most, to.open)
		}
	})
}

// The log is away.

func (l *tape) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = make(chan struct{})
}

func (l *tape) back() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.away)
	l.away = nil
}

func TestALogThatIsAway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		disk, log, fs := start(t)
		f, other := create(t, fs, "a"), create(t, fs, "b")
		ok(t, f.Sync())
		log.leave()
		began := time.Now()
		patience := 10 * time.Second
		away := func(err error) {
			t.Helper()
			if took := time.Since(began); !errors.Is(err, shipping.ErrAway) || took != patience {
				t.Fatalf("%v, after %v", err, took)
			}
			began = time.Now()
		}
		if oldest, _, _ := fs.Lag(); oldest != 0 {
			t.Errorf("a change waits for %v", oldest)
		}
		write(t, f, "written", 0)
		away(f.Sync())
		away(fs.SyncDir(dir))
		patience = time.Second // once it has been away for long
		if oldest, silent, broken := fs.Lag(); oldest != 20*time.Second || silent < oldest || broken != nil {
			t.Errorf("the oldest change waits for %v, and nothing is taken for %v: %v", oldest, silent, broken)
		}
		if s := fs.Status(); s.Waiting != 7 {
			t.Errorf("the status is %+v", s)
		}
		piece := strings.Repeat("0123456789abcdef", 1<<16)
		var err error
		written := 0
		for ; err == nil && written < 100; written++ {
			_, err = other.WriteAt([]byte(piece), int64(written)<<20)
		}
		away(err)
		if s := fs.Status(); s.Waiting > 16<<20 || s.Waiting < 15<<20 || written != int(s.Waiting>>20)+1 {
			t.Errorf("%d octets wait, of %d writes", s.Waiting, written)
		}
		away(other.Truncate(5 << 20)) // what was written before does not go before it
		synced := make(chan error)
		go func() { synced <- other.Sync() }()
		time.Sleep(900 * time.Millisecond)
		log.back()
		ok(t, <-synced)
		ok(t, f.Sync())
		if oldest, _, _ := fs.Lag(); fs.Status().Waiting != 0 || oldest != 0 {
			t.Errorf("the status is %+v, and a change waits for %v", fs.Status(), oldest)
		}
		restored(t, log, content(t, disk))
		log.leave()
		create(t, fs, "c")
		began, patience = time.Now(), 10*time.Second
		away(fs.Close())
	})
}

// TestWhatNoSyncFollows goes to the log soon, and a beat that is under way hides no change that waits.
func TestWhatNoSyncFollows(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, log, fs := start(t)
		f := create(t, fs, "a")
		ok(t, f.Sync())
		ok(t, f.Truncate(7))
		time.Sleep(200 * time.Millisecond)
		if oldest, _, _ := fs.Lag(); oldest != 0 {
			t.Errorf("a change waits for %v", oldest)
		}
		log.leave()
		time.Sleep(15 * time.Second) // the beat waits
		if oldest, silent, _ := fs.Lag(); oldest != 0 || silent < 15*time.Second {
			t.Errorf("a change waits for %v, and nothing is taken for %v", oldest, silent)
		}
		ok(t, f.Truncate(8))
		time.Sleep(3 * time.Second)
		if oldest, _, _ := fs.Lag(); oldest != 3*time.Second {
			t.Errorf("a change waits for %v", oldest)
		}
		log.back()
		ok(t, fs.Close())
	})
}

func broken(fs *shipping.FS) error {
	_, _, err := fs.Lag()
	return err
}

// TestAFileSystemWithoutItsLog: once another has the log, nothing is changed any more.
func TestAFileSystemWithoutItsLog(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		disk, log, fs := start(t)
		f := create(t, fs, "a")
		ok(t, f.Sync())
		log.CutAt(1, false)
		for range 2 {
			write(t, f, "x", 0)
			for name, err := range map[string]error{"sync": f.Sync(), "names": fs.SyncDir(dir), "size": f.Truncate(0),
				"room": f.Allocate(10), "rename": fs.Rename(dir+"/a", dir+"/b"), "remove": fs.Remove(dir + "/a"),
				"lag": broken(fs)} {
				if !errors.Is(err, shippingtest.ErrCut) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if _, err := fs.Create(dir + "/c"); !errors.Is(err, shippingtest.ErrCut) {
				t.Error(err)
			}
			log.CutAt(0, false) // it is for good
		}
		if got := slices.Sorted(maps.Keys(content(t, disk))); !slices.Equal(got, []string{"a"}) {
			t.Errorf("the directory has %q", got)
		}
		if err := fs.Close(); !errors.Is(err, shippingtest.ErrCut) {
			t.Error(err)
		}
	})
}

func TestBeats(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, log, fs := start(t)
		began := time.Now()
		time.Sleep(35 * time.Second)
		ok(t, create(t, fs, "a").Sync())
		time.Sleep(25 * time.Second)
		synctest.Wait()
		var got []time.Duration
		for _, at := range log.appended {
			got = append(got, at.Sub(began)/time.Second)
		}
		if want := []time.Duration{10, 20, 30, 35, 45, 55}; !slices.Equal(got, want) {
			t.Errorf("entries come after %d s, want %d", got, want)
		}
		ok(t, fs.Close())
		time.Sleep(time.Minute)
		if len(log.appended) != len(got) {
			t.Error("it goes on after it was closed")
		}
	})
}

// TestAFileComesIntoTheLogByItsCreation, and by no other way.
func TestAFileComesIntoTheLogByItsCreation(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, log, fs := start(t)
		f := create(t, fs, "a.tmp")
		write(t, f, "x", 0)
		ok(t, f.Sync())
		if err := fs.Rename(dir+"/a.tmp", dir+"/a"); err == nil {
			t.Error("a file becomes one that is in the log")
		}
		ok(t, create(t, fs, "b").Close())
		ok(t, fs.Rename(dir+"/b", dir+"/b.tmp"))
		ok(t, fs.Close())
		restored(t, log, map[string]string{})
	})
}

// Bad input.

func u(numbers ...uint64) (b []byte) {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func changes(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = append(b, u(uint64(p))...)
		case string:
			b = append(append(b, u(uint64(len(p)))...), p...)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

var sum4 = []byte{1, 2, 3, 4}

func read(entries []taped) (*shipping.Image, error) {
	return shipping.Read(func(each func(uint64, []byte, int64) error) error {
		for _, e := range entries {
			if err := each(e.number, e.changes, int64(len(e.data))); err != nil {
				return err
			}
		}
		return nil
	})
}

// allocated is how many octets f has allocated.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestEntriesThatWeHaveNotWritten(t *testing.T) {
	a := changes(1, 1, "a")
	// image of one file "a" of 10 octets with a part.
	part := func(at, size, entry, from, into, whole int) []byte {
		return changes(7, 1, 1, 1, "a", 10, 1, at, size, entry, from, into, whole, sum4)
	}
	huge := u(1<<64 - 1)
	for name, entry := range map[string][]byte{
		"no such kind":              changes(8, 1),
		"kind 0":                    changes(0, 1),
		"a name above":              changes(1, 2, "../x"),
		"a name above in it":        changes(1, 2, "large/../../x"),
		"an absolute name":          changes(1, 2, "/x"),
		"no name":                   changes(1, 2, ""),
		"the directory":             changes(1, 2, "."),
		"a name with a slash":       changes(1, 2, "x/"),
		"two slashes":               changes(1, 2, "x//y"),
		"NUL":                       changes(1, 2, "x\x00y"),
		"another system's slash":    changes(1, 2, `..\x`),
		"renamed above":             changes(2, 1, "../x"),
		"a long name":               changes(1, 2, strings.Repeat("x", 256)),
		"a name that is longer":     changes(1, 2, 200, []byte("x")),
		"a name of huge length":     changes(1, 2, huge, []byte("x")),
		"file 0":                    changes(1, 0, "x"),
		"a file twice":              changes(1, 1, "x"),
		"a name twice":              changes(1, 2, "a"),
		"a file of huge number":     changes(1, huge, "x"),
		"a number above 32 bits":    changes(1, 1<<32, "x"),
		"no such file":              changes(3, 2),
		"a rename of none":          changes(2, 2, "x"),
		"a write into none":         changes(5, 2, 0, 0, sum4),
		"a size of none":            changes(4, 2, 5),
		"removed twice":             changes(3, 1, 3, 1),
		"a huge size":               changes(4, 1, huge),
		"a size above most":         changes(4, 1, 1<<50+1),
		"a write that is too large": changes(5, 1, 0, 1<<20+1, sum4),
		"a write at a huge offset":  changes(5, 1, huge, 0, sum4),
		"more than its data":        changes(5, 1, 0, 1, sum4),
		"an image that follows":     changes(3, 1, 7, 0, 0),
		"an image of many files":    changes(7, 1<<32-1, 1<<32),
		"an image of too many":      changes(7, 1, 1<<32+1),
		"a number above the last":   changes(7, 1, 1, 2, "a", 0, 0),
		"an image with file 0":      changes(7, 1, 1, 0, "a", 0, 0),
		"an image's file twice":     changes(7, 2, 2, 1, "a", 0, 0, 1, "b", 0, 0),
		"an image's name twice":     changes(7, 2, 2, 1, "a", 0, 0, 2, "a", 0, 0),
		"an image's name above":     changes(7, 1, 1, 1, "../a", 0, 0),
		"many parts":                changes(7, 1, 1, 1, "a", 10, 1<<32),
		"a part of nothing":         part(0, 0, 1, 0, 0, 5),
		"a part behind the end":     part(6, 5, 1, 0, 0, 5),
		"a part of a lesser write":  part(0, 5, 1, 0, 0, 4),
		"a part behind its write":   part(0, 5, 1, 0, 1, 5),
		"a part before the file":    part(0, 5, 1, 0, 6, 11),
		"a part behind all data":    part(0, 5, 1, 4<<20-4, 0, 5),
		"a part of huge size":       changes(7, 1, 1, 1, "a", 10, 1, 0, huge, 1, 0, 0, 5, sum4),
		"parts that overlap": changes(7, 1, 1, 1, "a", 10, 2, 0, 5, 1, 0, 0, 5, sum4, 4, 5, 1, 0, 0, 5,
			sum4),
	} {
		var err error
		octets := allocated(func() { _, err = read([]taped{{1, a, nil}, {2, entry, nil}}) })
		if err == nil || !strings.HasPrefix(err.Error(), "entry 2: ") || octets > 1<<20 {
			t.Errorf("%s: %v, and %d octets allocated", name, err, octets)
		}
	}
	text := changes(5, 1, 0, 3, sum4)
	for name, entries := range map[string][]taped{
		"less than its data": {{1, a, nil}, {2, text, []byte("abcd")}},
		"missing":            {{1, a, nil}, {3, text, []byte("abc")}},
		"twice":              {{1, a, nil}, {2, nil, nil}, {2, nil, nil}},
		"out of order":       {{1, a, nil}, {2, nil, nil}, {1, nil, nil}},
		"without its start":  {{2, a, nil}},
		"0":                  {{0, a, nil}},
	} {
		last := entries[len(entries)-1].number
		if _, err := read(entries); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("entry %d: ", last)) {
			t.Errorf("entries %s: %v", name, err)
		}
	}
}

// TestAnImageOfManyFiles takes memory as they do.
func TestAnImageOfManyFiles(t *testing.T) {
	const files = 200_000
	b := changes(7, files, files)
	for i := range files {
		b = append(b, changes(i+1, fmt.Sprint(i), 0, 0)...)
	}
	var image *shipping.Image
	var err error
	octets := allocated(func() { image, err = read([]taped{{9, b, nil}}) })
	if err != nil || image.Entry() != 9 || octets > 200<<20 {
		t.Errorf("%v, with %d octets allocated", err, octets)
	}
}

// shelf is a log's data.
type shelf map[uint64][]byte

func (s shelf) Data(_ context.Context, n uint64) ([]byte, error) {
	if data, is := s[n]; is {
		return data, nil
	}
	return nil, fmt.Errorf("entry %d: it is not there", n)
}

func (shelf) Append(context.Context, uint64, []byte, []byte) error { panic("a reader appends") }
func (shelf) Drop(context.Context, uint64, []uint64) error         { panic("a reader drops") }

// TestDataThatIsNotWhatWasWritten is found, and its entry named.
func TestDataThatIsNotWhatWasWritten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		disk, log, fs := start(t)
		f := create(t, fs, "a")
		write(t, f, "some mail", 0)
		ok(t, f.Sync())
		ok(t, fs.Close())
		for data, words := range map[string]string{"some nail": "entry 1 is damaged", "some": "entry 1 has 4 octets, and",
			"": "entry 1 has 0 octets", "none": "entry 1: it is not there", "some mail": ""} {
			s := shelf{1: []byte(data)}
			if data == "none" {
				s = nil
			}
			image, err := read(log.entries)
			ok(t, err)
			into := vfstest.Memory()
			err = shipping.Restore(t.Context(), config(into, s), image)
			if words == "" {
				ok(t, err)
				same(t, data, content(t, into), content(t, disk))
			} else if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%q: %v", data, err)
			}
		}
	})
}

// small is a file system that has little room.
type small struct{ vfs.FS }

type smallFile struct{ vfs.File }

var errFull = errors.New("full")

func (s small) Create(name string) (vfs.File, error) {
	if !strings.HasPrefix(name, dir+"/") {
		panic("a file outside is made: " + name)
	}
	f, err := s.FS.Create(name)
	return smallFile{f}, err
}

func (f smallFile) Truncate(size int64) error {
	if size > 1<<24 {
		return errFull
	}
	return f.File.Truncate(size)
}

func (f smallFile) WriteAt(b []byte, at int64) (int, error) {
	if at+int64(len(b)) > 1<<24 {
		return 0, errFull
	}
	return f.File.WriteAt(b, at)
}

// TestEditedEntries: each entry is cut off at each octet, and random bits of it are turned. It is read as something or
// refused, by its number, and takes no memory that it does not have.
func TestEditedEntries(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, log, fs := start(t)
		rng := rand.New(rand.NewSource(1))
		m := &model{t: t, rng: rng, fs: fs, open: map[string]vfs.File{}}
		for len(log.entries) < 40 {
			if m.step(); rng.Intn(3) == 0 {
				m.sync()
			}
		}
		ok(t, fs.Close())
		entries, s := log.entries, shelf{}
		for i := range entries {
			s[entries[i].number] = entries[i].data
		}
		image, err := read(entries)
		ok(t, err)
		entries = append(entries, taped{image.Entry() + 1, imageOf(t, log), nil})
		for i, e := range entries {
			before := slices.Clone(entries[:i+1])
			for cut := range e.changes {
				before[i].changes = e.changes[:cut]
				if _, err := read(before); err != nil && !strings.HasPrefix(err.Error(), fmt.Sprintf("entry %d: ", i+1)) {
					t.Fatalf("entry %d, cut off at octet %d: %v", i+1, cut, err)
				}
			}
		}
		good, refused := 0, 0
		for range map[bool]int{false: 4000, true: 400}[bubble.RaceEnabled] {
			edited := slices.Clone(entries)
			i := rng.Intn(len(edited))
			if len(edited[i].changes) == 0 {
				continue
			}
			b := bytes.Clone(edited[i].changes)
			for range 1 + rng.Intn(3) {
				b[rng.Intn(len(b))] ^= 1 << rng.Intn(8)
			}
			edited[i].changes = b
			var image *shipping.Image
			var err error
			if n := allocated(func() { image, err = read(edited) }); n > 4<<20 {
				t.Fatalf("%d octets are allocated", n)
			}
			if err != nil {
				if refused++; !strings.HasPrefix(err.Error(), "entry ") {
					t.Fatal(err)
				}
				continue
			}
			err = shipping.Restore(t.Context(), config(small{vfstest.Memory()}, s), image)
			if err == nil {
				good++
			} else if refused++; !strings.Contains(err.Error(), "entry ") && !errors.Is(err, errFull) {
				t.Fatal(err)
			}
		}
		if good < 10 || refused < 10 {
			t.Errorf("%d are restored, %d refused", good, refused)
		}
	})
}

// imageOf is the image of a log, as an entry has it.
func imageOf(t *testing.T, log *tape) []byte {
	for n := 0; ; n++ {
		for _, e := range log.entries {
			if shipping.HasImage(e.changes) {
				return e.changes
			}
		}
		fs := open(t, vfstest.Memory(), log)
		for range 10_000 {
			ok(t, create(t, fs, "z").Close())
			ok(t, fs.Rename(dir+"/z", dir+"/y"))
		}
		ok(t, fs.SyncDir(dir))
		ok(t, create(t, fs, "z").Sync())
		ok(t, fs.Close())
	}
}
