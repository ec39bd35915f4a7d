package datadir

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/format"
)

func text(name, content string) Part {
	return Part{name, 0o600, func() (io.ReadCloser, int64, error) {
		return io.NopCloser(strings.NewReader(content)), int64(len(content)), nil
	}}
}

func sample(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	parts := []Part{text("queue/one.seg", strings.Repeat("x", 5000)), text("pauses.json", "{}"), PartOf("not-there", filepath.Join(t.TempDir(), "none"))}
	if err := WriteBackup(&b, Manifest{Version: "0.1.0", At: time.Unix(1e9, 0).UTC(), Messages: 3}, slices.Values(parts)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestThereAndBack by a stream and by a directory.
func TestThereAndBack(t *testing.T) {
	first := filepath.Join(t.TempDir(), "first")
	m, err := UnpackBackup(bytes.NewReader(sample(t)), first)
	if err != nil || m.Messages != 3 || len(m.Files) != 2 {
		t.Fatalf("%+v, %v", m, err)
	}
	from, err := ReadBackup(first)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	second := filepath.Join(t.TempDir(), "second")
	if _, err := UnpackBackup(from, second); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(second, "queue", "one.seg")); err != nil || len(got) != 5000 {
		t.Errorf("%d octets, %v", len(got), err)
	}
	if _, err := UnpackBackup(bytes.NewReader(sample(t)), first); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("into a directory with files: %v", err)
	}
}

