package boltstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
)

// Damage returns what was wrong with the file when it was opened, and where it is kept; nil when nothing
// was. Its records are lost, all or those that it names.
func (s *Store) Damage() error { return s.damage }

// Begun reports whether there was no file, so that a new one was made.
func (s *Store) Begun() bool { return s.begun }

// aside names the place for a damaged file. What was set aside before stays there.
func (s *Store) aside(path string) string {
	return path + ".damaged-" + s.opened.UTC().Format("20060102T150405.000")
}

// setAside makes room for a new file.
func (s *Store) setAside(path string, why error) error {
	aside := s.aside(path)
	s.damage = fmt.Errorf("%s was damaged: %w; it is kept as %s", path, why, aside)
	return os.Rename(path, aside)
}

// dropDamaged takes out the records that are not what was written, after the file was copied.
func (s *Store) dropDamaged(path string, records *bolt.Bucket) error {
	var bad [][]byte
	err := records.ForEach(func(k, v []byte) error {
		if !sealed(v) {
			bad = append(bad, k)
		}
		return nil
	})
	if err != nil || len(bad) == 0 {
		return err
	}
	aside := s.aside(path)
	if err := copyFile(aside, path); err != nil {
		return err
	}
	s.damage = fmt.Errorf("%d records of %s were damaged, that of %s first; the file is kept as %s", len(bad), path, bad[0], aside)
	for _, k := range bad {
		if err := records.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// guard makes an error of a panic, and of a fault: bbolt maps the file, and one that was cut while it is
// open has less than its pages say. bbolt may hold its locks then, so the file is left alone from there on.
func (s *Store) guard(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			s.broken = fmt.Errorf("the warm-up store's file was damaged while it was open, restart the relay: %v", p)
			*err = s.broken
		}
	}
}
