package users

import "example.org/mta/internal/secretfile"

// Load reads a users file.
func Load(path string) (*Table, error) {
	text, err := secretfile.Read(path)
	if err != nil {
		return nil, err
	}
	return Parse(text, path)
}

// Update changes a users file as a whole: see [secretfile.Update].
func Update(path string, change func(*Table) error) error {
	return secretfile.Update(path, changing(path, change))
}

// Preview has a change made and writes nothing: see [secretfile.Preview].
func Preview(path string, change func(*Table) error) error {
	return secretfile.Preview(path, changing(path, change))
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
