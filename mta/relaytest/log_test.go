package relaytest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/mta/internal/bubble"
	"example.org/mta/operator/api"
)

// TestADamagedLogIsReadToItsEnd by the running relay's API: the records that are sound come, and then what is not.
func TestADamagedLogIsReadToItsEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, "")
		r.send(5, "a@box.example")
		read := func() (n int, err error) {
			err = r.Client().Log(t.Context(), api.LogQuery{}, func([]byte) error { n++; return nil })
			return n, err
		}
		all, err := read()
		r.must(err)
		file, err := filepath.EvalSymlinks(filepath.Join(r.Dir, "log", "current.jsonl"))
		r.must(err)
		text, err := os.ReadFile(file)
		r.must(err)
		text[strings.Index(string(text), "a@box")] ^= 2
		r.must(os.WriteFile(file, text, 0o600))
		n, err := read()
		if damaged := (*api.LogDamaged)(nil); !errors.As(err, &damaged) || !strings.Contains(damaged.Text, file) || n != all-1 {
			t.Errorf("%d of %d records, %v", n, all, err)
		}
	})
}
