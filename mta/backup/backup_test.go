package backup

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func text(name, content string) Part {
	return Part{name, 0o600, func() (io.ReadCloser, int64, error) {
		return io.NopCloser(strings.NewReader(content)), int64(len(content)), nil
	}}
}

func sample(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	parts := []Part{text("queue/one.seg", strings.Repeat("x", 5000)), text("pauses.json", "{}"), File("not-there", filepath.Join(t.TempDir(), "none"))}
	if err := Write(&b, Manifest{Version: "0.1.0", At: time.Unix(1e9, 0).UTC(), Messages: 3}, parts); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestThereAndBack by a stream and by a directory.
func TestThereAndBack(t *testing.T) {
	first := filepath.Join(t.TempDir(), "first")
	m, err := Unpack(bytes.NewReader(sample(t)), first)
	if err != nil || m.Messages != 3 || len(m.Files) != 2 {
		t.Fatalf("%+v, %v", m, err)
	}
	from, err := Read(first)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	second := filepath.Join(t.TempDir(), "second")
	if _, err := Unpack(from, second); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(second, "queue", "one.seg")); err != nil || len(got) != 5000 {
		t.Errorf("%d octets, %v", len(got), err)
	}
	if _, err := Unpack(bytes.NewReader(sample(t)), first); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("into a directory with files: %v", err)
	}
}

// TestWhatIsNotWholeIsRefused: cut anywhere, or with an octet changed.
func TestWhatIsNotWholeIsRefused(t *testing.T) {
	whole := sample(t)
	for _, cut := range []int{0, 100, 512, 3000, 5700, len(whole) - 2000} {
		if _, err := Unpack(bytes.NewReader(whole[:cut]), filepath.Join(t.TempDir(), "d")); !errors.Is(err, ErrIncomplete) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	changed := bytes.Clone(whole)
	changed[600] ^= 1
	if _, err := Unpack(bytes.NewReader(changed), filepath.Join(t.TempDir(), "d")); !errors.Is(err, ErrIncomplete) {
		t.Errorf("a changed octet: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "d")
	if _, err := Unpack(bytes.NewReader(whole), dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pauses.json"), []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	from, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if _, err := Unpack(from, filepath.Join(t.TempDir(), "d")); !errors.Is(err, ErrIncomplete) {
		t.Errorf("a changed file: %v", err)
	}
}

// TestNamesStayInside: a name that leads out of the directory is refused.
func TestNamesStayInside(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, Manifest{}, []Part{text("../out", "x")}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := Unpack(&b, filepath.Join(dir, "d")); err == nil {
		t.Error("it was unpacked")
	}
	if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
		t.Error("a file was made outside")
	}
}
