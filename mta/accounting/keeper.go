package accounting

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/linelog"
)

// keeper looks after the files of a log: it indexes and compresses them, and deletes those that are too old. It
// has its own goroutine, so that none of this delays a record.
type keeper struct {
	w       *Writer
	changed chan struct{} // has room for one: there is something to look after
	stop    chan struct{}
	ended   chan struct{}

	mu     sync.Mutex // guards the four below
	newest *indexer   // of the newest file; nil before the first record
	needed func() (Position, bool)
	// indexed has the sections of finished files whose index is good: 48 octets for 256k records.
	indexed map[int64][]section
	// known are the files that are there or should be, oldest first: a reader misses those that somebody deletes.
	known []linelog.File

	told time.Time // when the log last heard of trouble
}

const (
	// indexEvery is how often the newest file's index is brought up to date.
	indexEvery = 200 * time.Millisecond
	// houseEvery is how often the files are looked after.
	houseEvery = 10 * time.Minute
)

func newKeeper(w *Writer) *keeper {
	return &keeper{w: w, changed: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
		indexed: make(map[int64][]section)}
}

func (k *keeper) run() {
	defer close(k.ended)
	written, stop := k.w.Watch()
	defer stop()
	house := time.NewTicker(houseEvery)
	defer house.Stop()
	last := k.w.Synced().File
	k.house()
	for {
		select {
		case <-written:
			if !k.rest(indexEvery) {
				return
			}
			k.follow()
			if file := k.w.Synced().File; file != last {
				last = file
				k.house()
			}
		case <-k.changed:
			k.house()
		case <-house.C:
			k.house()
		case <-k.stop:
			return
		}
	}
}

// rest waits, and reports false if the keeper is to end.
func (k *keeper) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-k.stop:
		return false
	}
}

// follow brings the index of the newest file up to date.
func (k *keeper) follow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.catchUp(); err != nil {
		k.complain("the accounting log can't be indexed; finding a message takes longer", err)
	}
}

// catchUp indexes what was written since the last time. The caller has k.mu.
func (k *keeper) catchUp() error {
	synced := k.w.Synced()
	if synced.File <= 0 {
		return nil
	}
	if k.newest == nil || k.newest.file.ID() != synced.File {
		if k.newest != nil {
			if err := k.newest.finish(); err != nil {
				return err
			}
		}
		k.newest = newIndexer(k.w.dir.At(time.Unix(synced.File, 0)))
	}
	return k.newest.readTo(synced.Offset)
}

// readTo takes in the lines of the file up to an offset.
func (x *indexer) readTo(end int64) error {
	if x.to >= end {
		return nil
	}
	r := linelog.Reader{Ctx: context.Background(), Dir: logDir("")}
	_, err := r.Scan(x.file, x.to, func(line []byte, size int64) error {
		if x.to >= end {
			return linelog.ErrReached
		}
		return x.line(line, size)
	})
	if errors.Is(err, linelog.ErrReached) {
		return nil
	}
	return err
}

// close writes down what is indexed, so that the next start knows how far the newest file went.
func (k *keeper) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.catchUp(); err != nil || k.newest == nil {
		return err
	}
	return k.newest.flush()
}

// finish completes the index of a file that grows no more.
func (x *indexer) finish() error {
	size, err := x.file.Size()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted
	}
	if err != nil {
		return err
	}
	if x.to > size { // the end of the file is lost: the index is what shows that
		return nil
	}
	if err := x.readTo(size); err != nil {
		return err
	}
	x.to = size // the end of a torn line has no record
	if err := x.flush(); err != nil || x.at == 0 {
		return err
	}
	return os.Truncate(indexOf(x.file), x.at) // what follows was not sound
}

// blocksOf is as the function. It knows of the newest file what was just written, and of finished files between which
// ids theirs are.
func (k *keeper) blocksOf(f linelog.File, id envelope.ID) lookup {
	k.mu.Lock()
	defer k.mu.Unlock()
	if all, known := k.indexed[f.ID()]; known {
		r, err := blocksIn(f, all, id)
		if err == nil {
			return r
		}
		delete(k.indexed, f.ID()) // to be made again
		return blocksOf(f, id)
	}
	if f.ID() != k.w.Synced().File {
		return blocksOf(f, id)
	}
	if k.catchUp() != nil || k.newest == nil || k.newest.file.ID() != f.ID() {
		return blocksOf(f, id)
	}
	r := blocksOf(f, id)
	if r.covered == k.newest.from {
		r.blocks, r.covered = k.newest.find(id, r.blocks), k.newest.to
	}
	return r
}

