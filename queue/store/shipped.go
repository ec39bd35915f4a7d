package store

import (
	"path"
	"strings"

	"example.org/mta/internal/format"
	"example.org/mta/queue/vfs/shipping"
)

// Shipped are the names of a queue's directory as a log of it has them. Indexes are made from their segments, and the
// statement of the format is its own: others write it.
func Shipped() shipping.Names {
	return shipping.Names{
		Dirs: []string{".", LargeDir, DamagedDir},
		Local: func(name string) bool {
			ext := path.Ext(name)
			return name == LockName || ext == IndexSuffix || ext == tmpSuffix ||
				strings.HasPrefix(name, format.FileName)
		},
		Void: func(name string) bool { return path.Ext(name) == SpareSuffix },
	}
}
