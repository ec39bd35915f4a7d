package maildrop

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/mta/internal/envelope"
)

var sample = Envelope{Sender: "a@b.example", Recipients: []envelope.Address{"c@d.example", "e@f.example"}, Notify: []string{"FAILURE"}, ID: "x1"}

const content = "Subject: x\r\n\r\ntext\r\n"

func newDir(t *testing.T) Dir {
	t.Helper()
	d := Dir(filepath.Join(t.TempDir(), "maildrop"))
	for range 2 { // the second finds it made
		if err := d.Make(); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func put(t *testing.T, d Dir) (name string) {
	t.Helper()
	if err := d.Put(sample, strings.NewReader(content), int64(len(content))); err != nil {
		t.Fatal(err)
	}
	all := names(t, d)
	return all[len(all)-1]
}

func names(t *testing.T, d Dir) (all []string) {
	t.Helper()
	namesAt(t, d, time.Now(), func(name string) { all = append(all, name) })
	return all
}

func namesAt(t *testing.T, d Dir, now time.Time, each func(name string)) map[int]*Use {
	t.Helper()
	used, err := d.Names(now, func(name string, _ int) { each(name) })
	if err != nil {
		t.Fatal(err)
	}
	return used
}

func TestLetterIsReadAsItWasLeft(t *testing.T) {
	d := newDir(t)
	name := put(t, d)
	l, err := d.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	text, err := io.ReadAll(l.Content())
	if err != nil || string(text) != content {
		t.Errorf("content %q, %v", text, err)
	}
	if !reflect.DeepEqual(l.Envelope, sample) {
		t.Errorf("envelope %+v", l.Envelope)
	}
	if l.UID != os.Getuid() {
		t.Errorf("left by user %d", l.UID)
	}
	if err := d.Remove(name); err != nil {
		t.Error(err)
	}
	if left := names(t, d); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestAnyDamageIsNoticed: one octet changed, anywhere, and the file holds no letter.
func TestAnyDamageIsNoticed(t *testing.T) {
	d := newDir(t)
	path := filepath.Join(d.new(), put(t, d))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, at int, text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o640); err != nil {
			t.Fatal(err)
		}
		if l, err := d.Open(filepath.Base(path)); !errors.Is(err, ErrBroken) {
			t.Errorf("%s at %d: %+v, %v", what, at, l, err)
		}
	}
	for at := range whole {
		flipped := append([]byte(nil), whole...)
		flipped[at] ^= 1
		try("a flipped bit", at, flipped)
		try("cut", at, whole[:at])
	}
	try("more", len(whole), append(whole, 'x'))
}

// TestWhatIsNoLetter: whatever a user puts there, it neither blocks the relay nor leads it elsewhere.
func TestWhatIsNoLetter(t *testing.T) {
	d := newDir(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func(path string) error{
		"symlink":   func(path string) error { return os.Symlink(secret, path) },
		"hardlink":  func(path string) error { return os.Link(secret, path) },
		"fifo":      func(path string) error { return unix.Mkfifo(path, 0o666) },
		"directory": func(path string) error { return os.Mkdir(path, 0o777) },
		"empty":     func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"huge": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, MaxSize+1))
		},
		"a line\nend": func(path string) error {
			return errors.Join(d.Put(sample, strings.NewReader(content), int64(len(content))), os.Rename(filepath.Join(d.new(), names(t, d)[0]), path))
		},
		"bare": func(path string) error { return os.WriteFile(path, []byte("Subject: x\n\nx\n"), 0o644) },
	} {
		if err := make(filepath.Join(d.new(), name)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := d.Open(name); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
		if path, err := d.SetAside(name); err != nil || filepath.Dir(path) != d.broken() {
			t.Errorf("%s: set aside as %q, %v", name, path, err)
		}
	}
	if left := names(t, d); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestSecondName: a letter with two names may be another user's file, whoever made the second name.
func TestSecondName(t *testing.T) {
	d := newDir(t)
	name := put(t, d)
	if err := os.Link(filepath.Join(d.new(), name), filepath.Join(t.TempDir(), "second")); err != nil {
		t.Fatal(err)
	}
	if l, err := d.Open(name); !errors.Is(err, ErrBroken) {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestUnfinishedFiles: those of today are still being written; older ones are removed, whatever time their owner
// has set. Neither is a letter.
func TestUnfinishedFiles(t *testing.T) {
	d := newDir(t)
	path := filepath.Join(d.new(), ".partly")
	future := time.Now().Add(1000 * time.Hour)
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, future, future)); err != nil {
		t.Fatal(err)
	}
	letter := func(name string) { t.Errorf("%s was taken for a letter", name) }
	namesAt(t, d, time.Now().Add(partlyFor-time.Hour), letter)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a letter that is being written was removed: %v", err)
	}
	namesAt(t, d, time.Now().Add(partlyFor+time.Hour), letter)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was never finished is still there: %v", err)
	}
}

