package queue

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Snapshot is the files of an open queue as they were at one instant: every message that was accepted before it, and
// every outcome that was durable. Mail is taken and delivered meanwhile. Until it is closed, the queue deletes no file,
// and so grows.
type Snapshot struct {
	At    time.Time
	Files []SnapshotFile
	// Messages is how many had living recipients, and Recipients how many those were.
	Messages, Recipients int

	q *Queue
}

// SnapshotFile is a file of a snapshot, or its beginning: what follows was written later.
type SnapshotFile struct {
	Name string // within the queue's directory, with slashes
	Size int64
}

// Snapshot takes one. It writes what waits to be written, and then holds the queue's lock for a moment that grows with
// the number of segments alone.
func (q *Queue) Snapshot() (*Snapshot, error) {
	if err := q.w.flush(); err != nil {
		return nil, fmt.Errorf("queue: writing what waits: %w", err)
	}
	s := &Snapshot{q: q}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return nil, ErrClosed
	}
	q.snapshots++
	s.At, s.Recipients = q.now(), q.table.Len()
	for seg := range q.segs.all {
		if !seg.gone && seg.size > 0 {
			s.Files = append(s.Files, SnapshotFile{segmentBase(seg.id) + segmentSuffix, seg.size})
			s.Messages += seg.messages
		}
	}
	q.mu.Unlock()
	large, err := q.fs.List(q.path(largeDir))
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("queue: reading directory: %w", err)
	}
	for _, f := range large { // with those of messages that are coming in, which a start removes
		if _, ok := parseLargeName(f.Name); ok {
			s.Files = append(s.Files, SnapshotFile{largeDir + "/" + f.Name, f.Size})
		}
	}
	slices.SortFunc(s.Files, func(a, b SnapshotFile) int { return strings.Compare(a.Name, b.Name) })
	return s, nil
}

// Open opens a file of the snapshot. Its error is fs.ErrNotExist for the file of a content that no message of the
// snapshot names any more: its removal had begun before, or its draft was given up.
func (s *Snapshot) Open(f SnapshotFile) (io.ReadCloser, error) {
	file, err := s.q.fs.Open(s.q.path(filepath.FromSlash(f.Name)))
	if err != nil {
		return nil, err
	}
	return snapshotReader{io.NewSectionReader(file, 0, f.Size), file}, nil
}

type snapshotReader struct {
	io.Reader
	io.Closer
}

// Close lets the queue delete files again.
func (s *Snapshot) Close() {
	s.q.mu.Lock()
	s.q.snapshots--
	s.q.mu.Unlock()
	s.q.nudge(s.q.kick.janitor)
}
