package store

import (
	"errors"
	"slices"

	"example.org/mta/queue/vfs"
)

// OnDisk returns the format in which the newest segment of a queue was begun: the newest that the program knows which
// has written there last. It is 0 if there is no segment that can be read.
func OnDisk(root string) (int, error) {
	d := NewDir(root, vfs.OS(), nil)
	defer d.Files.Close()
	list, _, err := d.files()
	if err != nil && !IsNotExist(err) {
		return 0, err
	}
	for _, f := range slices.Backward(list) {
		rec, err := d.ReadRecord(Place{ID: f.ID, Size: NoteGuess})
		if damage := (*DamageError)(nil); errors.As(err, &damage) && damage.Disk {
			return 0, err
		}
		if err == nil && rec.Kind == KindOpened && len(rec.Payload) > 0 {
			return int(rec.Payload[0]), nil
		}
	}
	return 0, nil
}
