package queue

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"example.org/mta/queue/store"
)

// Snapshot is the files of an open queue as they were at one instant: every message that was accepted before it, and
// every outcome that was durable. Mail is taken and delivered meanwhile. Until it is closed, the queue deletes no file,
// and so grows. When that leaves too little of the disk for mail, the snapshot is lost: mail comes first.
type Snapshot struct {
	At    time.Time
	Files []SnapshotFile
	// Messages is how many had living recipients, and Recipients how many those were.
	Messages, Recipients int

	q    *Queue
	lost atomic.Bool
}

// ErrSnapshotLost is returned for a snapshot that took too much of the disk.
var ErrSnapshotLost = errors.New(
	"queue: the disk is nearly full, and mail needs the space that the snapshot keeps: try again when there is more")

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
	if q.fullForSnapshots() {
		return nil, ErrSnapshotLost
	}
	s := &Snapshot{q: q}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return nil, ErrClosed
	}
	q.files.snapshots[s] = struct{}{}
	s.At, s.Recipients = q.now(), q.s.Len()
	for seg := range q.segs.All {
		if !seg.Gone && seg.Size > 0 {
			s.Files = append(s.Files, SnapshotFile{store.SegmentBase(seg.ID) + store.SegmentSuffix, seg.Size})
			s.Messages += seg.Messages
		}
	}
	q.mu.Unlock()
	large, err := q.dir.FS.List(q.dir.Path(store.LargeDir))
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("queue: reading directory: %w", err)
	}
	for _, f := range large { // with those of messages that are coming in, which a start removes
		if _, ok := store.ParseLargeName(f.Name); ok {
			s.Files = append(s.Files, SnapshotFile{store.LargeDir + "/" + f.Name, f.Size})
		}
	}
	slices.SortFunc(s.Files, func(a, b SnapshotFile) int { return strings.Compare(a.Name, b.Name) })
	return s, nil
}

// fullForSnapshots reports whether so little of the disk is free that the queue must delete what it can.
func (q *Queue) fullForSnapshots() bool { return q.keep(2*q.cfg.MinFree, q.cfg.SegmentSize) != nil }

// loseSnapshots gives up all snapshots if the disk is nearly full.
func (q *Queue) loseSnapshots() {
	q.mu.Lock()
	none := len(q.files.snapshots) == 0
	q.mu.Unlock()
	if none || !q.fullForSnapshots() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := range q.files.snapshots {
		s.lost.Store(true)
	}
	clear(q.files.snapshots)
}

// Open opens a file of the snapshot. Its error is fs.ErrNotExist for the file of a content that no message of the
// snapshot names any more: its removal had begun before, or its draft was given up.
func (s *Snapshot) Open(f SnapshotFile) (io.ReadCloser, error) {
	file, err := s.q.dir.FS.Open(s.q.dir.Path(filepath.FromSlash(f.Name)))
	if s.lost.Load() { // then a file that is not there says nothing
		if err == nil {
			file.Close()
		}
		return nil, ErrSnapshotLost
	}
	if err != nil {
		return nil, err
	}
	return &snapshotReader{s, io.NewSectionReader(file, 0, f.Size), file}, nil
}

// snapshotReader reads a file of a snapshot. That of a lost one can be another file by now.
type snapshotReader struct {
	s    *Snapshot
	from io.Reader
	io.Closer
}

func (r *snapshotReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.s.lost.Load() {
		return 0, ErrSnapshotLost
	}
	return n, err
}

// Close lets the queue delete files again.
func (s *Snapshot) Close() {
	s.q.mu.Lock()
	delete(s.q.files.snapshots, s)
	s.q.mu.Unlock()
	s.q.nudge(s.q.kick.janitor)
}
