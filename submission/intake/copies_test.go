package intake

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCopiedFields(t *testing.T) {
	long := strings.Repeat("é", maxCopy)
	section := "Received: from a\r\n\tby b\r\nSUBJECT: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n =?iso-8859-1?q?_an_J=FCrgen?=\r\nSubject: second\r\n" +
		"X-Order : 17 \r\nX-Bad: =?klingon?q?abc?= \x01 \"q\" <script>\r\nX-Empty:\r\nX-Long: " + long + "\r\n\r\nX-Body: no\r\n"
	var h header
	if body := h.add([]byte(section)); string(body) != "X-Body: no\r\n" {
		t.Fatalf("body %q", body)
	}
	got := h.copies([]string{"Subject", "X-Order", "X-None", "X-Bad", "X-Empty", "X-Body", "X-Long"})
	var fields map[string]string
	if err := json.Unmarshal([]byte(got), &fields); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	want := map[string]string{"Subject": "Grüße an Jürgen", "X-Order": "17", "X-Bad": "=?klingon?q?abc?= \x01 \"q\" <script>", "X-Empty": "", "X-Long": long[:maxCopy]}
	if len(fields) != len(want) {
		t.Errorf("%d fields in %s", len(fields), got)
	}
	for name, value := range want {
		if fields[name] != value {
			t.Errorf("%s is %q, want %q", name, fields[name], value)
		}
	}
	if got := h.copies([]string{"X-None"}); got != "" {
		t.Errorf("without any: %q", got)
	}
	// All together are bounded, too.
	var many header
	var names []string
	for _, c := range "abcdefgh" {
		many.add([]byte("X-" + string(c) + ": " + strings.Repeat("x", maxCopy) + "\r\n"))
		names = append(names, "X-"+string(c))
	}
	many.end()
	if n := len(many.copies(names)); n > maxCopies+200 {
		t.Errorf("%d octets are copied", n)
	}
}
