package queue

import (
	"bufio"
	"errors"
	"fmt"
	"slices"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
)

// Draft takes the content of a message that is being accepted. It is for one goroutine. Either
// Commit or Abort must be called; Abort after Commit does nothing.
type Draft struct {
	q    *Queue
	body []byte
	size int64
	err  error // sticky: of an earlier write, or that it is over
	file *largeFile
	// promised is the octets of the disk that are reserved for it, of which some are written.
	promised, written int64
	owner             fair.Party
	// standings are those of the recipients of a message that comes from another queue; nil: it is new.
	standings []Standing

	// For the writer.
	msg *envelope.Message
	*scratch
	offset   int64  // where the record was written
	joint    *joint // with the others of its batch; nil: it is committed alone
	position int    // in its request
}

// largeFile is a content that outgrew memory.
type largeFile struct {
	d      *Draft
	number uint64
	f      vfs.File
	w      *bufio.Writer
	crc    uint32
	off    int64
}

// Write makes largeFile an io.Writer under w.
func (l *largeFile) Write(p []byte) (int, error) {
	n, err := l.f.WriteAt(p, l.off)
	l.off += int64(n)
	l.d.wrote(int64(n))
	return n, err
}

var errOver = errors.New("queue: draft was committed or aborted")

// scratch is what a Commit needs for a moment and another can use again.
type scratch struct {
	head []byte     // prelude and envelope
	done chan error // the writer's answer
}

func newScratch() any { return &scratch{head: make([]byte, 0, 1024), done: make(chan error, 1)} }

const leastBody = 1 << 10

// Begin starts the acceptance of a message.
func (q *Queue) Begin() *Draft { return &Draft{q: q} }

// Write adds to the content. Up to Config.LargeBody it stays in memory, beyond it goes to a file
// of its own. After an error all further ones fail.
func (d *Draft) Write(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	if d.file == nil && d.size+int64(len(p)) > d.q.cfg.LargeBody {
		if d.err = d.spill(); d.err != nil {
			return 0, d.err
		}
	}
	if d.file != nil {
		if d.err = d.grow(len(p)); d.err != nil {
			return 0, d.err
		}
		n, err := d.file.w.Write(p)
		d.file.crc = store.Checksum(d.file.crc, p[:n])
		d.size += int64(n)
		if err != nil {
			d.err = store.StorageError("writing a large content", err)
		}
		return n, d.err
	}
	if len(d.body)+len(p) > cap(d.body) {
		d.Grow(max(len(p), cap(d.body)/2))
	}
	d.body = append(d.body, p...)
	d.size += int64(len(p))
	return len(p), nil
}

// Grow makes memory for n octets more, which are about to be written.
func (d *Draft) Grow(n int) {
	if d.err == nil && d.file == nil && d.size+int64(n) <= d.q.cfg.LargeBody {
		d.body = slices.Grow(d.body, max(n, leastBody))
	}
}

// spill moves the content from memory to a file.
func (d *Draft) spill() error {
	if err := d.grow(len(d.body)); err != nil {
		return err
	}
	n := d.q.largeSeq.Add(1)
	f, err := d.q.dir.FS.Create(d.q.dir.LargePath(n))
	if err != nil {
		return store.StorageError("creating the file of a large content", err)
	}
	d.file = &largeFile{d: d, number: n, f: f}
	d.file.w = bufio.NewWriterSize(d.file, 64<<10)
	d.file.crc = store.Checksum(0, d.body)
	if _, err := d.file.w.Write(d.body); err != nil {
		return store.StorageError("writing a large content", err)
	}
	d.body = nil
	return nil
}

// grow sees to it that n octets more are promised than wait to be written.
func (d *Draft) grow(n int) error {
	need := int64(n) - (d.promised - d.written)
	if d.file != nil {
		need += int64(d.file.w.Buffered())
	}
	if need <= 0 {
		return nil
	}
	if step := promiseStep * d.q.cfg.LargeBody; need < step && d.promise(step) == nil {
		return nil
	}
	return d.promise(need)
}

// Abort gives the draft up.
func (d *Draft) Abort() {
	if d.err == errOver {
		return
	}
	d.err = errOver
	d.body = nil
	d.giveBack()
	d.dropFile()
}

