package sendmail

import (
	"bytes"
	"io"
	"os"
)

// spool holds a body while it is read: in memory, and when it grows in a file that has no name
// any more and so goes with the program.
type spool struct {
	size   int64
	memory bytes.Buffer
	file   *os.File
}

func (s *spool) write(p []byte) error {
	s.size += int64(len(p))
	if s.file == nil && s.memory.Len()+len(p) <= maxMemory {
		s.memory.Write(p)
		return nil
	}
	if s.file == nil {
		if err := s.spill(); err != nil {
			return exitf(ExOSErr, "keeping the message while it is read: %w", err)
		}
	}
	if s.memory.Len() >= maxMemory {
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.memory.Write(p)
	return nil
}

func (s *spool) spill() error {
	f, err := os.CreateTemp("", "sendmail-")
	if err != nil {
		return err
	}
	s.file = f
	return os.Remove(f.Name())
}

func (s *spool) flush() error {
	if _, err := s.memory.WriteTo(s.file); err != nil {
		return exitf(ExOSErr, "keeping the message while it is read: %w", err)
	}
	return nil
}

// reader gives what was written, from its beginning.
func (s *spool) reader() (io.Reader, error) {
	if s.file == nil {
		return bytes.NewReader(s.memory.Bytes()), nil
	}
	if err := s.flush(); err != nil {
		return nil, err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, exitf(ExOSErr, "reading the message again: %w", err)
	}
	return s.file, nil
}

func (s *spool) close() {
	if s.file != nil {
		s.file.Close()
	}
}
