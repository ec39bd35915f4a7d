package report

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// hosts returns the samples of testdata/hosts.txtar by name: what is read of each, and the message.
func hosts(t testing.TB) map[string][2]string {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/hosts.txtar")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][2]string)
	for _, f := range archive.Files {
		want, content, ok := strings.Cut(string(f.Data), "\n\n")
		if !ok {
			t.Fatalf("%s has no empty line", f.Name)
		}
		all[f.Name] = [2]string{want, content}
	}
	return all
}

// summary is a result in the form of testdata/hosts.txtar.
func summary(r *Result) string {
	lines := []string{r.Kind.String()}
	for _, p := range r.Reports {
		line := p.Recipient
		if p.Action != "" {
			line += fmt.Sprintf(" %s %s %d %s", p.Action, cmp.Or(p.Status.String(), "-"), p.Reply.Code, cmp.Or(p.Class.String(), "-"))
		}
		if p.Hard {
			line += " hard"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestHosts(t *testing.T) {
	for name, sample := range hosts(t) {
		for ending, content := range map[string]string{"LF": sample[1], "CRLF": strings.ReplaceAll(sample[1], "\n", "\r\n"), "CR": strings.ReplaceAll(sample[1], "\n", "\r")} {
			if got := summary(Read([]byte(content), Options{})); got != sample[0] {
				t.Errorf("%s, lines that end with %s:\n%s\nwant:\n%s", name, ending, got, sample[0])
			}
		}
	}
}
