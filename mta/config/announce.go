package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"example.org/mta/internal/settings"
)

// announcement is the name of the file in which a relay says where it is.
const announcement = "relay.json"

// WellKnown are the directories in which commands look for a running relay when its configuration
// doesn't say where it is, or can't be read: the first that has a relay's announcement counts.
func WellKnown() []string { return []string{"/run/mta", "/var/lib/mta"} }

// Announce writes down in a directory where a relay is, for users who can't read its configuration.
// Everybody may read the file: it has no secrets. Relative paths are made absolute.
func Announce(dir string, w Whereabouts) error {
	for _, path := range []*string{&w.DataDir, &w.Socket, &w.Accounting} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	text, err := json.MarshalIndent(w, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+announcement+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, announcement))
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// Announced reads what Announce wrote.
func Announced(dir string) (w Whereabouts, err error) {
	text, err := settings.ReadFile(filepath.Join(dir, announcement))
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal(text, &w); err != nil {
		return w, fmt.Errorf("%s in %s: %w", announcement, dir, err)
	}
	return w, nil
}