// house indexes and compresses finished files, and deletes what is beyond the limits.
func (k *keeper) house() {
	l := k.w.limits()
	needed, known := k.oldestNeeded()
	if !known {
		l.Keep, l.KeepSize = 0, 0
	}
	n, err := k.w.dir.Sweep(k.w.cfg.Now(),
		linelog.Limits{Keep: l.Keep, KeepSize: l.KeepSize, Needed: needed}, indexSuffix)
	if err != nil {
		k.complain("old accounting files can't be deleted", err)
	}
	if n > 0 {
		k.w.cfg.Log.Info("old accounting files deleted", "files", n)
	}
	files, err := k.w.dir.Files()
	if err != nil {
		return // Sweep has complained
	}
	k.tidy(files)
	k.forget(files)
	for _, f := range files[:max(0, len(files)-1)] {
		began := time.Now()
		if f.ID() == k.w.Synced().File {
			break
		}
		if !k.finished(f, l.Compress) || !k.rest(2*time.Since(began)) {
			return
		}
	}
}

// finished indexes a file, if that was not done yet, and compresses it. It reports false if the keeper is to end.
func (k *keeper) finished(f linelog.File, compressed bool) bool {
	if err := k.index(f); err != nil {
		k.complain("an accounting file can't be indexed; finding a message takes longer", err)
		return true
	}
	if !compressed || f.Compressed {
		return true
	}
	err := linelog.Compress(f, k.stop)
	if errors.Is(err, linelog.ErrStopped) {
		return false
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.complain("an accounting file can't be compressed", err)
	}
	return true
}

// index has the index of a finished file made, unless it is known to be good.
func (k *keeper) index(f linelog.File) error {
	k.mu.Lock()
	_, known := k.indexed[f.ID()]
	k.mu.Unlock()
	if known {
		return nil
	}
	if from, to := lostEnd(k.w.dir, f); from < to {
		k.w.spoiled(Position{File: f.ID(), Offset: from})
	}
	all, good, err := indexed(f)
	if err == nil && !good {
		if err = newIndexer(f).finish(); err == nil {
			all, good, err = indexed(f)
		}
	}
	if err == nil && !good {
		err = errIndex
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the file was deleted
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.indexed[f.ID()] = all
	k.mu.Unlock()
	return nil
}

// files returns the known files.
func (k *keeper) files() []linelog.File {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known
}

// begun notes a new file.
func (k *keeper) begun(f linelog.File) {
	k.mu.Lock()
	k.known = append(k.known, f)
	k.mu.Unlock()
}

// forget drops the known files that have expired.
func (k *keeper) forget(files []linelog.File) {
	if len(files) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	i := 0
	for i < len(k.known) && k.known[i].Begun.Before(files[0].Begun) {
		i++
	}
	k.known = k.known[i:]
}

// tidy removes indexes of files that are gone, and what a crash has left of a compression.
func (k *keeper) tidy(files []linelog.File) {
	for _, name := range k.w.dir.Leftovers(files, indexSuffix) {
		_ = os.Remove(name)
	}
	there := make(map[int64]bool, len(files))
	for _, f := range files {
		there[f.ID()] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.indexed, func(id int64, _ []section) bool { return !there[id] })
}

// oldestNeeded is the file that somebody has yet to read, 0 for none; known is false while nobody can say that.
func (k *keeper) oldestNeeded() (file int64, known bool) {
	k.mu.Lock()
	needed := k.needed
	k.mu.Unlock()
	if needed == nil {
		return 0, !k.w.cfg.AwaitKeep
	}
	if p, ok := needed(); ok {
		return max(1, p.File), true
	}
	return 0, true
}

func (k *keeper) complain(what string, err error) {
	if now := k.w.cfg.Now(); k.told.IsZero() || now.Sub(k.told) >= complainEvery {
		k.told = now
		k.w.cfg.Log.Error(what, "error", err, "directory", k.w.cfg.Dir)
	}
}
