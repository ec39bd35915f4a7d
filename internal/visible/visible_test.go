package visible

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestJSONMeansTheSame(t *testing.T) {
	for in, want := range map[string]string{
		"plain":              `"plain"`,
		"grün 邮件 👍":          `"grün 邮件 👍"`,
		"csi \u009b31m":      `"csi \u009b31m"`,
		"nel\u0085":          `"nel\u0085"`,
		"del\x7f":            `"del\u007f"`,
		"bidi \u202egnp.exe": `"bidi \u202egnp.exe"`,
		"isolate \u2066x":    `"isolate \u2066x"`,
		"zero\u200bwidth":    `"zero\u200bwidth"`,
		"tag \U000e0001":     `"tag \udb40\udc01"`,
		"bom\ufeff":          `"bom\ufeff"`,
	} {
		var out bytes.Buffer
		e := json.NewEncoder(Writer(&out))
		e.SetEscapeHTML(false)
		if err := e.Encode(in); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != want+"\n" {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
		var back string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != in {
			t.Errorf("%q comes back as %q, %v", in, back, err)
		}
	}
}
