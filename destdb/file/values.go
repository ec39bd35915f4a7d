package file

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"example.org/mta/internal/sidestore"
)

// Values is a part of the file that keeps small values by name, each with a checksum.
type Values struct {
	store  *Store
	bucket string
}

// The parts of the file. The number goes up when old values can't be read any more.
const (
	WarmupCopies = "copies-1"  // second copies of warm-up states, by IP address
	STSPolicies  = "mta-sts-1" // MTA-STS policies, by domain
	TLSReports   = "tlsrpt-1"  // what is counted for TLS reports, by day and domain
)

// Values gives a part of the file.
func (s *Store) Values(part string) Values { return Values{s, part} }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(name string, value []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(name), castagnoli), castagnoli, value)
}

// open returns the value in what is kept under a name, which has a checksum before it.
func open(name string, kept []byte) ([]byte, error) {
	if len(kept) <= 4 || binary.BigEndian.Uint32(kept) != checksum(name, kept[4:]) {
		return nil, fmt.Errorf("the value of %q is damaged", name)
	}
	return kept[4:], nil
}

// Save keeps values under their names, in place of what was there; nil removes.
func (v Values) Save(values map[string][]byte) error {
	changes := make([]sidestore.Change, 0, len(values))
	for name, value := range values {
		c := sidestore.Change{Bucket: v.bucket, Key: []byte(name)}
		if value != nil {
			c.Value = append(binary.BigEndian.AppendUint32(nil, checksum(name, value)), value...)
		}
		changes = append(changes, c)
	}
	return v.store.file.Apply(changes)
}

// Load gives all values. Those that are not what was saved are left out.
func (v Values) Load() (values map[string][]byte, err error) {
	values = make(map[string][]byte)
	return values, v.store.file.Each(v.bucket, nil, func(name, kept []byte) error {
		if value, err := open(string(name), kept); err == nil {
			values[string(name)] = value
		}
		return nil
	})
}
