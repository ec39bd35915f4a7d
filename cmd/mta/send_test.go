package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What mta send prints of an answer, and its exit status.
func TestSendPrintsTheAnswer(t *testing.T) {
	status, answer := 202, ""
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if req.Header.Get("Authorization") != "Bearer mta_secret" || string(body) != `{"a":1}` || req.Header.Get("Idempotency-Key") != `"order"` {
			t.Errorf("asked with %v and %s", req.Header, body)
		}
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}))
	defer relay.Close()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("mta_secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status int
		answer string
		flags  []string
		code   int
		out    string
		err    string
	}{
		{202, `{"messages":[{"id":"7","status":"accepted","recipients":[{"address":"a@b.example","status":"accepted"}]}]}`, nil, 0,
			"ID  RECIPIENT    STATUS\n7   a@b.example  accepted\n", ""},
		{202, `{"messages":[{"id":"7","status":"accepted","recipients":[{"address":"a@b.example","status":"refused","code":"5.7.1","detail":"suppressed"}]}]}`, nil, 1,
			"ID  RECIPIENT    STATUS\n7   a@b.example  refused  5.7.1 suppressed\n", ""},
		{202, `{"messages":[{"id":"7","status":"scheduled","recipients":[]}]}`, []string{"--print-json"}, 0, "\"status\": \"scheduled\"", ""},
		{200, `{"messages":[{"status":"dry_run","recipients":[{"address":"a@b.example","status":"accepted"}],"content":"Subject: x\r\n\r\n"}]}`, nil, 0, "Subject: x", ""},
		{400, `{"title":"The request is not valid","detail":"nothing was accepted","faults":[{"pointer":"/to","detail":"none","remedy":"add one"}]}`, nil, 1,
			"", "mta: 400 The request is not valid: nothing was accepted\nmta:   /to: none (add one)\n"},
		{503, `{"detail":"the disk is full"}`, nil, 1, "", `send it again with the Idempotency-Key "order"`},
	} {
		status, answer = c.status, c.answer
		var out, stderr bytes.Buffer
		cli := &cli{in: strings.NewReader(`{"a":1}`), out: &out, err: &stderr, env: func(string) string { return "" }, now: time.Now}
		code := run(cli, append([]string{"mta", "send", "--json", "-", "--url", relay.URL, "--key-file", key, "--idempotency-key", "order", "--patience", "0s"}, c.flags...))
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(stderr.String(), c.err) {
			t.Errorf("%d %s: exit %d\n%s\n%s", c.status, c.answer, code, out.String(), stderr.String())
		}
	}
}
