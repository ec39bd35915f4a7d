package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stored is a message as a server keeps it, line ends turned back to CRLF.
type stored struct {
	head, body []byte // the blank line between them belongs to neither
}

// field gives the first header of that name, unfolded lines not.
func (m stored) field(name string) string {
	for line := range strings.SplitSeq(string(m.head), "\r\n") {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(key, name) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// messages reads what the server has stored so far.
func (s *server) messages(t *testing.T) []stored {
	t.Helper()
	dir := s.inbox
	if s.name != "smtp-sink" {
		dir = filepath.Join(dir, "new")
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var out []stored
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // smtp-sink renames
		}
		if err != nil {
			t.Fatal(err)
		}
		if s.name == "smtp-sink" {
			b = bytes.TrimSuffix(b, []byte("\n")) // it ends each file so
		}
		out = append(out, parse(b))
	}
	return out
}

func parse(b []byte) stored {
	if !bytes.Contains(b, []byte("\r\n")) {
		b = bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))
	}
	head, body, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		return stored{head: b}
	}
	return stored{head: append(head, '\r', '\n'), body: body}
}

// wait gives the message with that X-Mta-Test-Id once it has arrived complete. Its size, at
// least, is that of content.
func (s *server) wait(t *testing.T, id string, limit time.Duration) stored {
	t.Helper()
	var found stored
	eventually(t, limit, func() error {
		for _, m := range s.messages(t) {
			if m.field("X-Mta-Test-Id") == id {
				found = m
				return nil
			}
		}
		return fmt.Errorf("%s has not got %s", s.name, id)
	})
	return found
}

// arrived compares content, as it was sent, with what was stored: the body to the octet, the
// headers as the end of those stored, since each hop adds its own before.
func arrived(content string, got stored) error {
	head, body, ok := strings.Cut(content, "\r\n\r\n")
	if !ok {
		head, body = strings.TrimSuffix(content, "\r\n"), ""
	}
	if !strings.HasSuffix(string(got.head), "\r\n"+head+"\r\n") && string(got.head) != head+"\r\n" {
		return fmt.Errorf("headers are\n%s\nwhich should end in\n%s", got.head, head)
	}
	if string(got.body) != body {
		return fmt.Errorf("body differs: %s", difference(body, string(got.body)))
	}
	return nil
}

// difference returns where two texts part.
func difference(want, got string) string {
	n := 0
	for n < len(want) && n < len(got) && want[n] == got[n] {
		n++
	}
	cut := func(s string) string { return s[max(0, n-20):min(len(s), n+40)] }
	return fmt.Sprintf("%d octets, want %d; they part at %d: %q, want %q", len(got), len(want), n, cut(got), cut(want))
}
