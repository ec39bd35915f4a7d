// Package smallfiletest damages small files, for tests.
package smallfiletest

import (
	"os"
	"testing"
)

// Flip changes a bit in the middle of a file.
func Flip(t testing.TB, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(path, text, 0o640); err != nil {
		t.Fatal(err)
	}
}