// TestUnfinishedFilesAreBounded: a user keeps 100 files that are not finished. Finished letters stay.
func TestUnfinishedFilesAreBounded(t *testing.T) {
	d := newDir(t)
	put(t, d)
	for i := range maxPartly + 50 {
		if err := os.WriteFile(filepath.Join(d.new(), fmt.Sprintf(".partly%d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	used := namesAt(t, d, time.Now(), func(string) {})
	if u := used[os.Getuid()]; u == nil || u.Letters != 1 || u.LetterOctets == 0 || u.Partly != maxPartly+50 {
		t.Errorf("in use: %+v", u)
	}
	files, err := os.ReadDir(d.new())
	if err != nil || len(files) != maxPartly+1 {
		t.Errorf("%d files are left, want %d (%v)", len(files), maxPartly+1, err)
	}
}

// TestUnfinishedFilesGoWhenTheDiskIsShort, however young they are. A sendmail that is writing one fails, and
// leaves nothing.
func TestUnfinishedFilesGoWhenTheDiskIsShort(t *testing.T) {
	d := smallDisk(t, KeepFree+8<<20)
	if err := os.WriteFile(filepath.Join(d.new(), ".small"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	names(t, d)
	if _, err := os.Stat(filepath.Join(d.new(), ".small")); err != nil || d.Short() {
		t.Fatalf("removed with room on the disk: %v", err)
	}
	text := strings.Repeat("x", 4<<20)
	removed := false
	err := d.Put(sample, readerFunc(func(p []byte) (int, error) {
		if !removed { // while sendmail writes, its user fills the disk
			removed = true
			if err := os.WriteFile(filepath.Join(d.new(), ".large"), make([]byte, 8<<20), 0o600); err != nil {
				t.Error(err)
			}
			if !d.Short() {
				t.Error("the disk is not short")
			}
			names(t, d)
		}
		n := copy(p, text)
		text = text[n:]
		if n == 0 {
			return 0, io.EOF
		}
		return n, nil
	}), int64(len(text)))
	if err == nil {
		t.Error("sendmail took a message that is gone for left")
	}
	if files, _ := os.ReadDir(d.new()); len(files) > 0 || d.Short() {
		t.Errorf("left: %v", files)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// smallDisk makes a maildrop on a file system of so many octets.
func smallDisk(t *testing.T, size int) Dir {
	t.Helper()
	top := t.TempDir()
	if err := unix.Mount("tmpfs", top, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("can't mount a file system: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(top, unix.MNT_DETACH) })
	d := Dir(filepath.Join(top, "maildrop"))
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestOnlyWhatSMTPCanCarry(t *testing.T) {
	d := newDir(t)
	for what, change := range map[string]func(*Envelope){
		"no recipients":          func(e *Envelope) { e.Recipients = nil },
		"a recipient with a CR":  func(e *Envelope) { e.Recipients[0] = "a@b.example>\r\nRSET\r\n" },
		"the null recipient":     func(e *Envelope) { e.Recipients[0] = "" },
		"a sender with a space":  func(e *Envelope) { e.Sender = "a b@c.example" },
		"an id with a line end":  func(e *Envelope) { e.ID = "x\r\nDATA" },
		"another word in NOTIFY": func(e *Envelope) { e.Notify = []string{"FAILURE\r\n"} },
		"another word in RET":    func(e *Envelope) { e.Return = "ALL" },
	} {
		e := sample
		e.Recipients = append([]envelope.Address(nil), sample.Recipients...)
		change(&e)
		if err := d.Put(e, strings.NewReader(content), int64(len(content))); err != nil {
			t.Fatal(err)
		}
		for _, name := range names(t, d) {
			if _, err := d.Open(name); !errors.Is(err, ErrBroken) {
				t.Errorf("%s: %v", what, err)
			}
			d.Remove(name)
		}
	}
}

// TestNothingIsLeftAfterAnError, and what is in the making is not picked up.
func TestNothingIsLeftAfterAnError(t *testing.T) {
	d := newDir(t)
	if err := d.Put(sample, strings.NewReader("short"), 100); err == nil {
		t.Error("a content of another size was taken")
	}
	if all, _ := os.ReadDir(d.new()); len(all) > 0 {
		t.Errorf("left: %v", all)
	}
	partly := filepath.Join(d.new(), ".partly")
	if err := os.WriteFile(partly, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all := names(t, d); len(all) > 0 {
		t.Errorf("picked up: %v", all)
	}
	if _, err := d.Names(time.Now().Add(25*time.Hour), func(string, int) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(partly); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was never finished is still there: %v", err)
	}
}

func TestBrokenFilesAreBounded(t *testing.T) {
	d := newDir(t)
	for i := range maxBroken + 5 {
		name := strings.Repeat("x", 1+i/26) + string(rune('a'+i%26))
		name = filepath.Base(name)[max(0, len(name)-200):]
		if err := os.WriteFile(filepath.Join(d.new(), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.SetAside(name); err != nil {
			t.Fatal(err)
		}
	}
	if n, _, err := d.Broken(); n != maxBroken || err != nil {
		t.Errorf("%d are kept, %v", n, err)
	}
	if left := names(t, d); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestBrokenFilesAreBoundedInSize: no more octets of them are kept than the largest letter has.
func TestBrokenFilesAreBoundedInSize(t *testing.T) {
	d := newDir(t)
	for i, size := range []int64{MaxSize/2 - 1<<20, MaxSize/2 - 1<<20, 4 << 20} {
		name := fmt.Sprint("file", i)
		path := filepath.Join(d.new(), name)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		err = unix.Fallocate(int(f.Fd()), 0, 0, size)
		if f.Close(); err != nil {
			t.Skipf("can't allocate files of a GiB here: %v", err)
		}
		to, err := d.SetAside(name)
		if err != nil || (to == "") != (i == 2) {
			t.Errorf("file %d went to %q, %v", i, to, err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("file %d is still there: %v", i, err)
		}
	}
}

// TestNamesThatCollide: no name that a user gives a file or folder keeps it from being set aside.
func TestNamesThatCollide(t *testing.T) {
	d := newDir(t)
	long := strings.Repeat("x", 255)
	for _, path := range []string{
		filepath.Join(d.broken(), "dir", "sub"), filepath.Join(d.new(), "dir"),
		filepath.Join(d.broken(), "full", "sub"), filepath.Join(d.new(), "full", "sub"), filepath.Join(d.new(), ".full", "sub"),
		filepath.Join(d.broken(), long, "sub"), filepath.Join(d.new(), long, "sub"),
	} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names(t, d) {
		if _, err := d.SetAside(name); err != nil {
			t.Errorf("%.20s: %v", name, err)
		}
	}
	if left := names(t, d); len(left) > 0 {
		t.Errorf("left: %.20v", left)
	}
}

// TestOtherUsers: they may leave letters and do nothing else.
func TestOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("takes root, to be two users")
	}
	top, d := openFolder(t)
	if err := errors.Join(d.Make(), os.Chown(d.new(), 0, 4242)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(d.new(), fs.ModeSetgid|fs.ModeSticky|0o733); err != nil { // chown may take it away
		t.Fatal(err)
	}
	mine := put(t, d)
	asUser(t, top, 4711, "TestAsOtherUser", "MAILDROP="+string(d), "MAILDROP_OTHER="+mine)
	for _, name := range names(t, d) {
		info, err := os.Stat(filepath.Join(d.new(), name))
		if err != nil {
			t.Fatal(err)
		}
		if stat := info.Sys().(*syscall.Stat_t); name != mine && (stat.Gid != 4242 || info.Mode().Perm() != 0o640) {
			t.Errorf("a relay that is not root could not read it: group %d, mode %v", stat.Gid, info.Mode())
		}
		l, err := d.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{true: 0, false: 4711}[name == mine]; l.UID != want {
			t.Errorf("left by user %d, want %d", l.UID, want)
		}
		l.Close()
	}
	if n := len(names(t, d)); n != 2 {
		t.Errorf("%d letters, want 2", n)
	}
}

// TestAsOtherUser is TestOtherUsers' other process.
func TestAsOtherUser(t *testing.T) {
	dir, other := os.Getenv("MAILDROP"), os.Getenv("MAILDROP_OTHER")
	if dir == "" {
		t.Skip("is run by TestOtherUsers")
	}
	d := Dir(dir)
	if err := d.Put(sample, strings.NewReader(content), int64(len(content))); err != nil {
		t.Errorf("leaving a letter: %v", err)
	}
	if _, err := os.ReadDir(d.new()); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("listing: %v", err)
	}
	if _, err := os.ReadFile(filepath.Join(d.new(), other)); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("reading another user's: %v", err)
	}
	if err := d.Remove(other); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("removing another user's: %v", err)
	}
	if err := os.Rename(filepath.Join(d.new(), other), filepath.Join(d.new(), "x")); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("renaming another user's: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("writing beside it: %v", err)
	}
}

// TestFilesOfOthers: a relay that is not root gets rid of all that another user puts there, whatever its
// mode, and has no alarm for ever.
func TestFilesOfOthers(t *testing.T) {
	if dir := os.Getenv("MAILDROP_RELAY"); dir != "" {
		d := Dir(dir)
		if err := d.Make(); err != nil {
			t.Fatal(err)
		}
		for _, name := range names(t, d) {
			if _, err := d.Open(name); !errors.Is(err, ErrBroken) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := d.SetAside(name); err != nil {
				t.Error(err)
			}
		}
		if left := names(t, d); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("takes root, to be two users")
	}
	top, d := openFolder(t)
	if err := errors.Join(d.Make(), os.WriteFile(filepath.Join(d.new(), "private"), []byte("x"), 0o600),
		os.MkdirAll(filepath.Join(d.new(), "dir", "sub"), 0o755), unix.Mknod(filepath.Join(d.new(), "socket"), unix.S_IFSOCK|0o600, 0),
		os.Chown(string(d), 4242, 4242), os.Chown(d.new(), 4242, 4242), os.Chown(d.broken(), 4242, 4242)); err != nil {
		t.Fatal(err)
	}
	asUser(t, top, 4242, "TestFilesOfOthers", "MAILDROP_RELAY="+string(d))
}

// openFolder makes a folder that other users may enter, for a maildrop in it.
func openFolder(t *testing.T) (top string, d Dir) {
	t.Helper()
	top, err := os.MkdirTemp("/tmp", "maildrop") // t.TempDir is below what others may not enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	if err := os.Chmod(top, 0o711); err != nil {
		t.Fatal(err)
	}
	return top, Dir(filepath.Join(top, "maildrop"))
}

// asUser runs a test of this package as another user.
func asUser(t *testing.T, top string, id uint32, test string, env ...string) {
	t.Helper()
	binary := filepath.Join(top, "test")
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, text, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+test) {
		t.Fatalf("%v: %s", err, out)
	}
}

// FuzzOpen: no file makes the relay fail.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"maildrop":1,"size":0,"recipients":["a@b.example"]}` + "\n00000000\n"))
	f.Add([]byte("\n"))
	top := f.TempDir()
	d := Dir(top)
	if err := d.Make(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(d.new(), "x"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := d.Open("x"); err == nil {
			l.Close()
		}
	})
}
