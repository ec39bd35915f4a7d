package wholefile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
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
