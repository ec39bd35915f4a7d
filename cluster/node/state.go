package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"example.org/mta/cluster/owner"
	"example.org/mta/internal/smallfile"
)

// state is what a node keeps on its disk.
type state struct {
	Node        uint16 // 0: an earlier program wrote it, or Create
	Name        string // likewise: ""
	Incarnation uint64
	Process     uint64
	// Seen is the database's clock at this node's newest reading of the members, in seconds since 1970. The row of
	// the node gets it when it is here: a file with less is an older copy. 0: an earlier program wrote it.
	Seen   float64
	Memory owner.Memory
}

// Create makes the file of a node that has just joined under an incarnation, in a data directory that has none.
func Create(path string, incarnation uint64) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("%s exists: this data directory has joined a cluster", path))
	}
	return (&state{Incarnation: incarnation}).write(path)
}

func (s *state) write(path string) error { return smallfile.WriteObject(path, 0o600, s) }

// begin reads the file for a new process and raises its number, and notes whose file it is. Without the file nobody
// knows which numbers have been used: the node joins again, under a later incarnation.
func begin(path string, node uint16, name string, seen float64) (s state, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		_, err = smallfile.Unmarshal(text, &s)
	}
	if err == nil && s.Incarnation == 0 {
		err = errors.New("it has no incarnation")
	}
	if err != nil {
		return s, fmt.Errorf("what this node keeps of its cluster, %s: %w; the node must join again", path, err)
	}
	s.Node, s.Name, s.Seen = node, name, max(s.Seen, seen)
	s.Process++
	return s, s.write(path)
}