// TestWhatIsNotWholeIsRefused: cut anywhere, or with an octet changed.
func TestWhatIsNotWholeIsRefused(t *testing.T) {
	whole := sample(t)
	end := len(whole) - 2*512 // the archive's own end says nothing
	for bytes.HasSuffix(whole[:end], []byte{0}) {
		end-- // nor does what fills its last block
	}
	for cut := 0; cut < end; cut += 7 {
		if _, err := UnpackBackup(bytes.NewReader(whole[:cut]), filepath.Join(t.TempDir(), "d")); !errors.Is(err, ErrIncomplete) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	changed := bytes.Clone(whole)
	changed[600] ^= 1
	if _, err := UnpackBackup(bytes.NewReader(changed), filepath.Join(t.TempDir(), "d")); !errors.Is(err, ErrIncomplete) {
		t.Errorf("a changed octet: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "d")
	if _, err := UnpackBackup(bytes.NewReader(whole), dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pauses.json"), []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	from, err := ReadBackup(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if _, err := UnpackBackup(from, filepath.Join(t.TempDir(), "d")); !errors.Is(err, ErrIncomplete) {
		t.Errorf("a changed file: %v", err)
	}
}

// TestAFileWithTwoRoles is in a backup once: UnpackBackup refuses a name that comes twice.
func TestAFileWithTwoRoles(t *testing.T) {
	var b bytes.Buffer
	key := text("config/etc/acme/relay.example", "certificate and key")
	if err := WriteBackup(&b, Manifest{}, slices.Values(SortedParts([]Part{key, text("acme", "x"), key}))); err != nil {
		t.Fatal(err)
	}
	if m, err := UnpackBackup(&b, filepath.Join(t.TempDir(), "d")); err != nil || len(m.Files) != 2 {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestNamesStayInside: a name that leads out of the directory is refused.
func TestNamesStayInside(t *testing.T) {
	var b bytes.Buffer
	if err := WriteBackup(&b, Manifest{}, slices.Values([]Part{text("../out", "x")})); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := UnpackBackup(&b, filepath.Join(dir, "d")); err == nil {
		t.Error("it was unpacked")
	}
	if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
		t.Error("a file was made outside")
	}
}

// TestOnlyFilesAreUnpacked: links, devices and folders are refused, and so is a file whose size is not that of its octets.
func TestOnlyFilesAreUnpacked(t *testing.T) {
	for name, h := range map[string]*tar.Header{
		"a link":        {Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		"a hard link":   {Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
		"a device":      {Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
		"a pipe":        {Typeflag: tar.TypeFifo},
		"a folder":      {Typeflag: tar.TypeDir},
		"outside":       {Typeflag: tar.TypeReg, Name: "/queue/one.seg"},
		"back and away": {Typeflag: tar.TypeReg, Name: "queue/../../one.seg"},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if h.Name == "" {
			h.Name = "queue"
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if _, err := UnpackBackup(&b, filepath.Join(t.TempDir(), "d")); !errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), "does not belong to a backup") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A file of 64 GiB of zeros in 3 KiB: GNU's sparse format 1.0 in PAX records, which tar.Writer does not write.
	record := func(text string) string { return fmt.Sprintf("%d %s\n", len(text)+4, text) }
	records := record("GNU.sparse.major=1") + record("GNU.sparse.minor=0") + record("GNU.sparse.name=queue") + record(fmt.Sprintf("GNU.sparse.realsize=%d", 64<<30))
	var b bytes.Buffer
	for _, block := range []string{header("pax", 'x', len(records)), padded(records), header("queue", '0', 512), padded("0\n"), padded(""), padded("")} {
		b.WriteString(block)
	}
	h, err := tar.NewReader(bytes.NewReader(b.Bytes())).Next()
	if err != nil || h.Size != 64<<30 {
		t.Fatalf("the archive is not what it should be: %+v, %v", h, err)
	}
	if _, err := UnpackBackup(&b, filepath.Join(t.TempDir(), "d")); !errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), "does not belong to a backup") {
		t.Errorf("a sparse file: %v", err)
	}
}

// header is that of a member of a tar archive (POSIX ustar).
func header(name string, kind byte, size int) string {
	b := make([]byte, 512)
	copy(b, name)
	copy(b[100:], "0000600\x000000000\x000000000\x00")
	copy(b[124:], fmt.Sprintf("%011o\x0000000000000\x00        ", size))
	b[156] = kind
	copy(b[257:], "ustar\x0000")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return string(b)
}

func padded(text string) string { return text + strings.Repeat("\x00", 512-len(text)) }

// TestTheManifestDecides: what it says of sizes, sums and names must be what is there, each file once.
func TestTheManifestDecides(t *testing.T) {
	archive := func(manifest string, names ...string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range append(names, ManifestName) {
			content := "content"
			if name == ManifestName {
				content = manifest
			}
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}); err != nil {
				t.Fatal(err)
			}
			w.Write([]byte(content))
		}
		w.Close()
		return b.Bytes()
	}
	const sum = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
	file := func(name, size, sum string) string {
		return fmt.Sprintf(`{"name":%q,"size":%s,"sha256":%q}`, name, size, sum)
	}
	manifest := func(files ...string) string { return `{"backup":1,"files":[` + strings.Join(files, ",") + `]}` }
	if _, err := UnpackBackup(bytes.NewReader(archive(manifest(file("a", "7", sum)), "a")), filepath.Join(t.TempDir(), "d")); err != nil {
		t.Fatal(err)
	}
	for what, whole := range map[string][]byte{
		"a larger size":               archive(manifest(file("a", "8", sum)), "a"),
		"a huge size":                 archive(manifest(file("a", "9223372036854775807", sum)), "a"),
		"a negative size":             archive(manifest(file("a", "-7", sum)), "a"),
		"another sum":                 archive(manifest(file("a", "7", strings.Repeat("0", 64))), "a"),
		"another name":                archive(manifest(file("b", "7", sum)), "a"),
		"a name outside":              archive(manifest(file("../a", "7", sum)), "a"),
		"a file that it has not":      archive(manifest(file("a", "7", sum)), "a", "b"),
		"a file that is not there":    archive(manifest(file("a", "7", sum), file("b", "7", sum)), "a"),
		"one file for another":        archive(manifest(file("a", "7", sum), file("a", "7", sum)), "a", "b"),
		"no files":                    archive(`{"backup":1}`, "a"),
		"no JSON":                     archive(`x`, "a"),
		"itself":                      archive(manifest(file(ManifestName, "7", sum)), "a"),
		"a file twice":                archive(manifest(file("a", "7", sum)), "a", "a"),
		"a file as a folder":          archive(manifest(file("a", "7", sum), file("a/b", "7", sum)), "a", "a/b"),
		"the manifest before another": append(archive(manifest())[:1024], archive(manifest(file("a", "7", sum)), "a")...),
	} {
		dir := filepath.Join(t.TempDir(), "d")
		if m, err := UnpackBackup(bytes.NewReader(whole), dir); err == nil && len(m.Files) > 0 {
			t.Errorf("%s: %+v", what, m)
		}
	}
	huge := header(ManifestName, '0', maxManifest+1)
	if _, err := UnpackBackup(io.MultiReader(strings.NewReader(huge), zeros{}), filepath.Join(t.TempDir(), "d")); !errors.Is(err, ErrIncomplete) {
		t.Errorf("a huge manifest: %v", err)
	}
	long := "12345678 path=" + strings.Repeat("x", 12345678-14) // a header of 12 MB
	if _, err := UnpackBackup(io.MultiReader(strings.NewReader(header("pax", 'x', len(long))+long), zeros{}), filepath.Join(t.TempDir(), "d")); !errors.Is(err, ErrIncomplete) {
		t.Errorf("a huge header: %v", err)
	}
}

// zeros is content without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestBackupOfTheFuture: it is no damage, and the error names who reads it.
func TestBackupOfTheFuture(t *testing.T) {
	text := bytes.Replace(sample(t), []byte(`"backup": 1`), []byte(`"backup": 2`), 1)
	_, err := UnpackBackup(bytes.NewReader(text), filepath.Join(t.TempDir(), "d"))
	if !errors.Is(err, format.ErrRefused) || errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), "mta 0.1.0") {
		t.Errorf("got %v", err)
	}
}
