package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/postgres"
	"example.org/mta/cluster/term"
)

// keeping is a node that owns shards by the real database. Its own clock is the test's.
type keeping struct {
	*testing.T
	*owner.Keeper
	engine *postgres.Engine
	now    time.Duration
	round  int64
	acked  [owner.Shards]int64 // the newest round of which the book is acknowledged
}

func newKeeping(t *testing.T, e *postgres.Engine, node uint16) *keeping {
	if err := e.Join(t.Context(), postgres.Member{Number: node, Incarnation: 1}); err != nil {
		t.Fatal(err)
	}
	return &keeping{T: t, engine: e, Keeper: owner.New(owner.Config{Node: node, Incarnation: 1, Boot: 1,
		Term: term.Term{Length: 3 * time.Minute, Drift: 200e-6}, Rand: rand.New(rand.NewPCG(1, uint64(node)))})}
}

// call makes a round's call, and takes its result in unless it comes after the limit.
func (k *keeping) call(limit time.Duration) error {
	k.Helper()
	k.round++
	k.now += owner.Patience
	c, ok := k.Call(k.now, func(int) []owner.Entry {
		return []owner.Entry{{Name: "round", N: [4]int64{k.round, 0, 0, 0}}}
	})
	if !ok {
		k.Fatalf("no call: %v", k.Lost())
	}
	ctx, cancel := context.WithTimeout(k.Context(), limit)
	defer cancel()
	r, err := k.engine.Shards(ctx, c)
	if err == nil {
		for _, s := range k.Result(k.now, r).Acked {
			k.acked[s] = k.round
		}
	}
	return err
}

// goesOn makes calls until one is acknowledged.
func (k *keeping) goesOn() {
	k.Helper()
	eventually(k.T, patience, func() error { return k.call(patience) })
}

// owns makes calls until the node has shards, and the book of one is acknowledged.
func (k *keeping) owns() {
	k.Helper()
	eventually(k.T, patience, func() error {
		if err := k.call(patience); err != nil {
			return err
		} else if k.acked == [owner.Shards]int64{} {
			return fmt.Errorf("no shard is owned")
		}
		return nil
	})
}

// fails makes calls until one fails with these words. None counts for anything.
func (k *keeping) fails(limit time.Duration, words string, meanwhile func()) {
	k.Helper()
	before, acked := *k.Memory(), k.acked
	eventually(k.T, patience, func() error {
		if meanwhile != nil {
			done := make(chan bool)
			go func() { defer close(done); meanwhile() }()
			defer func() { <-done }()
		}
		err := k.call(limit)
		if err == nil || *k.Memory() != before || k.acked != acked {
			k.Fatalf("a call counts; its error is %v", err)
		} else if !strings.Contains(err.Error(), words) {
			return fmt.Errorf("the call gives %w, want %q", err, words)
		}
		return nil
	})
}

// claim claims a key for a request of this node.
func (k *keeping) claim(key string) (once.Result, error) {
	me := once.Request{Node: 1, Incarnation: 1, Process: 1, Number: 1}
	ctx, cancel := context.WithTimeout(k.Context(), owner.Patience)
	defer cancel()
	return k.engine.Keys(ctx, once.Call{Node: me, Timeline: k.Memory().Origin.Timeline,
		Parts: []once.Part{{Op: once.Claim, Row: once.Row{Key: key, Request: me}}}})
}

const waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

// maximal is the highest beat that readers of the database see.
const maximal = "SELECT max(beat) FROM mta_cluster.shards"

