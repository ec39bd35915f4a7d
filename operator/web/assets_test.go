package web

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"
)

// The libraries are those of the npm registry, octet by octet: htmx.org 4.0.1 and uplot 1.6.32.
var sums = map[string]string{
	"htmx.min.js":       "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
	"htmx.LICENSE":      "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
	"uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
	"uPlot.min.css":     "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
	"uPlot.LICENSE":     "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}

func TestLibrariesAreThePublishedOnes(t *testing.T) {
	for name, want := range sums {
		text, err := os.ReadFile("assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s: %x, want %s", name, sum, want)
		}
	}
}
