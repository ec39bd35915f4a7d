package sidestore

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// CopyOf returns the content of an open file as one transaction sees it, and its size in octets. It is copied beside
// the file first, under no name, since a transaction that waits for a slow reader would keep the file from growing.
func CopyOf(db *bolt.DB) (_ io.ReadCloser, size int64, err error) {
	f, err := os.CreateTemp(filepath.Dir(db.Path()), ".copy-*")
	if err != nil {
		return nil, 0, err
	}
	err = errors.Join(os.Remove(f.Name()), db.View(func(tx *bolt.Tx) (err error) {
		size, err = tx.WriteTo(f)
		return err
	}))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}
