package secretfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	made, err := Secret(path, "it is lost")
	if err != nil || len(made) != secretSize {
		t.Fatal(made, err)
	}
	before, err := os.Stat(path)
	if err != nil || before.Mode().Perm() != 0o600 {
		t.Fatal(before.Mode(), err)
	}
	if again, err := Secret(path, "it is lost"); err != nil || string(again) != string(made) {
		t.Error("another secret the second time", err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Error("a secret that is there is written again", err)
	}
	os.Chmod(path, 0o644)
	if _, err := Secret(path, "it is lost"); err == nil || !strings.Contains(err.Error(), "chmod 0640") {
		t.Error(err)
	}
	os.Chmod(path, 0o600)
	os.WriteFile(path, []byte("short\n"), 0o600)
	if _, err := Secret(path, "it is lost"); err == nil || !strings.Contains(err.Error(), "restore it") || !strings.HasSuffix(err.Error(), "it is lost") {
		t.Error(err)
	}
}
