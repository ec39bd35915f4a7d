package router

import "testing"

func TestPatterns(t *testing.T) {
	var p patterns[string]
	for _, pattern := range []string{"example.com", "*.example.com", "*.mail.example.com", "www.example.com", "*", "[192.0.2.1]"} {
		checked, err := CheckPattern(pattern)
		if err != nil || !p.add(checked, pattern) {
			t.Fatalf("%s: %s, %v", pattern, checked, err)
		}
	}
	for name, want := range map[string]string{
		"example.com":          "example.com",
		"www.example.com":      "www.example.com",
		"ftp.example.com":      "*.example.com",
		"a.b.example.com":      "*.example.com",
		"mail.example.com":     "*.example.com",
		"mx1.mail.example.com": "*.mail.example.com",
		"badexample.com":       "*",
		"com":                  "*",
		"[192.0.2.1]":          "[192.0.2.1]",
		"[192.0.2.2]":          "*",
	} {
		if got, ok := p.find(name); !ok || got != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, ok, want)
		}
	}
	var none patterns[string]
	if got, ok := none.find("example.com"); ok {
		t.Errorf("found %q where nothing is", got)
	}
}
