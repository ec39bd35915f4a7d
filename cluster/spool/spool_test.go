package spool_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.org/mta/cluster/spool"
	"example.org/mta/cluster/spool/spooltest"
	"example.org/mta/internal/bubble"
	"example.org/mta/queue/vfs/shipping"
)

func TestTheEngineInMemoryKeepsTheRules(t *testing.T) {
	spooltest.Run(t, func(*testing.T) spooltest.World {
		m := new(spooltest.Memory)
		return spooltest.World{Sealer: m, Editor: m}
	})
}

func open(t *testing.T) (*spooltest.Memory, *spool.Log) {
	t.Helper()
	m := new(spooltest.Memory)
	l, err := spool.Open(t.Context(), m, spool.Claim{Node: 1, Next: 1})
	if err != nil {
		t.Fatal(err)
	}
	return m, l
}

var errOutage = errors.New("no answer")

// TestAppendGoesOn: it is repeated until it is done, with pauses that grow to a second, also after unknown outcomes.
func TestAppendGoesOn(t *testing.T) {
	for _, after := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			m, l := open(t)
			began, fails := time.Now(), 8
			m.Outage = func(is bool) error {
				if is == after && fails > 0 {
					fails--
					return errOutage
				} else if is && !errors.Is(l.Fault(), errOutage) {
					t.Errorf("the fault is %v", l.Fault())
				}
				return nil
			}
			err := l.Append(t.Context(), 1, nil, []byte{})
			if took := time.Since(began); err != nil || l.Fault() != nil || took != (50+100+200+400+800+3*1000)*time.Millisecond {
				t.Errorf("%v, %v, after %v", err, l.Fault(), took)
			}
			m.Outage = nil
			if logs, err := m.Logs(t.Context()); err != nil || logs[0].Last != 1 || logs[0].Empty {
				t.Errorf("%+v, %v", logs, err)
			}
		})
	}
}

func TestAppendEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m, l := open(t)
		m.Outage = func(bool) error { return errOutage }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := l.Append(ctx, 1, nil, nil)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errOutage) || time.Since(began) != time.Minute ||
			!strings.HasPrefix(err.Error(), "log 1 of node 1's queue: entry 1: ") {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// few is an engine that gives an entry at a time.
type few struct{ *spooltest.Memory }

func (f few) ReadLog(ctx context.Context, log, from uint64, _ int) ([]spool.Head, error) {
	return f.Memory.ReadLog(ctx, log, from, 1)
}

func TestALogIsReadToItsEnd(t *testing.T) {
	m, l := open(t)
	for n := range uint64(5) {
		if err := l.Append(t.Context(), n+1, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	l, err := spool.Open(t.Context(), few{m}, spool.Claim{Node: 1, Log: l.Opened().Log, Session: 1, Next: 2})
	if err != nil {
		t.Fatal(err)
	}
	if image, err := l.Read(t.Context()); err != nil || image.Entry() != 5 {
		t.Errorf("it is not read to entry 5: %v", err)
	}
}

// TestALostSession: the engine has an earlier session than this process was given.
func TestALostSession(t *testing.T) {
	lost := &spool.Taken{Node: 1, Log: 2, Session: 9, Entry: 3, Is: spool.Answer{Session: 8, Last: 5}}
	if !lost.Lost() || !strings.Contains(lost.Error(), "the database has lost writes: log 2 of node 1's queue ends at entry 5") {
		t.Error(lost)
	}
	lost.Entry = 0
	if !lost.Lost() || !strings.Contains(lost.Error(), "it lacks the newest session of log 2") {
		t.Error(lost)
	}
}

func TestAnEntryHasLimits(t *testing.T) {
	m, l := open(t)
	for _, size := range [][2]int{{shipping.MaxChanges + 1, 0}, {0, shipping.MaxData + 1}} {
		if err := l.Append(t.Context(), 1, make([]byte, size[0]), make([]byte, size[1])); err == nil {
			t.Error("no error")
		}
	}
	if logs, err := m.Logs(t.Context()); err != nil || logs[0].Last != 0 {
		t.Errorf("%+v, %v", logs, err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), shipping.MaxData/16)
	if err := l.Append(t.Context(), 1, bytes.Repeat([]byte{1, 2, 3, 4}, shipping.MaxChanges/4), data); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Data(t.Context(), 1); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d octets, %v", len(got), err)
	}
}
