package spool

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.org/mta/queue/vfs/shipping"
)

// Pauses between two attempts to append an entry. Each is twice as long as the one before.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// atOnce is how many octets of changes are read at a time.
const atOnce = 8 << 20

// Log is a node's, with a session of this process. It implements shipping.Log.
type Log struct {
	engine Engine
	node   uint16
	opened Opened
	coder  coder

	mu    sync.Mutex
	fault error // of the last attempt to append
}

var _ shipping.Log = (*Log)(nil)

// Open begins a session of a node's log: earlier processes of the node append no more. The error is a *Taken if the log
// is not the directory's.
func Open(ctx context.Context, e Engine, c Claim) (*Log, error) {
	o, err := e.OpenLog(ctx, c)
	if err == nil && !o.Done {
		err = &Taken{Node: c.Node, Log: o.Log, Session: c.Session, Is: o.Answer}
	}
	if err != nil {
		return nil, err
	}
	return newLog(e, c.Node, o)
}

// Go has a node go on with a log as it was found. The error is a *Taken if it has changed since.
func Go(ctx context.Context, e Sealer, s Status, t Take) (*Log, error) {
	is, err := e.TakeLog(ctx, t)
	if err == nil && !is.Done {
		err = &Taken{Node: s.Node, Log: s.Log, Session: t.Session, Is: is}
	}
	if err != nil {
		return nil, err
	}
	return newLog(e, s.Node, Opened{Log: s.Log, Answer: is})
}

// Reader reads a log without a session.
func Reader(e Engine, s Status) (*Log, error) {
	return newLog(e, s.Node, Opened{Log: s.Log, Answer: Answer{Last: s.Last}})
}

func newLog(e Engine, node uint16, o Opened) (*Log, error) {
	c, err := newCoder()
	if err != nil {
		return nil, err
	}
	return &Log{engine: e, node: node, opened: o, coder: c}, nil
}

// Opened is what Open found.
func (l *Log) Opened() Opened { return l.opened }

// Fault is why the last attempt to append an entry has failed, so that it is repeated; nil if it has not.
func (l *Log) Fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

func (l *Log) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = err
}

// Append implements shipping.Log. It repeats what fails until ctx ends. The error is a *Taken if the entry never will
// be in the log.
func (l *Log) Append(ctx context.Context, entry uint64, changes, data []byte) error {
	if len(changes) > shipping.MaxChanges || len(data) > shipping.MaxData {
		return l.of(entry, fmt.Errorf("it has %d octets of changes and %d of data: more than it may", len(changes),
			len(data)))
	}
	e := Entry{Log: l.opened.Log, Session: l.opened.Session, Number: entry, Image: shipping.HasImage(changes)}
	sized := append(binary.AppendUvarint(nil, uint64(len(data))), changes...)
	e.Changes = l.coder.store(e.Log, entry, partChanges, sized)
	e.Data = l.coder.store(e.Log, entry, partData, data)
	e.Hash = hash(e.Changes, e.Data)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		is, err := l.engine.AppendEntry(ctx, e)
		l.note(err)
		switch {
		case err == nil && is.Done:
			return nil
		case err == nil:
			return &Taken{Node: l.node, Log: e.Log, Session: e.Session, Entry: entry, Is: is}
		}
		select {
		case <-ctx.Done():
			return l.of(entry, fmt.Errorf("%w: the last attempt to append it: %w", ctx.Err(), err))
		case <-time.After(pause):
		}
	}
}

// hash is an entry's.
func hash(changes, data []byte) [sha256.Size]byte {
	of := sha256.Sum256(data)
	return sha256.Sum256(append(of[:], changes...))
}

// of has an error name an entry.
func (l *Log) of(entry uint64, err error) error {
	return fmt.Errorf("log %d of node %d's queue: entry %d: %w", l.opened.Log, l.node, entry, err)
}

// Data implements shipping.Log.
func (l *Log) Data(ctx context.Context, entry uint64) ([]byte, error) {
	text, err := l.engine.EntryData(ctx, l.opened.Log, entry)
	if err == nil && text == nil {
		err = errors.New("it is not there, and files need it")
	}
	var data []byte
	if err == nil {
		data, err = l.coder.read(l.opened.Log, entry, partData, text, shipping.MaxData)
	}
	if err != nil {
		return nil, l.of(entry, err)
	}
	return data, nil
}

// Drop implements shipping.Log.
func (l *Log) Drop(ctx context.Context, image uint64, kept []uint64) error {
	is, err := l.engine.DropEntries(ctx, l.opened.Log, l.opened.Session, image, kept)
	if err == nil && !is.Done {
		err = &Taken{Node: l.node, Log: l.opened.Log, Session: l.opened.Session, Is: is}
	}
	return err
}

// Read makes the image of what was in the log when it was opened.
func (l *Log) Read(ctx context.Context) (*shipping.Image, error) {
	m, err := shipping.Read(func(each func(uint64, []byte, int64) error) error {
		for next := uint64(0); next <= l.opened.Last; {
			heads, err := l.engine.ReadLog(ctx, l.opened.Log, next, atOnce)
			if err != nil || len(heads) == 0 {
				return err
			}
			for _, h := range heads {
				if h.Number > l.opened.Last { // it is written to
					return nil
				}
				changes, data, err := l.changes(h)
				if err != nil {
					return fmt.Errorf("entry %d: %w", h.Number, err)
				} else if err = each(h.Number, changes, data); err != nil {
					return err
				}
				next = h.Number + 1
			}
		}
		return nil
	})
	if err == nil && m.Entry() != l.opened.Last {
		err = fmt.Errorf("its last entry is %d, and entry %d is the last that is there", l.opened.Last, m.Entry())
	}
	if err != nil {
		return nil, fmt.Errorf("log %d of node %d's queue: %w", l.opened.Log, l.node, err)
	}
	return m, nil
}

// changes are an entry's, with the size of its data.
func (l *Log) changes(h Head) (changes []byte, data int64, err error) {
	text, err := l.coder.read(l.opened.Log, h.Number, partChanges, h.Changes, shipping.MaxChanges+binary.MaxVarintLen64)
	if err != nil {
		return nil, 0, err
	}
	size, n := binary.Uvarint(text)
	if n <= 0 || size > shipping.MaxData {
		return nil, 0, errDamaged
	}
	return text[n:], int64(size), nil
}