func TestPostgresAcknowledgesWhatTheStandbyHas(t *testing.T) {
	parallel(t)
	primary, standby := newPair(t)
	primary.schema(t)
	k := newKeeping(t, open(t, primary.dsn("mta", "postgres"), false), 1)
	reader := newKeeping(t, open(t, primary.dsn("mta", "postgres"), false), 2)
	k.owns()
	standby.end()
	seen := primary.ask(t, maximal)
	k.fails(time.Second, "unknown", nil)   // it waits for the standby, and locks its rows
	k.fails(patience, "lock timeout", nil) // and the next one waits for those
	if _, err := k.claim("k"); err == nil {
		t.Error("a key is claimed without the standby")
	}
	if err := reader.call(patience); err != nil {
		t.Errorf("a call that writes nothing waits: %v", err)
	}
	if got := primary.ask(t, maximal); got != seen {
		t.Errorf("readers see beat %s before the standby has it, and %s was there", got, seen)
	}
	standby.begin(t)
	k.goesOn()
	if r, err := k.claim("k"); err != nil || len(r.Rows) != 1 || r.Rows[0] == nil {
		t.Errorf("the claim after it: %+v, %v", r, err)
	}
	// Somebody ends the wait: the row shows, and the standby does not have it.
	for _, end := range [][2]string{{"pg_cancel_backend", "canceling wait for synchronous replication"},
		{"pg_terminate_backend", "before the end of the transaction"}} {
		standby.end()
		k.fails(patience, end[1], func() {
			if err := primary.try(t, "DO $$ BEGIN WHILE NOT EXISTS ("+waiting+") LOOP PERFORM pg_stat_clear_snapshot(), "+
				"pg_sleep(0.05); END LOOP; PERFORM "+end[0]+"(pid) FROM ("+waiting+") w; END $$"); err != nil {
				t.Error(err)
			}
		})
		standby.begin(t)
		k.goesOn()
	}
	t.Run("a proxy that cuts", func(t *testing.T) {
		p := newCutter(t, "127.0.0.1:"+primary.port)
		e := open(t, strings.Replace(primary.dsn("mta", "postgres"), primary.port, portOf(p.address), 1), false)
		k.engine, k.T = e, t
		k.owns()
		p.cut.Store(true)
		seen := primary.ask(t, maximal)
		k.fails(patience, "before the end of the transaction", nil)
		eventually(t, patience, func() error {
			if got := primary.ask(t, maximal); got == seen {
				return fmt.Errorf("the commit that was cut off is not there: beat %s", got)
			}
			return nil
		})
		p.cut.Store(false)
		round := k.round
		k.goesOn()
		if k.Lost() != nil || k.acked == [owner.Shards]int64{} || k.round != round+1 {
			t.Errorf("after %d rounds: %v", k.round-round, k.Lost())
		}
	})
}

// cutter is a proxy that can be made to close connections when the server answers.
type cutter struct {
	address string
	cut     atomic.Bool
}

