package smallfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	full := errors.New("the disk is full")
	for _, step := range []struct {
		text string
		err  error
		want string
	}{{"first", nil, "first"}, {"half of the sec", full, "first"}, {"second", nil, "second"}} {
		err := Replace(path, 0o600, func(w io.Writer) error {
			_, err := io.WriteString(w, step.text)
			return errors.Join(err, step.err)
		})
		if !errors.Is(err, step.err) {
			t.Errorf("writing %q: %v, want %v", step.text, err, step.err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != step.want {
			t.Errorf("the file has %q, %v, want %q", got, err, step.want)
		}
		if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) != 1 {
			t.Errorf("the folder has %v", left)
		}
	}
}

// TestWhatIsInTheWay: neither the rights nor the target of what has the temporary name matters.
func TestWhatIsInTheWay(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(string) error{
		"a file that everybody may read": func(at string) error { return os.WriteFile(at, []byte("left"), 0o644) },
		"a symbolic link":                func(at string) error { return os.Symlink(other, at) },
		"a hard link":                    func(at string) error { return os.Link(other, at) },
	} {
		if err := plant(path + ".new"); err != nil {
			t.Fatal(err)
		}
		if err := Replace(path, 0o600, func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err }); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: the file has the mode %v, %v", name, info.Mode(), err)
		}
		if text, _ := os.ReadFile(other); string(text) != "other" {
			t.Errorf("%s: the other file has %q", name, text)
		}
	}
}

// TestOwner: what root writes for a relay that runs as another user belongs to that user.
func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	owner := func() uint32 {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Uid
	}
	replace := func() {
		t.Helper()
		if err := Replace(path, 0o600, func(io.Writer) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	os.Chown(dir, 4711, 4711)
	if replace(); owner() != 4711 {
		t.Errorf("a new file belongs to %d", owner())
	}
	os.Chown(path, 4712, 4712)
	if replace(); owner() != 4712 {
		t.Errorf("the file of user 4712 belongs to %d", owner())
	}
}
