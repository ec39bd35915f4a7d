package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/mta/mta/importer"
)

// imported runs the end of an import of a draft.
func imported(t *testing.T, im importing, change func(*importer.Draft)) (out, errs string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	im.c = &cli{out: &stdout, err: &stderr, env: func(string) string { return "" }}
	d := importer.New("A test.")
	change(d)
	err = im.finish(d)
	return stdout.String(), stderr.String(), err
}

func lose(d *importer.Draft) {
	d.Lost(importer.Origin{File: "old", Line: 3, Directive: "max-x 1/h"}, "no such rate", true)
}

func TestALostLimitFailsUntilItIsAccepted(t *testing.T) {
	out, errs, err := imported(t, importing{}, lose)
	if err != exitError(exitFailed) || !strings.Contains(out, "# old:3 max-x 1/h: not carried, and it protects: no such rate") {
		t.Errorf("%v, printed:\n%s", err, out)
	}
	if !strings.Contains(errs, "old:3  max-x 1/h  no       yes       no such rate\n") || !strings.Contains(errs, "0 directives carried, 0 with a note, 1 not carried\n") || !strings.Contains(errs, "--accept") {
		t.Errorf("summary:\n%s", errs)
	}
	if _, errs, err = imported(t, importing{accept: true}, lose); err != nil || strings.Contains(errs, "--accept") {
		t.Errorf("accepted: %v\n%s", err, errs)
	}
}

func TestAFaultOfTheImportIsReportedAsSuch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mta.conf")
	_, errs, err := imported(t, importing{out: path}, func(d *importer.Draft) { d.Set("no_such_setting", 1, importer.Origin{}) })
	if err == nil || !strings.Contains(hintOf(err), "please report it") || !strings.Contains(errs, "no_such_setting") {
		t.Errorf("%v: %s", err, errs)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a configuration with faults was written: %v", err)
	}
}

func TestAnImportReplacesOnlyItsOwnFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mta.conf")
	for range 2 {
		if _, _, err := imported(t, importing{out: path}, func(*importer.Draft) {}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, []byte("presets = false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := imported(t, importing{out: path}, func(*importer.Draft) {}); err == nil || !strings.Contains(err.Error(), "not from an earlier import") {
		t.Errorf("somebody's file was replaced: %v", err)
	}
}

func TestImportAsJSON(t *testing.T) {
	out, _, err := imported(t, importing{asJSON: true, accept: true}, lose)
	var got struct {
		Lost   int `json:"not_carried"`
		Notes  []importer.Note
		Config string
	}
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Lost != 1 || len(got.Notes) != 1 || !strings.HasPrefix(got.Config, importMark) {
		t.Errorf("%v: %s", err, out)
	}
}
