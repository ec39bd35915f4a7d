package auth

import (
	"time"

	"example.org/mta/internal/smallfile"
)

// File is a file of users or of API keys that is changed as a whole: see [smallfile.UpdateSecret].
type File struct {
	Path   string
	DryRun bool // write nothing, but return what would be done, or the error of doing it
}

// load reads a file.
func load[T any](path string, parse func(text []byte, path string) (T, error)) (t T, err error) {
	text, err := smallfile.ReadSecret(path)
	if err != nil {
		return t, err
	}
	return parse(text, path)
}

// update changes a file.
func update[T interface{ text() []byte }](
	f File, parse func(text []byte, path string) (T, error), change func(T) (T, error),
) error {
	write := smallfile.UpdateSecret
	if f.DryRun {
		write = smallfile.PreviewSecret
	}
	return write(f.Path, func(text []byte) ([]byte, error) {
		t, err := parse(text, f.Path)
		if err == nil {
			t, err = change(t)
		}
		if err != nil {
			return nil, err
		}
		return t.text(), nil
	})
}

// LoadUsers reads a users file.
func LoadUsers(path string) (*UserTable, error) { return load(path, ParseUsers) }

// LoadKeys reads a keys file.
func LoadKeys(path string) (*KeyTable, error) { return load(path, ParseKeys) }

// UpdateUsers changes a users file.
func UpdateUsers(path string, change func(*UserTable) error) error {
	return File{Path: path}.UpdateUsers(change)
}

// UpdateUsers changes the file, which is one of users.
func (f File) UpdateUsers(change func(*UserTable) error) error {
	return update(f, ParseUsers, func(t *UserTable) (*UserTable, error) { return t, change(t) })
}

// AddKey is File.AddKey without a dry run.
func AddKey(path string, k Key, now time.Time) (token string, added *Key, err error) {
	return File{Path: path}.AddKey(k, now)
}
