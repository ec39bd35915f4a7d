package sidestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	bolt "go.etcd.io/bbolt"

	"example.org/mta/internal/format"
)

// sumsBucket has a bucket of sums for each bucket of entries, by the same keys. It comes first in the file, so that a
// number of buckets that has become smaller drops entries before their sums.
var sumsBucket = []byte("!sums")

// keptKey has the number of the last transaction that kept the sums, and the sum of that.
var keptKey = []byte("\x00kept")

const sumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendSum appends the sum of an entry.
func appendSum(b, key, value []byte) []byte {
	sum := crc32.Update(crc32.Update(uint32(len(key)), castagnoli, key), castagnoli, value)
	return binary.BigEndian.AppendUint32(b, sum)
}

// kept is the value of keptKey in a transaction.
func kept(tx *bolt.Tx) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+sumSize), uint64(tx.ID()))
	return appendSum(b, keptKey, b)
}

// check returns an error unless a value is what was stored under a key.
func check(key, value, sum []byte) error {
	var buffer [sumSize]byte
	if value == nil || !bytes.Equal(appendSum(buffer[:0], key, value), sum) {
		return fmt.Errorf("the entry %.60q is damaged", key)
	}
	return nil
}

// isSealed reports whether the sums are of the entries as they are. They are not in a file that another program wrote.
func isSealed(tx *bolt.Tx) (bool, error) {
	names, sealed := 0, false
	c := tx.Cursor()
	for name, value := c.First(); name != nil; name, value = c.Next() {
		if names++; value != nil {
			return false, fmt.Errorf("%q is not a bucket", name)
		}
	}
	if names == 0 && tx.ID() > 1 { // the first transaction makes buckets
		return false, errors.New("it has no buckets")
	}
	if sums := tx.Bucket(sumsBucket); sums != nil {
		if last := sums.Get(keptKey); last != nil {
			if len(last) != 8+sumSize || check(keptKey, last[:8], last[8:]) != nil {
				return false, errors.New("the number of its last transaction is damaged")
			}
			sealed = bytes.Equal(last, kept(tx))
		}
	}
	return sealed, nil
}

// verify compares all entries with their sums, and calls sound with those that are as they were stored. It returns how
// many are not.
func (f *File) verify(tx *bolt.Tx, sealed bool,
	sound func(bucket string, key, value []byte) error) (bad int, err error) {
	names := make(map[string]bool)
	each := func(name, value []byte) error {
		if value == nil && !bytes.Equal(name, sumsBucket) {
			names[string(name)] = true
		}
		return nil
	}
	if err := tx.ForEach(func(name []byte, _ *bolt.Bucket) error { return each(name, nil) }); err != nil {
		return 0, err
	}
	if sealed {
		if err := tx.Bucket(sumsBucket).ForEach(each); err != nil {
			return 0, err
		}
	}
	for name := range names {
		var sums *bolt.Bucket
		if sealed {
			sums = tx.Bucket(sumsBucket).Bucket([]byte(name))
		}
		n, err := f.verifyBucket(name, sealed, tx.Bucket([]byte(name)), sums, sound)
		if bad += n; err != nil {
			return bad, err
		}
	}
	return bad, nil
}

// verifyBucket is verify for a bucket, which may be nil, as its sums may.
func (f *File) verifyBucket(name string, sealed bool, entries, sums *bolt.Bucket,
	sound func(bucket string, key, value []byte) error) (bad int, err error) {
	e, s := cursor(entries), cursor(sums)
	key, value := e(true)
	of, sum := s(true)
	for key != nil || of != nil {
		order := bytes.Compare(key, of)
		switch {
		case key == nil || of != nil && order > 0: // an entry is gone
			bad++
			of, sum = s(false)
			continue
		case !sealed:
			if f.entryError(name, key, value) != nil {
				bad++
			} else {
				err = sound(name, key, value)
			}
		case of == nil || order < 0 || check(key, value, sum) != nil:
			bad++
		default:
			err = sound(name, key, value)
		}
		if err != nil {
			return bad, err
		}
		if of != nil && order == 0 {
			of, sum = s(false)
		}
		key, value = e(false)
	}
	return bad, nil
}

// cursor steps through a bucket, from its first entry on.
func cursor(b *bolt.Bucket) func(first bool) (key, value []byte) {
	if b == nil {
		return func(bool) (key, value []byte) { return nil, nil }
	}
	c := b.Cursor()
	return func(first bool) (key, value []byte) {
		if first {
			return c.First()
		}
		return c.Next()
	}
}

// entryError returns why an entry without a sum is damaged. One of a newer program is for its reader to refuse.
func (f *File) entryError(bucket string, key, value []byte) error {
	if value == nil {
		return errors.New("it is not an entry")
	}
	if f.Sound == nil {
		return nil
	}
	if err := f.Sound(bucket, key, value); !errors.Is(err, format.ErrRefused) {
		return err
	}
	return nil
}
