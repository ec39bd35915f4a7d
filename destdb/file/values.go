package file

import (
	"encoding/binary"
	"hash/crc32"

	"go.etcd.io/bbolt"
)

// Values is a part of the file that keeps small values by name, each with a checksum.
type Values struct {
	store  *Store
	bucket []byte
}

// The parts of the file. The number goes up when old values can't be read any more.
const (
	WarmupCopies = "copies-1"  // second copies of warm-up states, by IP address
	STSPolicies  = "mta-sts-1" // MTA-STS policies, by domain
	TLSReports   = "tlsrpt-1"  // what is counted for TLS reports, by day and domain
)

// Values gives a part of the file.
func (s *Store) Values(part string) Values { return Values{s, []byte(part)} }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(name string, value []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(name), castagnoli), castagnoli, value)
}

// Save keeps values under their names, in place of what was there; nil removes.
func (v Values) Save(values map[string][]byte) (err error) {
	defer guard(&err)()
	return v.store.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(v.bucket)
		if err != nil {
			return err
		}
		for name, value := range values {
			if value == nil {
				err = b.Delete([]byte(name))
			} else {
				err = b.Put([]byte(name), append(binary.BigEndian.AppendUint32(nil, checksum(name, value)), value...))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Load gives all values. Those that are not what was saved are left out.
func (v Values) Load() (values map[string][]byte, err error) {
	defer guard(&err)()
	values = make(map[string][]byte)
	err = v.store.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(v.bucket)
		if b == nil {
			return nil
		}
		return b.ForEach(func(name, kept []byte) error {
			if len(kept) > 4 && binary.BigEndian.Uint32(kept) == checksum(string(name), kept[4:]) {
				values[string(name)] = append([]byte(nil), kept[4:]...)
			}
			return nil
		})
	})
	return values, err
}
