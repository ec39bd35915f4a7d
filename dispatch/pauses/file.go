package pauses

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"

	"example.org/mta/internal/smallfile"
	"example.org/mta/operator/api"
)

// copyPath is where the second copy of the file is.
func (p *Pauses) copyPath() string { return p.path + ".copy" }

// write makes a list durable, twice.
func (p *Pauses) write(list []api.Pause) error {
	text, err := smallfile.Marshal(api.PauseList{Pauses: list})
	for _, path := range []string{p.path, p.copyPath()} {
		if err == nil {
			err = smallfile.Replace(path, 0o640, func(w io.Writer) error {
				_, err := w.Write(text)
				return err
			})
		}
	}
	return err
}

// read reads the file, or else its second copy. If neither is what was written, everything is paused until an operator
// has looked: mail that leaves does not come back. A file that is damaged is set aside.
func (p *Pauses) read() ([]api.Pause, error) {
	list, text, err := readFile(p.path)
	if errors.Is(err, fs.ErrPermission) {
		return nil, err
	}
	second, copied, copyErr := readFile(p.copyPath())
	gone, noCopy := errors.Is(err, fs.ErrNotExist), errors.Is(copyErr, fs.ErrNotExist)
	var then string
	var more []any
	switch {
	case err == nil && bytes.Equal(text, copied):
		return list, nil
	case err == nil && copyErr != nil && !noCopy:
		aside, moved := smallfile.SetAside(p.copyPath(), p.now())
		p.log.Error("the second copy of the pauses was damaged, and is made anew", "file", p.copyPath(), "kept", aside,
			"error", copyErr)
		return list, errors.Join(moved, p.write(list))
	case err == nil: // a program without sums wrote it, or the copy is missing or behind
		return list, p.write(list)
	case gone && noCopy:
		return nil, nil
	case copyErr == nil:
		list, then = second, "their second copy is in their place"
	default:
		const remedy = "pause again what you had paused, then run: mta resume everything"
		list = []api.Pause{{What: api.PauseEverything, By: "the relay", Since: p.now(),
			Reason: "the pauses were damaged: " + remedy}}
		then, more = "everything is paused", []any{"copy", copyErr, "remedy", remedy}
	}
	aside, moved := smallfile.SetAside(p.path, p.now())
	if moved != nil {
		return nil, moved
	}
	p.log.Error("the pauses were damaged, or are gone: "+then,
		append([]any{"file", p.path, "kept", aside, "error", err}, more...)...)
	return list, p.write(list)
}

// readFile reads the pauses of a file, and its text.
func readFile(path string) (list []api.Pause, text []byte, err error) {
	if text, err = os.ReadFile(path); err != nil {
		return nil, nil, err
	}
	var all api.PauseList
	if _, err = smallfile.Unmarshal(text, &all); err == nil && all.Pauses == nil {
		err = errors.New("it has no list")
	}
	return all.Pauses, text, err
}
