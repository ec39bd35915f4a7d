package audit

import (
	"os"

	"example.org/mta/internal/format"
	"example.org/mta/internal/linelog"
	"example.org/mta/internal/smallfile"
)

// Format is what this program knows of the log's formats. Fields may be added to lines without a new one.
var Format = format.Store{Name: "audit log", Reads: 1, Writes: 1, Unstated: 1}

// logDir is the log in a directory.
func logDir(path string) linelog.Dir {
	return linelog.Dir{Path: path, Name: "audit", Prefix: "audit-", Longest: maxLine}
}

// file is what a Log needs of an open file.
type file interface {
	linelog.OutFile
	// Reserve takes disk from an offset on.
	Reserve(from, size int64) error
}

type opener func(path string, create bool) (file, error)

type osFile struct{ *os.File }

func (f osFile) Sync() error                    { return smallfile.Sync(f.File) }
func (f osFile) Reserve(from, size int64) error { return reserve(f.File, from, size) }

func openOS(path string, create bool) (file, error) {
	f, err := linelog.OpenOS(path, create)
	if err != nil {
		return nil, err
	}
	return osFile{f.(linelog.OSFile).File}, nil
}
