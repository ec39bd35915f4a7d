package smallfile

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/mta/internal/faultlog"
)

func follow(path string) *Follower[string] {
	load := func(path string) (*string, error) {
		text, err := ReadSecret(path)
		if err != nil {
			return nil, err
		}
		s := string(text)
		if strings.Contains(s, "bad") {
			return nil, errors.New("bad text")
		}
		return &s, nil
	}
	return Follow(path, load, nil, faultlog.New(slog.New(slog.DiscardHandler), time.Now, slog.LevelError, "began", "ended"))
}

// TestAPipeIsNoSecret: opening it would block until somebody writes to it.
func TestAPipeIsNoSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() { _, err := ReadSecret(path); read <- err }()
	select {
	case err := <-read:
		if err == nil || !strings.Contains(err.Error(), "not a file") {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for a writer")
	}
}

// What a file said before stays in force while it can't be read; a chmod alone brings it back.
func TestFollower(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f := follow(path)
	if f.Get(0) != nil || !errors.Is(f.Broken(), fs.ErrNotExist) {
		t.Errorf("without a file: %v", f.Broken())
	}
	set := func(text string) {
		t.Helper()
		if err := UpdateSecret(path, func([]byte) ([]byte, error) { return []byte(text), nil }); err != nil {
			t.Fatal(err)
		}
	}
	want := func(text string, broken bool) {
		t.Helper()
		if got := f.Get(0); got == nil || *got != text || (f.Broken() != nil) != broken {
			t.Errorf("got %v, broken %v, want %q", got, f.Broken(), text)
		}
	}
	set("one")
	want("one", false)
	set("bad")
	want("one", true)
	set("two")
	want("two", false)
	os.Chmod(path, 0o644)
	want("two", true)
	var mode *ModeError
	if !errors.As(f.Broken(), &mode) || mode.Remedy() != "chmod 0640 "+path {
		t.Errorf("the error is %v", f.Broken())
	}
	os.Chmod(path, 0o640)
	want("two", false)
	set("three")
	if *f.Get(time.Hour) != "two" || *f.Last() != "two" {
		t.Error("the file was looked at before its time")
	}
	want("three", false)
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o640 {
		t.Errorf("the new file has mode %v, the old one had 0640", info.Mode())
	}
}

// A change that fails leaves the file and its folder as they were.
func TestUpdateFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	os.WriteFile(path, []byte("old"), 0o600)
	if err := UpdateSecret(path, func([]byte) ([]byte, error) { return nil, errors.New("no") }); err == nil {
		t.Error("no error")
	}
	text, _ := os.ReadFile(path)
	if files, _ := os.ReadDir(dir); string(text) != "old" || len(files) != 1 {
		t.Errorf("the file is %q, the folder has %d files", text, len(files))
	}
}

func TestAFileThatComesIsNoLongerBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f := follow(path)
	if f.Broken() == nil {
		t.Fatal("a missing file is not broken")
	}
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Broken(); err != nil { // nobody has looked in between
		t.Errorf("the file is there now: %v", err)
	}
}

// TestANewFileGetsTheGroupOfItsFolder: where the folder hands its group on, as /etc/mta of the packages, the relay reads
// the file by that group. A file of the relay's own secret stays its own.
func TestANewFileGetsTheGroupOfItsFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o750|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	users, secret := filepath.Join(dir, "users"), filepath.Join(dir, "secret")
	if err := UpdateSecret(users, func([]byte) ([]byte, error) { return []byte("text"), nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := (Secret{Path: secret, Now: time.Now, Log: slog.New(slog.DiscardHandler)}).Secret(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{users: 0o640, secret: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, err, info.Mode(), want)
		}
	}
}
