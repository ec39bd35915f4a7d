package file

import (
	"encoding/binary"
	"hash/crc32"

	"go.etcd.io/bbolt"
)

var copiesBucket = []byte("copies-1")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SaveCopies keeps values under their names, in place of what was there.
func (s *Store) SaveCopies(values map[string][]byte) (err error) {
	defer guard(&err)()
	return s.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(copiesBucket)
		if err != nil {
			return err
		}
		for name, v := range values {
			sum := crc32.Update(crc32.Checksum([]byte(name), castagnoli), castagnoli, v)
			if err := b.Put([]byte(name), append(binary.BigEndian.AppendUint32(nil, sum), v...)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Copies gives the values that are kept; those that are not what was saved are left out.
func (s *Store) Copies() (values map[string][]byte, err error) {
	defer guard(&err)()
	values = make(map[string][]byte)
	err = s.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(copiesBucket)
		if b == nil {
			return nil
		}
		return b.ForEach(func(name, v []byte) error {
			if len(v) > 4 && binary.BigEndian.Uint32(v) == crc32.Update(crc32.Checksum(name, castagnoli), castagnoli, v[4:]) {
				values[string(name)] = append([]byte(nil), v[4:]...)
			}
			return nil
		})
	})
	return values, err
}
