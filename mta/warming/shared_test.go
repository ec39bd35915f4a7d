package warming

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
)

const sharedIP = "192.0.2.20"

// common is a ledger of all nodes.
type common struct{ *warmup.Memory }

func newCommon() common {
	return common{warmup.NewMemory(func() warmup.Instant { return warmup.Instant(time.Now().UnixMilli()) })}
}

func (common) Close() error { return nil }

// member is a relay with a data directory, in a cluster or not.
type member struct {
	*Warming
	t      *testing.T
	events []string
}

func open(t *testing.T, dir string, ledger Ledger, node string) *member {
	t.Helper()
	cfg, err := config.Parse(fmt.Appendf(nil, `data_dir = %q
		source "acme-1" { address = %q }
		pool "default" {
			overflow = "hold"
			dedicated "acme-1" { plan = "standard" }
		}`, dir, sharedIP), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	m, pol := &member{t: t}, wiring.New(cfg)
	m.Warming, err = Open(cfg, Config{Shared: ledger, Node: node, Copies: noCopies{}, Now: time.Now,
		Policy:  func() *wiring.Policy { return pol },
		Records: func(r *accounting.Record) { m.events = append(m.events, r.Response.Text) },
		Count:   func(string, string) {}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// lastCopies keeps what was saved last.
type lastCopies map[string][]byte

func (l lastCopies) Save(values map[string][]byte) error { maps.Copy(l, values); return nil }
func (l lastCopies) Load() (map[string][]byte, error)    { return l, nil }

// unreadable is a ledger whose records can't be read.
type unreadable struct{ Ledger }

func (unreadable) Damage() error                         { return nil }
func (unreadable) Begun() bool                           { return false }
func (unreadable) Each(func(string, []byte) error) error { return errors.New("no") }

// The second copy of a shared warm-up counts its day as sent, and a relay whose own warm-ups can't be read doesn't
// start, which would begin them anew.
func TestCopiesOfASharedWarmup(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := open(t, t.TempDir(), newCommon(), "1")
		copies := make(lastCopies)
		m.copies.store = copies
		m.pass(2 * time.Second)
		m.Close()
		s, err := warmup.Restored(copies[sharedIP], 0)
		if err != nil {
			t.Fatal(err)
		}
		plan, _ := warmup.Preset("standard")
		if s.Advance(plan, s.Now+1000); s.Total.Day != s.Caps.Daily {
			t.Errorf("%d of %d count as sent", s.Total.Day, s.Caps.Daily)
		}
		own, err := OpenBolt(t.TempDir() + "/warmup.db")
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		if _, err := openCopies(nil, unreadable{own}, noCopies{}, true, time.Now, slog.New(slog.DiscardHandler)); err == nil {
			t.Error("own warm-ups that can't be read are forgotten")
		}
	})
}

// noCopies keeps no copies.
type noCopies struct{}

func (noCopies) Save(map[string][]byte) error     { return nil }
func (noCopies) Load() (map[string][]byte, error) { return nil, nil }

// pass lets the relay work for a while.
func (m *member) pass(d time.Duration) {
	for ; d > 0; d -= time.Second {
		m.ctl.Step(m.t.Context())
		time.Sleep(time.Second)
	}
}

// sends offers mail for a while, and returns how much has left.
func (m *member) sends(d time.Duration) (sent int64) {
	for ; d > 0; d -= time.Second {
		n, _ := m.ctl.Allowance(sharedIP, warmup.Ask{Provider: "big", Recipients: 5})
		if n > 0 && m.ctl.Begin(sharedIP, "big", n) {
			sent += n
		}
		m.pass(time.Second)
	}
	return sent
}

func (m *member) setStage(n int) {
	m.t.Helper()
	done := make(chan error)
	go func() { done <- m.Do(context.Background(), sharedIP, warmup.SetStage(n)) }()
	time.Sleep(time.Second)
	m.pass(time.Second)
	if err := <-done; err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) is(stage int, sent int64) {
	m.t.Helper()
	if s, _ := m.Status(sharedIP); s.Stage != stage || s.SentDay != sent {
		m.t.Errorf("stage %d with %d sent today (%s), want %d and %d", s.Stage, s.SentDay, s.State, stage, sent)
	}
}

// A relay brings its warm-up into a cluster, shares it there, and goes on with it when it leaves.
func TestAWarmupOfACluster(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		all := newCommon()
		first, second := t.TempDir(), t.TempDir()
		m := open(t, first, nil, "")
		m.pass(2 * time.Second)
		m.setStage(3)
		sent := m.sends(10 * time.Minute)
		if sent == 0 {
			t.Fatal("nothing was sent")
		}
		m.is(3, sent)
		m.Close()

		m = open(t, first, all, "1")
		m.pass(2 * time.Second)
		s, _ := m.Status(sharedIP)
		m.is(3, s.HourlyLimit) // the rest of the hour counts as sent
		sent = s.SentDay
		if n := m.sends(10 * time.Minute); n > 0 {
			t.Errorf("%d were sent in the hour in which it has joined", n)
		}
		if got := strings.Join(m.events, "; "); got != "goes on at stage 3 in the cluster" || m.Trouble() != "" {
			t.Errorf("it reports %q, and its trouble is %q", got, m.Trouble())
		}
		other := open(t, second, all, "2")
		time.Sleep(time.Hour)
		sent += other.sends(10 * time.Minute)
		other.setStage(4)
		m.pass(6 * time.Second)
		m.is(4, sent)
		other.is(4, sent)
		if got := fmt.Sprint(m.events[1:], other.events); strings.Count(got, "by an operator") != 1 {
			t.Errorf("they report %s", got)
		}
		m.Close()
		other.Close()

		m = open(t, first, nil, "")
		m.pass(2 * time.Second)
		s, _ = m.Status(sharedIP)
		m.is(4, s.StageLimit)
		if n := m.sends(10 * time.Minute); n > 0 || m.Trouble() != "" {
			t.Errorf("%d were sent on the day on which it has left; its trouble is %q", n, m.Trouble())
		}
		time.Sleep(time.Until(s.DayEnds))
		if n := m.sends(time.Hour); n == 0 {
			t.Error("nothing is sent the day after")
		}
		m.Close()

		// The database was made anew: what the second relay knew counts, and its day is used up.
		other = open(t, second, newCommon(), "2")
		other.pass(2 * time.Second)
		s, _ = other.Status(sharedIP)
		other.is(4, s.StageLimit)
		other.Close()
	})
}

// Without its database a relay of a cluster sends nothing from its warming source, and doesn't fall back on its file.
func TestAWarmupWithoutItsCluster(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		all := newCommon()
		dir := t.TempDir()
		m := open(t, dir, nil, "")
		m.sends(time.Minute)
		m.Close()
		all.SetDown(true)
		m = open(t, dir, all, "1")
		if n := m.sends(time.Minute); n > 0 || !strings.Contains(m.Trouble(), "its ledger can't be reached") {
			t.Errorf("%d were sent; its trouble is %q", n, m.Trouble())
		}
		all.SetDown(false)
		time.Sleep(2 * time.Hour)
		if n := m.sends(time.Minute); n == 0 || m.Trouble() != "" {
			t.Errorf("%d were sent; its trouble is %q", n, m.Trouble())
		}
		m.Close()
	})
}
