package smallfile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type object struct {
	Names []string `json:"names"`
}

// TestAnyBitOfAText: no changed bit is taken for the text of a program without sums. Such a text is read as ever.
func TestAnyBitOfAText(t *testing.T) {
	text, err := Marshal(object{[]string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if summed, err := Unmarshal(text, &object{}); !summed || err != nil {
		t.Fatal(summed, err)
	}
	for bit := range 8 * len(text) {
		rotten := bytes.Clone(text)
		rotten[bit/8] ^= 1 << (bit % 8)
		if _, err := Unmarshal(rotten, &object{}); err == nil {
			t.Errorf("taken as it is: %q", rotten)
		}
	}
	for text, sound := range map[string]bool{
		"{\n  \"names\": [\"a\"]\n}\n": true, `{"names":[]}`: true, "{}": true,
		`{"names":[]} {}`: false, `{"names":[],"sun":"00000000"}`: false, "": false, "\x00\x00": false,
	} {
		if summed, err := Unmarshal([]byte(text), &object{}); summed || (err == nil) != sound {
			t.Errorf("%q: summed %v, %v", text, summed, err)
		}
	}
}

// TestSetAsideAFileThatIsGone keeps an empty one: it is an alarm until somebody moves it away.
func TestSetAsideAFileThatIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	os.WriteFile(path, []byte("x"), 0o600)
	now := time.Unix(1e9, 0)
	for _, want := range []string{"x", ""} {
		aside, err := SetAside(path, now)
		if got, _ := os.ReadFile(aside); err != nil || string(got) != want {
			t.Errorf("kept %q, %v, want %q", got, err, want)
		}
		if names, _ := Aside(filepath.Dir(path)); len(names) != 1 || names[0] != aside {
			t.Errorf("listed: %q", names)
		}
		os.Remove(aside)
	}
}
