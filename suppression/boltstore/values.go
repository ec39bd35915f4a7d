package boltstore

import (
	"bytes"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"

	"example.org/mta/suppression/feed"
)

// Values are values by name.
type Values struct {
	db     *bolt.DB
	bucket []byte
}

var _ feed.Values = (*Values)(nil)

// Put implements feed.Values. It is one transaction and one sync.
func (v *Values) Put(values map[string][]byte) error {
	return v.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(v.bucket)
		for _, name := range slices.Sorted(maps.Keys(values)) { // neighbours go into one page: in order they are written once
			value := values[name]
			if value == nil {
				if err := b.Delete([]byte(name)); err != nil {
					return err
				}
			} else if err := b.Put([]byte(name), value); err != nil {
				return err
			}
		}
		return nil
	})
}

// Each implements feed.Values.
func (v *Values) Each(each func(name string, value []byte) error) error {
	for at := []byte(nil); ; {
		n := 0
		err := v.db.View(func(tx *bolt.Tx) error {
			c := tx.Bucket(v.bucket).Cursor()
			k, value := c.Seek(at)
			if at != nil && bytes.Equal(k, at) {
				k, value = c.Next()
			}
			for ; k != nil && n < scanStep; k, value = c.Next() {
				if err := each(string(k), value); err != nil {
					return err
				}
				at, n = bytes.Clone(k), n+1
			}
			return nil
		})
		if err != nil || n < scanStep {
			return err
		}
	}
}
