package service

import (
	"os"
	"path/filepath"
)

// SameMount reports whether two directories are in one mount. For a directory that does not exist yet, the one above
// it counts. Where that isn't known, they are not.
func SameMount(a, b string) bool {
	if abs, err := filepath.Abs(a); err == nil {
		a = abs
	}
	for a != "/" {
		if _, err := os.Stat(a); err == nil {
			break
		}
		a = filepath.Dir(a)
	}
	of, ok1 := mountID(a)
	root, ok2 := mountID(b)
	return ok1 && ok2 && of == root
}
