package smallfile

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func own(path string) Secret {
	return Secret{path, "it is lost", func() time.Time { return time.Unix(1e9, 0) }, slog.New(slog.DiscardHandler)}
}

func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	made, err := own(path).Secret()
	if err != nil || len(made) != secretSize {
		t.Fatal(made, err)
	}
	before, err := os.Stat(path)
	if err != nil || before.Mode().Perm() != 0o600 {
		t.Fatal(before.Mode(), err)
	}
	if again, err := own(path).Secret(); err != nil || string(again) != string(made) {
		t.Error("another secret the second time", err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Error("a secret that is there is written again", err)
	}
	os.Chmod(path, 0o644)
	if _, err := own(path).Secret(); err == nil || !strings.Contains(err.Error(), "chmod 0640") {
		t.Error(err)
	}
}

// TestDamagedSecrets: a secret that is damaged comes back from its copy, whichever bit it was; another one is the
// operator's.
func TestDamagedSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	made, err := own(path).Octets()
	if err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile(path + CopySuffix)
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, secret []byte, aside int) {
		t.Helper()
		if got, err := own(path).Octets(); err != nil || !bytes.Equal(got, secret) {
			t.Fatalf("%s: %x, %v, want %x", what, got, err, secret)
		}
		if now, _ := os.ReadFile(path); !bytes.Equal(now, secret) {
			t.Errorf("%s: the file has %x", what, now)
		}
		names, _ := Aside(filepath.Dir(path))
		if len(names) != aside {
			t.Errorf("%s: set aside: %v", what, names)
		}
		for _, name := range names {
			os.Remove(name)
		}
	}
	for bit := range 8 * len(made) {
		rotten := bytes.Clone(made)
		rotten[bit/8] ^= 1 << (bit % 8)
		os.WriteFile(path, rotten, 0o600)
		want("a bit", made, 1)
	}
	for bit := range 8 * len(copied) {
		rotten := bytes.Clone(copied)
		rotten[bit/8] ^= 1 << (bit % 8)
		os.WriteFile(path+CopySuffix, rotten, 0o600)
		want("a bit of the copy", made, 1)
	}
	os.WriteFile(path, made[:7], 0o600)
	want("cut", made, 1)
	os.Remove(path)
	want("gone", made, 1)
	other := bytes.Repeat([]byte("x"), secretSize)
	os.WriteFile(path, other, 0o600)
	want("another", other, 0)
	os.Remove(path + CopySuffix)
	os.WriteFile(path, []byte("short"), 0o600)
	if got, err := own(path).Octets(); err != nil || len(got) != secretSize || bytes.Equal(got, other) {
		t.Errorf("without a copy: %x, %v", got, err)
	}
}
