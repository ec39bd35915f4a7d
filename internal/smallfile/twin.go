package smallfile

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"
)

// Twin is a file with a second copy beside it, both written at each change.
type Twin[T any] struct {
	Path  string
	Name  string                       // what the file has, in the plural: the rules
	Parse func(text []byte) (T, error) // nil: see Unmarshal
	// Write replaces the file, then its copy.
	Write func(T) error
	// Lost returns what is in force where neither can be read, in words, too, and what an operator does about it.
	Lost func() (v T, then, remedy string)
	Now  time.Time // names what is set aside
	Log  *slog.Logger
}

// Read reads the file, or its copy where the file is damaged or gone. The damaged one is set aside, and made anew. It
// returns the zero T where there is neither. Of two that differ, as after an earlier program, the file counts. What it
// can't write is logged: the next start is in the same place.
func (t *Twin[T]) Read() (v T, err error) {
	v, text, err := t.read(t.Path)
	if errors.Is(err, fs.ErrPermission) {
		return v, err
	}
	second, copied, copyErr := t.read(t.Path + CopySuffix)
	gone, noCopy := errors.Is(err, fs.ErrNotExist), errors.Is(copyErr, fs.ErrNotExist)
	damaged, then, more := t.Path, "their second copy is in their place", []any{"error", err}
	switch {
	case err == nil && bytes.Equal(text, copied):
		return v, nil
	case err == nil && (copyErr == nil || noCopy):
		t.failed(t.Write(v))
		return v, nil
	case err == nil:
		damaged, then, more = t.Path+CopySuffix, "it was the second copy, and is made anew", []any{"error", copyErr}
	case gone && noCopy:
		return v, nil
	case copyErr == nil:
		v = second
	default:
		var remedy string
		v, then, remedy = t.Lost()
		more = append(more, "copy", copyErr, "remedy", remedy)
	}
	aside, moved := SetAside(damaged, t.Now)
	t.Log.Error(t.Name+" were damaged, or are gone: "+then, append([]any{"file", damaged, "kept", aside}, more...)...)
	t.failed(errors.Join(moved, t.Write(v)))
	return v, nil
}

func (t *Twin[T]) failed(err error) {
	if err != nil {
		t.Log.Error(t.Name+" can't be written", "file", t.Path, "error", err)
	}
}

func (t *Twin[T]) read(path string) (v T, text []byte, err error) {
	text, err = os.ReadFile(path)
	switch {
	case err != nil:
	case t.Parse != nil:
		v, err = t.Parse(text)
	default:
		_, err = Unmarshal(text, &v)
	}
	return v, text, err
}

// WriteTwin is WriteObject for a file and its second copy.
func WriteTwin(path string, mode fs.FileMode, object any) error {
	if err := WriteObject(path, mode, object); err != nil {
		return err
	}
	return WriteObject(path+CopySuffix, mode, object)
}
