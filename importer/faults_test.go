package importer_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"example.org/mta/importer"
)

// Faults are listed in the order of the files, each once, and only the first of them.
func TestFaults(t *testing.T) {
	var fs importer.Faults
	if err := fs.Err(); err != nil {
		t.Errorf("no faults are %v", err)
	}
	fs.Reads("main")
	fs.Reads("part")
	for range 2 {
		fs.Add(&importer.Fault{File: "part", Line: 1, What: "c"})
		fs.Add(&importer.Fault{File: "main", Line: 9, What: "b\nmta: x"})
		fs.Add(&importer.Fault{File: "main", Line: 2, What: "a"})
		fs.Add(&importer.Fault{File: "unread", What: "d"})
	}
	if got, want := fs.Err().Error(), "main:2: a\nmain:9: b mta: x\npart:1: c\nunread: d"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestUnreadable(t *testing.T) {
	for err, want := range map[error]string{
		fs.ErrPermission: "x is closed to this user: run the command as one who may read it",
		fs.ErrNotExist:   "x does not exist: copy the file there, or correct its name",
		fs.ErrInvalid:    "x: invalid argument: copy the file there, or correct its name",
	} {
		if got := importer.Unreadable(&fs.PathError{Op: "open", Path: "x", Err: err}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got, want := importer.Unreadable(errors.New("x is not a file")), "x is not a file: copy the file there, or correct its name"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	for n, last := range map[int]string{50: "f:50: x", 51: "and 1 more fault", 120: "and 70 more faults", 1000: "and 950 more faults", 100_000: "and more than 950 more faults"} {
		var fs importer.Faults
		for i := range n {
			fs.Add(&importer.Fault{File: "f", Line: i + 1, What: "x"})
		}
		lines := strings.Split(fs.Err().Error(), "\n")
		if lines[0] != "f:1: x" || lines[49] != "f:50: x" || len(lines) != min(n, 51) || lines[len(lines)-1] != last {
			t.Errorf("%d faults: %d lines, the last is %q, want %q", n, len(lines), lines[len(lines)-1], last)
		}
	}
	var fs importer.Faults
	fs.Add(&importer.Fault{File: "f", Line: 1, What: strings.Repeat("x", 1<<20)})
	err := fs.Err()
	if fault := (*importer.Fault)(nil); len(err.Error()) > 1100 || !errors.As(err, &fault) {
		t.Errorf("a fault has %d octets", len(fmt.Sprint(err)))
	}
}
