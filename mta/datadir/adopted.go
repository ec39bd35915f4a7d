package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/internal/smallfile"
)

// Adopted is how far another node of the cluster has taken what a dead node's data directory has. It is a file there,
// and no relay starts on the directory.
type Adopted struct {
	By    int       // the number of that node
	Began time.Time // when it first took something
	Ended time.Time // zero: something may be left
}

const adoptedFile = "adopted"

// ReadAdopted reads the file of a data directory; without one it is zero.
func ReadAdopted(dir string) (a Adopted, err error) {
	text, err := os.ReadFile(filepath.Join(dir, adoptedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err == nil {
		_, err = smallfile.Unmarshal(text, &a)
	}
	if err == nil && a.By == 0 {
		err = errors.New("it names no node")
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", filepath.Join(dir, adoptedFile), err)
	}
	return a, err
}

// Write writes the file into a data directory, durably.
func (a Adopted) Write(dir string) error {
	return smallfile.WriteObject(filepath.Join(dir, adoptedFile), 0o600, &a)
}

const anew = "start this relay with an empty data directory"

// notAdopted refuses a data directory whose mail other nodes have, or some of it, also when that can't be known. What
// keeps the file from being read, such as too many open files, may be over at the next start.
func notAdopted(dir string) error {
	a, err := ReadAdopted(dir)
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return err
	} else if err != nil {
		return refused(fmt.Sprintf("%v: other nodes may have the mail of this directory: %s", err, anew))
	}
	return a.refuses(dir)
}

// StillOwn is an error that is format.ErrRefused when the data directory of a relay that runs was adopted, or its node
// was forgotten for the reason ousted.
func StillOwn(dir string, ousted error) error {
	if a, err := ReadAdopted(dir); err == nil && a.By != 0 {
		return a.refuses(dir)
	}
	if ousted != nil {
		return refused(ousted.Error())
	}
	return nil
}

func (a Adopted) refuses(dir string) error {
	switch {
	case a.By == 0:
		return nil
	case a.Ended.IsZero():
		return refused(fmt.Sprintf("node %d adopts the mail of %s: end that with 'mta cluster adopt' there, and %s",
			a.By, dir, anew))
	}
	return refused(fmt.Sprintf("the mail of %s was adopted by node %d on %s: %s", dir, a.By,
		a.Ended.UTC().Format(time.DateOnly), anew))
}

// refused is an error that is format.ErrRefused.
type refused string

func (r refused) Error() string        { return string(r) }
func (r refused) Is(target error) bool { return target == format.ErrRefused }
