package postfix_test

import (
	"os"
	"strings"
	"testing"

	"example.org/mta/importer/postfix"
)

// TestExpansion: each value is what 'postconf -x' of Postfix 3.7 prints for it.
func TestExpansion(t *testing.T) {
	for raw, want := range map[string]string{
		"${set?x:y}":                      "x:y",
		"m${empty?x:y}":                   "m",
		"${set?{x}:{y}}":                  "x",
		"${empty?{x}:{y}}":                "y",
		"${empty:none}":                   "none",
		"$(set)-$set.z":                   "a-a.z",
		"m$$set":                          "m$set",
		"${{$set} == {a} ? {yes} : {no}}": "yes",
		"${{10} > {9} ? {num} : {str}}":   "num",
		"${set?{x}:y}":                    "x",
		"${{3.6} <level {3.10} ? {low} : {high}}": "low",
		"m$unknown": "m",
	} {
		dir := t.TempDir()
		main := "set = a\nempty =\nsmtp_tls_security_level = may\nsmtp_tls_CAfile = /" + raw
		for name, text := range map[string]string{"main.cf": main, "master.cf": master} {
			if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := postfix.Import(dir)
		if err != nil || !strings.Contains(string(got.Bytes()), " = \"/"+want+"\"") {
			t.Errorf("%s: %v, want %s in\n%s", raw, err, want, got.Bytes())
		}
	}
}
