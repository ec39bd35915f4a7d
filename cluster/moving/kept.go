package moving

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"example.org/mta/internal/smallfile"
)

// file has what may be at other nodes.
type file struct {
	Version int
	Batches []*pending
}

const version = 1

// read reads the file; without one nothing is on its way.
func read(path string) ([]*pending, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var f file
	if err == nil {
		_, err = smallfile.Unmarshal(text, &f)
	}
	if err == nil && f.Version != version {
		err = fmt.Errorf("its format has version %d, and this program reads %d", f.Version, version)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; it has what mail may be at other nodes: if you move it away, that mail is "+
			"delivered by this relay, too", path, err)
	}
	return f.Batches, nil
}

// Nothing returns why a relay can't run without its cluster: mail of it may be at other nodes.
func Nothing(path string) error {
	batches, err := read(path)
	n := 0
	for _, p := range batches {
		n += len(p.Parts)
	}
	if err == nil && n > 0 {
		err = fmt.Errorf("%s: other nodes may have %d messages of this queue: start the relay with its cluster "+
			"block again, until 'mta cluster status' shows none; if you move the file away instead, both deliver them",
			path, n)
	}
	return err
}

// write writes what is pending down, durably.
func (m *Mover) write() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.mu.Lock()
	if m.written {
		m.mu.Unlock()
		return nil
	}
	m.written = true
	text, err := smallfile.Marshal(&file{version, m.pending})
	m.mu.Unlock()
	if err == nil {
		err = smallfile.Write(m.cfg.Path, 0o600, text)
	}
	if err != nil {
		m.mu.Lock()
		m.written = false
		m.mu.Unlock()
		m.disk.Failed("", "file", m.cfg.Path, "error", err)
		return err
	}
	m.disk.Well()
	return nil
}