func (d *Draft) dropFile() {
	if d.file == nil {
		return
	}
	d.file.f.Close()
	if err := d.q.dir.FS.Remove(d.q.dir.LargePath(d.file.number)); err != nil {
		d.q.failures.Leftover.Failed(store.FailureClass(err), "file", d.q.dir.LargePath(d.file.number), "error", err)
	} else {
		d.q.failures.Leftover.Well()
	}
	d.file = nil
}

// Commit accepts the message: when it returns nil, envelope and content are on stable storage
// and will be handed out by Next. It sets m.ID and m.Size, and m.Received when that is zero; m
// must be left alone from then on. After any error the message is not accepted and the client
// must be told to come again (4xx); see errors.Is and ErrDiskFull, ErrStorage, ErrClosed.
func (d *Draft) Commit(m *envelope.Message) error {
	if d.err != nil {
		err := d.err
		d.Abort()
		return err
	}
	err := d.prepare(m)
	if err == nil && d.file != nil {
		err = d.q.syncLarge()
	}
	if err == nil {
		if d.q.w.accept(d) {
			err = <-d.done
		} else {
			err = ErrClosed
		}
	}
	if err != nil {
		m.ID = 0
		d.undo()
		return err
	}
	d.finish()
	return nil
}

// finish ends a draft whose message was accepted.
func (d *Draft) finish() {
	d.giveBack()
	d.release()
	d.err, d.body, d.file = errOver, nil, nil
}

// undo ends a draft whose message was not accepted.
func (d *Draft) undo() {
	if d.q.keepVoid(d) {
		d.file = nil
	}
	d.release()
	d.Abort()
}

// release gives the scratch back.
func (d *Draft) release() {
	if d.scratch != nil {
		d.q.scratch.Put(d.scratch)
		d.scratch = nil
	}
}

// keepVoid keeps the content's file of a message that was not accepted while the journal can't be written:
// the record may be there after a crash, since nothing durable says that it is void, and then its
// content must be too. It reports false when there is no such record.
func (q *Queue) keepVoid(d *Draft) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.health.stalled == nil || d.file == nil || d.offset == 0 {
		return false
	}
	q.files.void = append(q.files.void, d.file.number)
	q.count.largeOctets += d.size
	return true
}

// prepare makes all that can be made without the writer.
func (d *Draft) prepare(m *envelope.Message) error {
	if n := len(m.Recipients); n == 0 || n > store.MaxRecipients {
		return fmt.Errorf("queue: message has %d recipients: want 1 to %d", n, store.MaxRecipients)
	}
	if err := d.roomToCommit(); err != nil {
		return err
	}
	m.Size = d.size
	if m.Received.IsZero() {
		m.Received = d.q.now()
	}
	p := store.Prelude{Form: d.q.form(), Rcpts: uint16(len(m.Recipients)), BodyLen: d.size}
	if d.file != nil {
		if err := d.finishFile(); err != nil {
			return err
		}
		p.Large, p.BodyCRC = d.file.number, d.file.crc
	}
	d.msg, d.scratch = m, d.q.scratch.Get().(*scratch)
	b := append(d.head[:0], make([]byte, store.PreludeSize)...)
	b = store.AppendEnvelope(b, p.Form, m)
	p.EnvLen = uint32(len(b) - store.PreludeSize)
	p.EnvCRC = store.Checksum(0, b[store.PreludeSize:])
	if d.standings != nil {
		var err error
		if b, err = d.appendStandings(b, &p); err != nil {
			return err
		}
	}
	p.Put(b)
	d.head = b
	return nil
}

// roomToCommit returns an ErrDiskFull when there is no room for the record. A content in its own file has
// its room already.
func (d *Draft) roomToCommit() error {
	if d.file != nil {
		return d.q.room(0)
	}
	return d.q.room(d.size)
}

// finishFile makes the content's own file durable; its name is syncLarge's.
func (d *Draft) finishFile() error {
	err := d.file.w.Flush()
	if err == nil {
		err = d.file.f.Sync()
	}
	if cerr := d.file.f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return store.StorageError("syncing a large content", err)
	}
	return nil
}

// syncLarge makes the names of finished files durable.
func (q *Queue) syncLarge() error {
	if err := q.dir.FS.SyncDir(q.dir.Path(store.LargeDir)); err != nil {
		return store.StorageError("syncing the folder of large contents", err)
	}
	return nil
}
