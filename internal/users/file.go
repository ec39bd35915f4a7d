package users

import "example.org/mta/internal/smallfile"

// Load reads a users file.
func Load(path string) (*Table, error) {
	text, err := smallfile.ReadSecret(path)
	if err != nil {
		return nil, err
	}
	return Parse(text, path)
}

// Update changes a users file as a whole: see [smallfile.UpdateSecret].
func Update(path string, change func(*Table) error) error {
	return smallfile.UpdateSecret(path, changing(path, change))
}

// Preview has a change made and writes nothing: see [smallfile.PreviewSecret].
func Preview(path string, change func(*Table) error) error {
	return smallfile.PreviewSecret(path, changing(path, change))
}

// changing makes a change of a file's text.
func changing(path string, change func(*Table) error) func([]byte) ([]byte, error) {
	return func(text []byte) ([]byte, error) {
		t, err := Parse(text, path)
		if err == nil {
			err = change(t)
		}
		if err != nil {
			return nil, err
		}
		return t.text(), nil
	}
}
