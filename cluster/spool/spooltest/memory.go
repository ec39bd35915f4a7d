// Package spooltest has an engine of logs in memory, and the tests that every engine of logs passes.
package spooltest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"example.org/mta/cluster/spool"
)

// Memory is an engine of logs. It is safe for concurrent use.
type Memory struct {
	// Outage has a call fail: before it is carried out, or after that, and so with an unknown outcome. It may be nil.
	Outage func(after bool) error

	mu    sync.Mutex
	logs  []*memoryLog
	beats float64
}

type memoryLog struct {
	spool.Status
	entries []spool.Entry // in order
}

var _ spool.Sealer = (*Memory)(nil)

// Damage implements Editor.
func (m *Memory) Damage(log, entry uint64, data bool) error {
	return m.edit(log, func(l *memoryLog) {
		e := &l.entries[l.at(entry)]
		text := &e.Changes
		if data {
			text = &e.Data
		}
		*text = slices.Clone(*text)
		(*text)[len(*text)-1] ^= 1
	})
}

// Lose implements Editor.
func (m *Memory) Lose(log, last uint64) error {
	return m.edit(log, func(l *memoryLog) {
		l.entries = slices.DeleteFunc(l.entries, func(e spool.Entry) bool { return e.Number > last })
		l.Last = last
	})
}

func (m *Memory) edit(log uint64, f func(*memoryLog)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.log(log)
	if l == nil {
		return errors.New("there is no such log")
	}
	f(l)
	return nil
}

func (m *Memory) log(log uint64) *memoryLog {
	if log == 0 || log > uint64(len(m.logs)) {
		return nil
	}
	return m.logs[log-1]
}

func (m *Memory) beat(l *memoryLog) {
	m.beats++
	l.Beat = m.beats
}

// at is the index of an entry, -1 if it is not there.
func (l *memoryLog) at(entry uint64) int {
	return slices.IndexFunc(l.entries, func(e spool.Entry) bool { return e.Number == entry })
}

// image is the number of the newest entry that begins with one, 0 without.
func (l *memoryLog) image() (n uint64) {
	for _, e := range l.entries {
		if e.Image {
			n = e.Number
		}
	}
	return n
}

// call carries out f, unless there is an outage.
func (m *Memory) call(f func()) error {
	if m.Outage != nil {
		if err := m.Outage(false); err != nil {
			return err
		}
	}
	m.mu.Lock()
	f()
	m.mu.Unlock()
	if m.Outage != nil {
		return m.Outage(true)
	}
	return nil
}

// change carries out a change of a log that f says is right, and answers.
func (m *Memory) change(log uint64, f func(*memoryLog) bool) (a spool.Answer, err error) {
	err = m.call(func() {
		if l := m.log(log); l != nil {
			a.Done = f(l)
			a.Session, a.Last, a.Sealed = l.Session, l.Last, l.Sealed
		}
	})
	return a, err
}

// OpenLog implements spool.Engine.
func (m *Memory) OpenLog(_ context.Context, c spool.Claim) (o spool.Opened, err error) {
	err = m.call(func() {
		at := slices.IndexFunc(m.logs, func(l *memoryLog) bool { return l.Node == c.Node && l.Sealed == 0 })
		switch {
		case at >= 0:
			is := m.logs[at].Session
			o.Done = is == c.Next || m.logs[at].Log == c.Log && is == c.Session
		case c.Log != 0 && m.log(c.Log) == nil:
			o.Log = c.Log
			return
		case c.Log != 0:
			at = int(c.Log) - 1
		default:
			at, o.Done = len(m.logs), true
			m.logs = append(m.logs, &memoryLog{Status: spool.Status{Log: uint64(at) + 1, Node: c.Node}})
		}
		l := m.logs[at]
		if o.Done {
			l.Session, l.Zone = c.Next, c.Zone
			m.beat(l)
		}
		o.Log, o.Session, o.Last, o.Sealed = l.Log, l.Session, l.Last, l.Sealed
	})
	return o, err
}

// AppendEntry implements spool.Engine.
func (m *Memory) AppendEntry(_ context.Context, e spool.Entry) (spool.Answer, error) {
	return m.change(e.Log, func(l *memoryLog) bool {
		if l.Session != e.Session {
			return false
		}
		if l.Last == e.Number {
			at := l.at(e.Number)
			return at >= 0 && l.entries[at].Session == e.Session && l.entries[at].Hash == e.Hash
		}
		if l.Last+1 != e.Number {
			return false
		}
		l.entries, l.Last = append(l.entries, e), e.Number
		m.beat(l)
		return true
	})
}

// ReadLog implements spool.Engine.
func (m *Memory) ReadLog(_ context.Context, log, from uint64, most int) (heads []spool.Head, err error) {
	err = m.call(func() {
		l := m.log(log)
		if l == nil {
			return
		}
		if from == 0 {
			from = l.image()
		}
		octets := 0
		for _, e := range l.entries {
			if e.Number >= from && octets < most {
				heads = append(heads, spool.Head{Number: e.Number, Image: e.Image, Changes: e.Changes})
				octets += len(e.Changes)
			}
		}
	})
	return heads, err
}

// EntryData implements spool.Engine.
func (m *Memory) EntryData(_ context.Context, log, entry uint64) (data []byte, err error) {
	err = m.call(func() {
		if l := m.log(log); l != nil && l.at(entry) >= 0 {
			data = l.entries[l.at(entry)].Data
		}
	})
	return data, err
}

// DropEntries implements spool.Engine.
func (m *Memory) DropEntries(_ context.Context, log, session, image uint64, kept []uint64) (spool.Answer, error) {
	return m.change(log, func(l *memoryLog) bool {
		if l.Session != session {
			return false
		}
		if at := l.at(image); at >= 0 && l.entries[at].Image {
			l.entries = slices.DeleteFunc(l.entries, func(e spool.Entry) bool {
				return e.Number < image && !slices.Contains(kept, e.Number)
			})
		}
		return true
	})
}

// TakeLog implements spool.Sealer.
func (m *Memory) TakeLog(_ context.Context, t spool.Take) (spool.Answer, error) {
	return m.change(t.Log, func(l *memoryLog) bool {
		if l.Session != t.Next && (l.Session != t.Session || l.Last != t.Last || l.Ended) {
			return false
		}
		l.Ended = l.Ended || t.Ends
		l.Session, l.Sealed, l.Incarnation = t.Next, t.By, cmp.Or(l.Incarnation, t.Incarnation)
		m.beat(l)
		return true
	})
}

// Logs implements spool.Sealer.
func (m *Memory) Logs(context.Context) (all []spool.Status, err error) {
	err = m.call(func() {
		for _, l := range m.logs {
			s := l.Status
			s.Empty = len(l.entries) == 0
			all = append(all, s)
		}
	})
	return all, err
}

// ClearLog implements spool.Sealer.
func (m *Memory) ClearLog(_ context.Context, log uint64, by uint16) error {
	_, err := m.change(log, func(l *memoryLog) bool {
		if l.Sealed == by {
			l.entries = nil
		}
		return true
	})
	return err
}
