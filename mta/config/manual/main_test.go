package main

import (
	"bytes"
	"testing"
)

func TestThePageIsGenerated(t *testing.T) {
	old, text, err := generate("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(old, text) {
		t.Errorf("%s is not what the comments in mta/config say; run: make generate", page)
	}
}
