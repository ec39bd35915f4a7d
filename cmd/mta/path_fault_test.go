package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestPathFaults: what the system says of a path is not what an operator reads.
func TestPathFaults(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(path string, err error) error {
		return fmt.Errorf("reading the plan: %w", &fs.PathError{Op: "open", Path: path, Err: err})
	}
	for _, tc := range []struct {
		err          error
		text, remedy string
	}{
		{at(dir+"/none", syscall.ENOENT), "reading the plan: " + dir + "/none does not exist", "check the path"},
		{at(dir+"/none/of/plan", syscall.ENOENT), "reading the plan: " + dir + "/none/of/plan does not exist: there is no directory " + dir + "/none", "check the path, or make the directory"},
		{at("none", syscall.ENOENT), "reading the plan: none does not exist", "check the path"},
		{at(dir, syscall.EISDIR), "reading the plan: " + dir + " is a directory", "give a file"},
		{at(file+"/a/b", syscall.ENOTDIR), "reading the plan: " + file + " is not a directory", "give the path of a directory"},
		{at(file, syscall.ENOTDIR), "reading the plan: " + file + " is not a directory", "give the path of a directory"},
		{at(file, syscall.EACCES), "reading the plan: " + whoAmI() + " may not use " + file, "run the command as root or as the relay's user, or change the rights of the path"},
		{fmt.Errorf("%s: %w", file, at(file, syscall.EIO)), file + ": reading the plan: open " + file + ": input/output error", ""},
		{fmt.Errorf("%s: %w", file, &fs.PathError{Op: "read", Path: file, Err: syscall.EISDIR}), file + " is a directory", "give a file"},
		{fmt.Errorf("%w: make it first", at("none", syscall.ENOENT)), "reading the plan: none does not exist: make it first", ""},
		{fmt.Errorf("reading queue %s: %w", file, &fs.PathError{Op: "stat", Path: file, Err: syscall.ENOTDIR}), "reading queue " + file + ": " + file + " is not a directory", "give the path of a directory"},
		{errors.New("another"), "another", ""},
	} {
		if text, remedy := inPlain(tc.err); text != tc.text || remedy != tc.remedy {
			t.Errorf("%v:\n%q, %q, want\n%q, %q", tc.err, text, remedy, tc.text, tc.remedy)
		}
	}
}
