package store

import (
	"path"

	"example.org/mta/queue/vfs/shipping"
)

// Shipped are the names of a queue's directory as a log of it has them. Indexes are made from their segments.
func Shipped() shipping.Names {
	return shipping.Names{
		Dirs: []string{".", LargeDir, DamagedDir},
		Local: func(name string) bool {
			ext := path.Ext(name)
			return name == LockName || ext == IndexSuffix || ext == tmpSuffix
		},
		Void: func(name string) bool { return path.Ext(name) == SpareSuffix },
	}
}
