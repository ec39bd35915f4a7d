package auth

import "example.org/mta/internal/smallfile"

// LoadUsers reads a users file.
func LoadUsers(path string) (*UserTable, error) {
	text, err := smallfile.ReadSecret(path)
	if err != nil {
		return nil, err
	}
	return ParseUsers(text, path)
}

// UpdateUsers changes a users file as a whole: see [smallfile.UpdateSecret].
func UpdateUsers(path string, change func(*UserTable) error) error {
	return smallfile.UpdateSecret(path, changingUsers(path, change))
}

// PreviewUsers has a change made and writes nothing: see [smallfile.PreviewSecret].
func PreviewUsers(path string, change func(*UserTable) error) error {
	return smallfile.PreviewSecret(path, changingUsers(path, change))
}

// changingUsers makes a change of a file's text.
func changingUsers(path string, change func(*UserTable) error) func([]byte) ([]byte, error) {
	return func(text []byte) ([]byte, error) {
		t, err := ParseUsers(text, path)
		if err == nil {
			err = change(t)
		}
		if err != nil {
			return nil, err
		}
		return t.text(), nil
	}
}
