package boltstore

import (
	"example.org/mta/internal/sidestore"
	"example.org/mta/suppression"
)

// Values are values by name.
type Values struct {
	file   *sidestore.File
	bucket string
}

var _ suppression.Values = (*Values)(nil)

// Put implements suppression.Values. It is one transaction.
func (v *Values) Put(values map[string][]byte) error {
	changes := make([]sidestore.Change, 0, len(values))
	for name, value := range values {
		changes = append(changes, sidestore.Change{Bucket: v.bucket, Key: []byte(name), Value: value})
	}
	return v.file.Apply(changes)
}

// Each implements suppression.Values.
func (v *Values) Each(each func(name string, value []byte) error) error {
	return v.file.Each(v.bucket, nil, func(k, value []byte) error { return each(string(k), value) })
}
