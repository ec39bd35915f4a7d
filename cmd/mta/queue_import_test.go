package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/mta/exported"
	"example.org/mta/mta/relaytest"
	"example.org/mta/operator/api"
)

// archiveOf has a message with each content. change can damage the last content.
func archiveOf(t *testing.T, contents ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := exported.NewWriter(&b, exported.Summary{Node: "old"})
	for i, c := range contents {
		m := &exported.Message{ID: fmt.Sprintf("1m7yz7qb%05d", i), Sender: "a@acme.example", Accepted: relaytest.Now, Total: 1, Recipients: []exported.Recipient{{Address: "b@box.example"}}}
		if _, err := w.Add(m, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(c)), nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(exported.Summary{}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestImportInParts: an archive is handed over in parts, a large message by itself and as it is read. What comes before
// damage is taken and counted, wherever the damage is.
func TestImportInParts(t *testing.T) {
	large := "Subject: large\r\n\r\n" + strings.Repeat("0123456789abcdef\r\n", importOctets/18+1)
	small := "Subject: small\r\n\r\n"
	contents := []string{small, large, small}
	for range importMessages + 1 {
		contents = append(contents, small)
	}
	whole := archiveOf(t, contents...)
	n := len(contents)
	damaged := bytes.Clone(whole)
	damaged[bytes.LastIndex(damaged, []byte("89abcdef\r\n"))] = 'x'
	for name, c := range map[string]struct {
		archive []byte
		code    int
		out     string
		err     string
	}{
		"whole":   {whole, 0, fmt.Sprintf("%d messages with %d recipients taken\n", n, n), ""},
		"damaged": {damaged, exitFailed, "1 message with 1 recipient taken\n", "1m7yz7qb00001.eml: its content has changed"},
		"cut":     {whole[:len(whole)-5000], exitFailed, " recipients taken\n", "export again"},
	} {
		dir := t.TempDir()
		socket := filepath.Join(dir, "control.sock")
		l, err := api.Listen(socket, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		r := relaytest.Serve(t, func(t *testing.T) *relaytest.Sample { return relaytest.NewSample(t, "", nil) })
		s := http.Server{Handler: r}
		served := make(chan struct{})
		go func() { defer close(served); s.Serve(l) }()
		var out, errs bytes.Buffer
		mta := &cli{in: bytes.NewReader(c.archive), out: &out, err: &errs, env: func(string) string { return "" }, now: time.Now}
		receipt := filepath.Join(dir, "receipt")
		code := run(mta, []string{"mta", "--socket", socket, "queue", "import", "-", "--receipt", receipt})
		if code != c.code || !strings.HasSuffix(out.String(), c.out) || !strings.Contains(errs.String(), c.err) {
			t.Errorf("%s: exit code %d, %s%s", name, code, out.String(), errs.String())
		}
		text, err := os.ReadFile(receipt)
		lines, taken := bytes.Count(text, []byte("\n")), 0
		if fmt.Sscanf(out.String(), "%d", &taken); err != nil || lines != taken {
			t.Errorf("%s: the receipt has %d lines, %v; taken were %d", name, lines, err, taken)
		}
		if name == "cut" && lines < n-20 {
			t.Errorf("%d of %d messages came before the cut, and %d were taken", n-20, n, lines)
		}
		s.Close()
		<-served
		r.Close()
	}
}