func newCutter(t *testing.T, to string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &cutter{address: l.Addr().String()}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.(*net.TCPConn).CloseWrite() // what has come is carried out
			}()
			go func() {
				defer server.Close()
				defer client.Close()
				for b := make([]byte, 1<<16); ; {
					n, err := server.Read(b)
					if err != nil {
						return
					} else if p.cut.Load() {
						client.Close()
					} else if _, err := client.Write(b[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return p
}

// both is the address of a pair.
func both(a, b *database) string {
	return fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%s,%s user=mta dbname=postgres sslmode=disable connect_timeout=60",
		a.port, b.port)
}

func TestPostgresFailsOver(t *testing.T) {
	parallel(t)
	primary, standby := newPair(t)
	primary.schema(t)
	k := newKeeping(t, open(t, both(primary, standby), false), 1)
	k.owns()
	if r, err := k.claim("before"); err != nil || len(r.Rows) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	line := k.Memory().Origin.Timeline
	killed := make(chan bool)
	calls := 0
	for ; k.call(patience) == nil; calls++ { // until the primary is gone, amid one
		if calls == 20 {
			go func() {
				defer close(killed)
				primary.now.kill()
			}()
		}
	}
	if calls <= 20 {
		t.Fatalf("a call fails after %d", calls)
	}
	<-killed
	acked := k.acked
	standby.ask(t, "SELECT pg_promote(false)")
	k.goesOn()
	if k.Lost() != nil || k.Memory().Origin.Timeline <= line {
		t.Errorf("timeline %d after %d: %v", k.Memory().Origin.Timeline, line, k.Lost())
	}
	for s, round := range acked {
		if round > 0 && k.Epoch(s) == 0 {
			t.Errorf("shard %d is gone", s)
		}
		k.there(standby, s, round)
	}
	if r, err := k.claim("before"); err != nil || r.Elsewhere || len(r.Rows) != 1 || r.Rows[0].Node != 1 {
		t.Errorf("the key claimed before: %+v, %v", r, err)
	}
	old := once.Call{Node: once.Request{Node: 1, Incarnation: 1}, Timeline: line}
	if r, err := k.engine.Keys(t.Context(), old); err != nil || !r.Elsewhere {
		t.Errorf("a call for the timeline before: %+v, %v", r, err)
	}
}

// there looks whether the book of a shard is as of a round, or later.
func (k *keeping) there(d *database, shard int, round int64) {
	k.Helper()
	got := d.ask(k.T, fmt.Sprintf("SELECT COALESCE(max(n1), 0) FROM mta_cluster.books WHERE shard = %d", shard))
	if n := int64(0); round > 0 {
		if fmt.Sscan(got, &n); n < round {
			k.Errorf("shard %d: the book of round %d is acknowledged, that of round %s is there", shard, round, got)
		}
	}
}

func TestPostgresLosesCommits(t *testing.T) {
	parallel(t)
	primary, standby := newPair(t)
	primary.schema(t)
	k := newKeeping(t, open(t, both(primary, standby), false), 1)
	k.owns()
	primary.ask(t, "ALTER SYSTEM SET synchronous_standby_names = ''")
	primary.ask(t, "SELECT pg_reload_conf()")
	primary.comes(t, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'async'", "1")
	standby.end()
	k.goesOn() // acknowledged, and nowhere else
	k.goesOn()
	primary.now.kill()
	standby.begin(t)
	standby.ask(t, "SELECT pg_promote(false)")
	k.goesOn()
	if k.Lost() == nil || !strings.Contains(k.Lost().Error(), "lost writes") {
		t.Errorf("lost: %v", k.Lost())
	}
	if _, ok := k.Call(k.now+time.Hour, nil); ok {
		t.Error("calls go on")
	}

	// A reset has it go on, after a term without an owner.
	era := standby.ask(t, "SELECT era FROM mta_cluster.sequence")
	first, err := k.engine.Reset(t.Context(), 1, 0)
	second, again := k.engine.Reset(t.Context(), 1, first+1000)
	view, unseen := k.engine.View(t.Context())
	if err = errors.Join(err, again, unseen); err != nil || first < uint64(time.Now().Unix())-60 || second != first+1001 || view.Reset != second {
		t.Fatalf("the resets are %d and %d, and the view has %d: %v", first, second, view.Reset, err)
	}
	if got := standby.ask(t, "SELECT count(*) FROM mta_cluster.shards WHERE epoch < "+fmt.Sprint(second)) + standby.ask(t, "SELECT count(*) FROM mta_cluster.books"); got != "00" {
		t.Errorf("shards with an earlier epoch, and lines of books: %s", got)
	}
	if standby.ask(t, "SELECT era FROM mta_cluster.sequence") == era {
		t.Error("what all know is not exchanged anew")
	}
	k.Keeper.Reset(second)
	for began := k.now; k.now-began < 3*time.Minute-2*owner.Patience; {
		if k.goesOn(); k.Memory().Marks != [owner.Shards]owner.Mark{} {
			t.Fatalf("a shard is taken %v after the reset", k.now-began)
		}
	}
	k.acked = [owner.Shards]int64{}
	k.owns()
}
