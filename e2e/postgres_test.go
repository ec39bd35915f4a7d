package e2e

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"example.org/mta/cluster/enginetest"
	"example.org/mta/cluster/node"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/postgres"
	"example.org/mta/cluster/term"
)

// database is a PostgreSQL server of Debian, at a port of loopback where everybody is trusted.
type database struct {
	bin, dir, port string
	options        []string
	log            string
	now            *process
}

// What a node needs of its database.
var _ node.Engine = (*postgres.Engine)(nil)

// asPostgres is the start of a command that the user postgres runs.
var asPostgres = []string{"setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"}

// newDatabase makes the files of a server by a command that is given their folder, and starts it.
func newDatabase(t *testing.T, command func(d *database) []string, options ...string) *database {
	t.Helper()
	needRoot(t)
	need(t, "setpriv")
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(bins) == 0 {
		cannot(t, "PostgreSQL is not there")
	}
	d := &database{bin: bins[len(bins)-1] + "/", dir: filepath.Join(scratch(t), "data"), port: portOf(freeAddress(t))}
	d.log = filepath.Join(filepath.Dir(d.dir), "log")
	d.options = append([]string{"port=" + d.port, "listen_addresses=127.0.0.1", "unix_socket_directories=",
		"fsync=off", "shared_buffers=16MB", "max_connections=40", "wal_retrieve_retry_interval=100ms"}, options...)
	owner, err := user.Lookup("postgres")
	if err != nil {
		cannot(t, err.Error())
	}
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	} else if err := os.Chown(d.dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	runClient(t, "", slices.Concat(asPostgres, command(d))...)
	t.Cleanup(func() {
		if d.now != nil {
			d.end()
		}
		if t.Failed() {
			t.Logf("the last that PostgreSQL said:\n%s", tail(d.log))
		}
	})
	d.begin(t)
	return d
}

func newPrimary(t *testing.T, options ...string) *database {
	t.Helper()
	return newDatabase(t, func(d *database) []string {
		return []string{d.bin + "initdb", "-D", d.dir, "-U", "postgres", "-A", "trust", "--no-sync", "--no-locale"}
	}, options...)
}

// standby makes a standby of d. When it is promoted, its commits wait for nobody.
func (d *database) standby(t *testing.T, options ...string) *database {
	t.Helper()
	return newDatabase(t, func(s *database) []string {
		return []string{s.bin + "pg_basebackup", "-D", s.dir, "-R", "-X", "stream", "-c", "fast", "--no-sync",
			"-d", d.dsn("postgres", "postgres")}
	}, append(options, "cluster_name=standby", "synchronous_standby_names=")...)
}

func (d *database) begin(t *testing.T) {
	t.Helper()
	argv := append(slices.Clone(asPostgres), d.bin+"postgres", "-D", d.dir)
	for _, o := range d.options {
		argv = append(argv, "-c", o)
	}
	var err error
	if d.now, err = launch("postgres", d.log, argv...); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		if d.now.ended() {
			t.Fatalf("PostgreSQL has ended:\n%s", tail(d.log))
		}
		return d.try(t, "SELECT 1")
	})
}

// end has the server gone at once, as after a crash: its processes follow the first one.
func (d *database) end() {
	d.now.signal(syscall.SIGQUIT)
	select {
	case <-d.now.done:
	case <-time.After(patience):
	}
	d.now.kill()
}

func (d *database) dsn(role, name string) string {
	return fmt.Sprintf("host=127.0.0.1 port=%s user=%s dbname=%s sslmode=disable connect_timeout=60",
		d.port, role, name)
}

// try runs statements as a superuser.
func (d *database) try(t *testing.T, sql string) error {
	_, err := d.query(t, sql)
	return err
}

func (d *database) query(t *testing.T, sql string) (string, error) {
	return d.queryOf(t, "postgres", sql)
}

// queryOf is query in a database of another name.
func (d *database) queryOf(t *testing.T, name, sql string) (string, error) {
	c, err := pgconn.Connect(t.Context(), d.dsn("postgres", name))
	if err != nil {
		return "", err
	}
	defer c.Close(t.Context())
	results, err := c.Exec(t.Context(), sql).ReadAll()
	if err != nil || len(results) == 0 || len(results[0].Rows) == 0 {
		return "", err
	}
	return string(results[0].Rows[0][0]), nil
}

// ask gives the first column of the first row.
func (d *database) ask(t *testing.T, sql string) string {
	t.Helper()
	got, err := d.query(t, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

// comes waits until a query gives a value.
func (d *database) comes(t *testing.T, sql, want string) {
	t.Helper()
	eventually(t, patience, func() error {
		got, err := d.query(t, sql)
		if err == nil && got != want {
			err = fmt.Errorf("%s: %q, want %q", sql, got, want)
		}
		return err
	})
}

const streaming = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'"

// newPair makes a primary with a synchronous standby, and a role that serve would have, whose settings are the worst.
func newPair(t *testing.T, options ...string) (primary, standby *database) {
	t.Helper()
	primary = newPrimary(t, options...)
	primary.ask(t, "CREATE ROLE mta LOGIN")
	primary.ask(t, "ALTER ROLE mta SET synchronous_commit = off")
	primary.ask(t, "ALTER ROLE mta SET client_min_messages = error")
	standby = primary.standby(t, options...)
	primary.ask(t, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	primary.ask(t, "SELECT pg_reload_conf()")
	primary.comes(t, streaming, "1")
	return primary, standby
}

// grants are those that the manual names.
func grants(t *testing.T) string {
	t.Helper()
	return pageCode(t, page, section, "sql")[1]
}

func open(t *testing.T, dsn string, replicated bool) *postgres.Engine {
	t.Helper()
	e, err := postgres.Open(postgres.Config{Database: dsn, Replicated: replicated})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// schema makes the schema anew.
func (d *database) schema(t *testing.T) {
	t.Helper()
	d.ask(t, "DROP SCHEMA IF EXISTS mta_cluster CASCADE")
	if was, _, err := open(t, d.dsn("postgres", "postgres"), false).Init(t.Context()); err != nil || was != 0 {
		t.Fatal(was, err)
	}
	d.ask(t, grants(t))
}

func (d *database) conforms(t *testing.T, dsn string) {
	enginetest.Run(t, func(t *testing.T) (enginetest.Engine, func(uint16, uint64) error) {
		d.schema(t)
		e := open(t, dsn, false)
		return e, func(node uint16, incarnation uint64) error {
			return e.Join(t.Context(), postgres.Member{Number: node, Incarnation: incarnation, Address: "mx",
				OnLoss: "part"})
		}
	})
}

func TestPostgresKeepsTheRulesOfAnEngine(t *testing.T) {
	parallel(t)
	primary, _ := newPair(t)
	t.Run("directly", func(t *testing.T) { primary.conforms(t, primary.dsn("mta", "postgres")) })
	t.Run("by PgBouncer", func(t *testing.T) { primary.conforms(t, newBouncer(t, primary)) })
}

// TestPostgresReserves has the rules of reserves that are about members: nobody gets any beside a program that knows
// none, no such program joins beside one, and only a dead node that has one is forgotten.
func TestPostgresReserves(t *testing.T) {
	parallel(t)
	primary, _ := newPair(t)
	primary.schema(t)
	e := open(t, primary.dsn("mta", "postgres"), false)
	join := func(node uint16, process uint64, onLoss, words string) {
		t.Helper()
		err := e.Join(t.Context(), postgres.Member{Number: node, Incarnation: 1, Process: process, Address: "mx",
			OnLoss: onLoss})
		if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("node %d joins with %q: %v, want %q", node, onLoss, err, words)
		}
	}
	seq := uint64(0)
	wish := func(node uint16, divisor int64, want map[uint16]int64) {
		t.Helper()
		seq++
		r, err := e.Shards(t.Context(), owner.Call{Number: seq, Reserves: true, Wish: &owner.Wish{Node: node,
			Order: term.Order{Incarnation: 1, Process: 1, Seq: seq}, Divisor: divisor}})
		got := make(map[uint16]int64)
		for _, x := range r.Reserves {
			got[x.Node] = x.Divisor
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("after the wish of node %d for one in %d: %v, %v; want %v", node, divisor, got, err, want)
		}
	}
	forget := func(node uint16, dead bool, words string) {
		t.Helper()
		if _, err := e.Forget(t.Context(), node, dead); words == "" && err != nil ||
			words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("node %d is forgotten: %v, want %q", node, err, words)
		}
	}
	join(1, 1, "part", "")
	join(2, 1, "", "")
	wish(1, 2, map[uint16]int64{1: 0})
	join(2, 2, "wait", "")
	wish(1, 2, map[uint16]int64{1: 2})
	join(2, 3, "", `node 2 has a version of mta that does not know on_loss = "part", which nodes 1 have: upgrade it`)
	join(1, 2, "", "") // nobody else has any
	wish(2, 1, map[uint16]int64{2: 0})
	join(1, 3, "part", "")
	wish(1, 3, map[uint16]int64{1: 3, 2: 0})
	forget(1, false, "answered 0 s ago")
	primary.ask(t, "UPDATE mta_cluster.members SET seen = now() - interval '1 hour'")
	forget(1, false, `has on_loss = "part": it may be cut off, and use 1/3 of each limit; --dead if its machine is off`)
	forget(2, false, "")
	forget(1, true, "")
	wish(1, 1, nil)
	// Nodes get larger parts one after the other.
	for node := range uint16(8) {
		join(node+10, 1, "part", "")
	}
	var all sync.WaitGroup
	for node := range uint16(8) {
		all.Go(func() {
			one := open(t, primary.dsn("mta", "postgres"), false)
			for seq := range uint64(20) {
				_, _ = one.Shards(t.Context(), owner.Call{Number: seq + 1, Reserves: true, Wish: &owner.Wish{Node: node + 10,
					Order: term.Order{Incarnation: 1, Process: 1, Seq: seq + 1}, Divisor: 1 + int64(seq)%9}})
			}
		})
	}
	all.Wait()
	r, err := e.Shards(t.Context(), owner.Call{Number: 1, Reserves: true})
	sum := 0.
	for _, x := range r.Reserves {
		sum += 1 / float64(max(x.Divisor, 1)) * float64(min(x.Divisor, 1))
	}
	if err != nil || sum > 1.000001 || sum < .3 || len(r.Reserves) != 8 {
		t.Errorf("%g of each limit are in reserve: %+v, %v", sum, r.Reserves, err)
	}
}

// TestPostgresForgetsTheDead: what a machine had that is off has no owner any more, also if the node was forgotten before
// that was known. The other nodes' shards stay, and those that wait after a reset.
func TestPostgresForgetsTheDead(t *testing.T) {
	parallel(t)
	primary, _ := newPair(t)
	primary.schema(t)
	e := open(t, primary.dsn("mta", "postgres"), false)
	seq := uint64(0)
	call := func(parts ...owner.Part) owner.Result {
		t.Helper()
		seq++
		r, err := e.Shards(t.Context(), owner.Call{Number: seq, Parts: parts})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	take := func(shard int, node uint16, incarnation uint64) {
		t.Helper()
		was := call().Heads[shard]
		to := owner.Head{Node: node, Incarnation: incarnation, Boot: 7, Epoch: was.Epoch + 1, Beat: was.Beat + 1}
		if r := call(owner.Part{Shard: shard, Take: true, Was: was, To: to}); !r.Done[0] {
			t.Fatalf("shard %d is not taken", shard)
		}
	}
	for node := range uint16(2) {
		if err := e.Join(t.Context(), postgres.Member{Number: node + 1, Incarnation: 1, Boot: 5, Noted: 1764497430123456}); err != nil {
			t.Fatal(err)
		}
		take(int(node)+1, node+1, 1)
	}
	if v, err := e.View(t.Context()); err != nil || v.Members[0].Noted != 1764497430123456 || v.Members[0].Boot != 5 {
		t.Errorf("the members are %+v, %v", v.Members, err)
	}
	forget := func(dead, done bool) {
		t.Helper()
		rows := func() string {
			return primary.ask(t, "SELECT (SELECT jsonb_agg(m) FROM mta_cluster.members m), (SELECT jsonb_agg(s) FROM mta_cluster.shards s)")
		}
		as := rows()
		if _, _, would, err := e.WouldForget(t.Context(), 1, dead); err != nil || would != done || rows() != as {
			t.Errorf("node 1 would be forgotten: %v, %v; want %v, and no other rows", would, err, done)
		}
		if got, err := e.Forget(t.Context(), 1, dead); err != nil || got != done {
			t.Errorf("node 1 is forgotten: %v, %v; want %v", got, err, done)
		}
	}
	before := call().Heads
	primary.ask(t, "UPDATE mta_cluster.members SET seen = now() - interval '1 hour'")
	forget(false, true)
	if *call().Heads != *before {
		t.Error("a node that may be alive has lost its shards")
	}
	forget(true, false)
	after := call().Heads
	if h := after[1]; h.Node != 0 || h.Incarnation != 0 || h.Epoch != before[1].Epoch || h.Beat != before[1].Beat+1 || after[2] != before[2] {
		t.Errorf("the rows are %+v and %+v", after[1], after[2])
	}
	if v, err := e.View(t.Context()); err != nil || v.Members[0].Dead != 2 || v.Members[1].Dead != 0 {
		t.Errorf("the members are %+v, %v", v.Members, err)
	}
	if err := e.Join(t.Context(), postgres.Member{Number: 1, Incarnation: 2, Process: 1}); err != nil {
		t.Fatal(err)
	}
	take(1, 1, 2)
	if _, err := e.Reset(t.Context(), 1, 0); err != nil {
		t.Fatal(err)
	}
	before = call().Heads
	forget(true, true)
	if v, err := e.View(t.Context()); err != nil || v.Members[0].Dead != 3 || *call().Heads != *before {
		t.Errorf("after a reset: %+v, %v", v.Members, err)
	}
}

// TestPostgresBooksThatSomebodyFilled: a shard with more rows than any node writes is not taken, others are; of a name
// that is too long only so much comes that its node can refuse it.
func TestPostgresBooksThatSomebodyFilled(t *testing.T) {
	parallel(t)
	primary, _ := newPair(t)
	primary.schema(t)
	primary.ask(t, `INSERT INTO mta_cluster.books SELECT 7, decode(md5(n::text), 'hex'), 3, 1, 1, 1, 1
		FROM generate_series(1, 60000) n`)
	primary.ask(t, "INSERT INTO mta_cluster.books VALUES (8, decode(repeat('61', 100000), 'hex'), 3, 1, 1, 1, 1)")
	e := open(t, primary.dsn("mta", "postgres"), false)
	c := owner.Call{Number: 1}
	for shard := 7; shard < 10; shard++ {
		to := owner.Head{Node: 1, Incarnation: 1, Boot: 7, Epoch: 1, Beat: 1}
		c.Parts = append(c.Parts, owner.Part{Shard: shard, Take: true, To: to})
	}
	r, err := e.Shards(t.Context(), c)
	if err != nil || !slices.Equal(r.Done, []bool{false, true, true}) || r.Books[7] != nil || len(r.Books[8]) != 1 || len(r.Books[8][0].Name) != 257 {
		t.Errorf("done: %v, %d and %d rows, %v", r.Done, len(r.Books[7]), len(r.Books[8]), err)
	}
	if r.Fault == nil || !strings.Contains(r.Fault.Error(), "shard 7 is not taken: mta_cluster.books has more than 50000 rows of it, such as ") {
		t.Errorf("refused: %v", r.Fault)
	}
}

// TestPostgresRowsThatSomebodyHasEdited are named, and all others can be read.
func TestPostgresRowsThatSomebodyHasEdited(t *testing.T) {
	parallel(t)
	primary, _ := newPair(t)
	primary.schema(t)
	e := open(t, primary.dsn("mta", "postgres"), false)
	join := func(node uint16) {
		t.Helper()
		if err := e.Join(t.Context(), postgres.Member{Number: node, Incarnation: 1, Address: "mx"}); err != nil {
			t.Fatal(err)
		}
	}
	join(1)
	join(3)
	me := once.Request{Node: 1, Incarnation: 1, Process: 1, Number: 1}
	keys := once.Call{Node: me, Timeline: 1}
	for _, k := range []string{"k", "l"} {
		keys.Parts = append(keys.Parts, once.Part{Op: once.Claim, Row: once.Row{Key: k, Request: me}})
	}
	if _, err := e.Keys(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	view := func() (error, error) { v, err := e.View(t.Context()); return v.Fault, err }
	for sql, call := range map[string]func() (error, error){
		"UPDATE mta_cluster.members SET plans = '{\"x\": 1}' WHERE number = 3": view,
		"UPDATE mta_cluster.members SET seen = 'infinity' WHERE number = 3":    view,
		"INSERT INTO mta_cluster.books VALUES (52, 'x', -5, 1, 1, 1, 1)": func() (error, error) {
			r, err := e.Shards(t.Context(), owner.Call{Parts: []owner.Part{{Shard: 52, Take: true,
				To: owner.Head{Node: 1, Incarnation: 1, Epoch: 1, Beat: 1}}}})
			if err == nil && !r.Done[0] {
				t.Error("the shard is not taken")
			}
			return r.Fault, err
		},
		"UPDATE mta_cluster.keys SET node = -1 WHERE key = 'k'": func() (error, error) {
			r, err := e.Keys(t.Context(), keys)
			if err == nil && (r.Rows[0].Node != 0 || r.Rows[1].Node != 1) {
				t.Errorf("rows %+v and %+v", r.Rows[0], r.Rows[1])
			}
			return r.Fault, err
		},
	} {
		primary.ask(t, sql)
		if fault, err := call(); fault == nil || err != nil {
			t.Errorf("%s: %v, %v", sql, fault, err)
		}
		if join(3); strings.Contains(sql, "members") { // writes its row anew
			if fault, err := view(); fault != nil || err != nil {
				t.Errorf("after %s: %v, %v", sql, fault, err)
			}
		}
	}
}

// TestPostgresGivesAKeyToOneNode has nodes claim the same keys at a time, each in its order, and take the same shards.
func TestPostgresGivesAKeyToOneNode(t *testing.T) {
	parallel(t)
	primary, _ := newPair(t)
	primary.schema(t)
	const nodes, keys, rounds = 3, 40, 10
	var owners [rounds * keys][nodes]uint16 // as each node was answered
	var taken [owner.Shards]atomic.Uint32   // a bit for each node
	var done sync.WaitGroup
	for i := range nodes {
		node := uint16(i + 1)
		e := open(t, primary.dsn("mta", "postgres"), false)
		if err := e.Join(t.Context(), postgres.Member{Number: node, Incarnation: 1}); err != nil {
			t.Fatal(err)
		}
		again := func(call func() error) { // as the protocol does
			for err := call(); err != nil; err = call() {
				if strings.Contains(err.Error(), "deadlock") || t.Context().Err() != nil {
					t.Error(err)
					return
				}
			}
		}
		done.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(node)))
			for round := range rounds {
				me := once.Request{Node: node, Incarnation: 1, Process: 1, Number: uint64(round)}
				c := once.Call{Node: me, Timeline: 1}
				order := random.Perm(keys)
				for _, k := range order {
					row := once.Row{Key: fmt.Sprint(round*keys + k), Request: me}
					c.Parts = append(c.Parts, once.Part{Op: once.Claim, Row: row})
				}
				again(func() error {
					r, err := e.Keys(t.Context(), c)
					for at, row := range r.Rows {
						owners[round*keys+order[at]][i] = row.Node
					}
					return err
				})
				var takes owner.Call
				for _, s := range random.Perm(owner.Shards) {
					to := owner.Head{Node: node, Incarnation: 1, Boot: 1, Epoch: 1, Beat: 1}
					takes.Parts = append(takes.Parts, owner.Part{Shard: s, Take: true, To: to})
				}
				again(func() error {
					r, err := e.Shards(t.Context(), takes)
					for at, took := range r.Done {
						if took {
							taken[takes.Parts[at].Shard].Or(1 << i)
						}
					}
					return err
				})
			}
		})
	}
	done.Wait()
	for key, answers := range owners {
		if answers[0] == 0 || answers[0] != answers[1] || answers[1] != answers[2] {
			t.Errorf("key %d belongs to %v, as the nodes were answered", key, answers)
		}
	}
	for s := range taken {
		if n := taken[s].Load(); bits.OnesCount32(n) != 1 {
			t.Errorf("shard %d was taken by the nodes of %b", s, n)
		}
	}
	e := open(t, primary.dsn("mta", "postgres"), false)
	dropped := func(want int) {
		t.Helper()
		if n, err := e.DropKeys(t.Context(), 200); n != want || err != nil {
			t.Errorf("%d keys are dropped, %v; want %d", n, err, want)
		}
	}
	dropped(0)
	for k, node := range owners { // three of four are over at once
		r := once.Request{Node: node[0], Incarnation: 1, Process: 1, Number: uint64(k / keys)}
		p := once.Part{Op: once.Settle, Row: once.Row{Key: fmt.Sprint(k), Request: r}}
		if k%4 == 0 {
			p.Keep = time.Hour
		}
		if _, err := e.Keys(t.Context(), once.Call{Node: r, Timeline: 1, Parts: []once.Part{p}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{200, 100, 0} {
		dropped(n)
	}
}

func TestPostgresInitAndCheck(t *testing.T) {
	parallel(t)
	primary, standby := newPair(t)
	for _, sql := range []string{"CREATE ROLE maker LOGIN", "GRANT CREATE ON DATABASE postgres TO maker"} {
		primary.ask(t, sql)
	}
	maker, serve := open(t, primary.dsn("maker", "postgres"), false), open(t, primary.dsn("mta", "postgres"), false)
	refused := func(e *postgres.Engine, words string) {
		t.Helper()
		if _, _, err := e.Init(t.Context()); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("init gives %v, want %q", err, words)
		}
	}
	found := func(e *postgres.Engine, check string, ok bool, words string) {
		t.Helper()
		eventually(t, patience, func() error { // a commit may be slow
			all, err := e.Check(t.Context(), time.Now)
			for _, f := range all {
				if f.Check == check && f.OK == ok && strings.Contains(f.Text, words) {
					return err
				}
			}
			return fmt.Errorf("%s %v %q is not in %+v, %v", check, ok, words, all, err)
		})
	}
	found(serve, "schema", false, "none")
	refused(serve, "permission denied")
	refused(maker, "pg_monitor")
	primary.ask(t, "GRANT pg_monitor TO maker")
	const version = 9 // of the schema
	for _, want := range []int{0, version} {
		if was, is, err := maker.Init(t.Context()); err != nil || was != want || is != version {
			t.Fatal(was, is, err)
		}
	}
	primary.ask(t, "DROP TABLE mta_cluster.warmups, mta_cluster.warmup_clock; DROP FUNCTION mta_cluster.warmup_time, "+
		"mta_cluster.warmups_claimed, mta_cluster.warmups_written; ALTER TABLE mta_cluster.members DROP COLUMN name, DROP COLUMN plans; "+
		"ALTER TABLE mta_cluster.version DROP COLUMN reset; DROP FUNCTION mta_cluster.reset; "+
		"DROP FUNCTION mta_cluster.wished, mta_cluster.beaten; DROP TABLE mta_cluster.reserves; "+
		"ALTER TABLE mta_cluster.members DROP COLUMN on_loss, DROP COLUMN noted, DROP COLUMN boot, DROP COLUMN dead; "+
		"DROP FUNCTION mta_cluster.log_answer, mta_cluster.log_opened(int, bigint, bigint, bigint), "+
		"mta_cluster.log_opened(int, bigint, bigint, bigint, text), mta_cluster.log_appended, mta_cluster.log_read, "+
		"mta_cluster.log_dropped, mta_cluster.log_sealed, mta_cluster.log_taken, mta_cluster.log_cleared; "+
		"DROP TABLE mta_cluster.logs, mta_cluster.entries; UPDATE mta_cluster.version SET version = 2")
	found(maker, "schema", false, fmt.Sprintf("version 2; mta cluster init makes it version %d", version))
	if was, is, err := maker.Init(t.Context()); err != nil || was != 2 || is != version {
		t.Fatal(was, is, err)
	}
	found(serve, "rights", false, "missing: DELETE on mta_cluster.books, ")
	first, rest, _ := strings.Cut(grants(t), "\n")
	primary.ask(t, rest)
	found(serve, "rights", false, "missing: USAGE on schema mta_cluster")
	primary.ask(t, first)
	for check, words := range map[string]string{"version": "PostgreSQL ", "clock": "", "encryption": "local",
		"schema": fmt.Sprint("version ", version), "rights": "", "standby": "standby (sync)", "commit": "with the standby"} {
		found(serve, check, true, words)
	}
	if got := primary.ask(t, "SELECT current_setting('tcp_user_timeout') FROM mta_cluster.durable()"); got != "10000" {
		t.Errorf("a server waits %s ms for a client that is gone", got)
	}
	command := func(args ...string) string { // what an operator sees
		cmd := exec.Command(binary, append([]string{"cluster"}, args...)...)
		cmd.Env = append(os.Environ(), "MTA_CLUSTER_DATABASE="+primary.dsn("mta", "postgres"))
		out, err := cmd.CombinedOutput()
		return fmt.Sprintf("%s%v", out, err)
	}
	eventually(t, patience, func() error {
		if got := command("check", "--json"); !strings.HasSuffix(got, "}\n<nil>") || strings.Contains(got, "false") {
			return fmt.Errorf("mta cluster check prints %s", got)
		}
		return nil
	})
	if got := command("init"); got != "nothing to do: the schema mta_cluster is there\n<nil>" {
		t.Errorf("mta cluster init prints %s", got)
	}
	if err := serve.Join(t.Context(), postgres.Member{Number: 1, Incarnation: 2, Address: "a", Name: "mx"}); err != nil {
		t.Error(err)
	}
	err := serve.Join(t.Context(), postgres.Member{Number: 1, Incarnation: 1, Address: "b"})
	if err == nil || !strings.Contains(err.Error(), "node 1 at a has incarnation 2 there: incarnation 1 was forgotten") {
		t.Errorf("an earlier incarnation: %v", err)
	}
	standby.end()
	primary.comes(t, "SELECT count(*) FROM pg_stat_replication", "0")
	found(serve, "commit", false, "unknown")
	found(serve, "standby", false, `synchronous_standby_names = "standby"`)
	primary.ask(t, "ALTER SYSTEM SET synchronous_standby_names = ''")
	primary.ask(t, "SELECT pg_reload_conf()")
	primary.comes(t, "SHOW synchronous_standby_names", "")
	if got := command("check"); !strings.HasSuffix(got, "exit status 1") || !strings.Contains(got, "standby     no ") {
		t.Errorf("mta cluster check prints %s", got)
	}
	err = serve.Join(t.Context(), postgres.Member{Number: 2, Incarnation: 1})
	if err == nil || !strings.Contains(err.Error(), "no synchronous standby") {
		t.Errorf("a first join: %v", err)
	}
	service := open(t, primary.dsn("mta", "postgres"), true)
	found(service, "standby", true, "service")
	if err := service.Join(t.Context(), postgres.Member{Number: 2, Incarnation: 1}); err != nil {
		t.Error(err)
	}
	for _, number := range []uint16{0, 1024} {
		if err := service.Join(t.Context(), postgres.Member{Number: number, Incarnation: 1}); err == nil {
			t.Errorf("node %d has joined", number)
		}
	}
	me := postgres.Member{Number: 3, Incarnation: 1, Process: 5, Life: 7, Sums: map[string]string{"defaults": "5e6f"}}
	copied := me
	copied.Life++
	for _, m := range []postgres.Member{me, me, copied, {Number: 3, Incarnation: 1, Process: 4, Life: 7}} {
		if err := service.Join(t.Context(), m); (err == nil) != reflect.DeepEqual(m, me) {
			t.Errorf("joining as %+v: %v", m, err)
		}
	}
	view, err := serve.View(t.Context())
	if err != nil || view.Members[len(view.Members)-1].Sums["defaults"] != "5e6f" {
		t.Errorf("the members are %+v, %v", view.Members, err)
	}
	if _, err := serve.Forget(t.Context(), 3, false); err == nil || !strings.Contains(err.Error(), " s ago: stop it") {
		t.Errorf("a node that answers is forgotten: %v", err)
	}
	if err := serve.Fence(t.Context(), 3, 1, false); err == nil || !strings.Contains(err.Error(), " s ago: stop it") {
		t.Errorf("a node that answers is fenced: %v", err)
	}
	for node, incarnation := range map[uint16]uint64{2: 1, 3: 2} { // node 3 has another one, and stays
		if err := serve.Fence(t.Context(), node, incarnation, true); err != nil {
			t.Error(err)
		}
	}
	for _, want := range []bool{true, false} {
		if done, err := serve.Forget(t.Context(), 3, true); err != nil || done != want {
			t.Errorf("a dead node is forgotten: %v, %v", done, err)
		}
	}
	if _, err := serve.Forget(t.Context(), 4, true); err == nil {
		t.Error("a node that has never joined is forgotten")
	}
	v, err := serve.View(t.Context())
	if err != nil || len(v.Members) != 3 || v.Members[0].Address != "a" || v.Members[0].Name != "mx" || v.Members[2].Incarnation != 2 ||
		!v.Members[1].Forgotten || !v.Members[2].Forgotten || v.Now < 1e9 || v.Members[0].Ago <= 0 || v.Standbys.Missing() == "" {
		t.Errorf("the view is %+v, %v", v, err)
	}
	if err := service.Join(t.Context(), me); err == nil {
		t.Error("a forgotten node goes on")
	}
	me.Incarnation, me.Process = 2, 1
	if err := service.Join(t.Context(), me); err != nil {
		t.Errorf("a new one under its number: %v", err)
	}
	primary.ask(t, "UPDATE mta_cluster.version SET version = version + 1")
	refused(maker, fmt.Sprintf("version %d, and this mta knows %d", version+1, version))
	primary.ask(t, "DROP SCHEMA mta_cluster CASCADE")
	refused(maker, "no synchronous standby")
	if was, _, err := open(t, primary.dsn("maker", "postgres"), true).Init(t.Context()); err != nil || was != 0 {
		t.Error(was, err)
	}
}

// newBouncer starts PgBouncer in transaction mode with one connection to a database.
func newBouncer(t *testing.T, d *database) (dsn string) {
	t.Helper()
	program := need(t, "pgbouncer")[0]
	dir, port := scratch(t), portOf(freeAddress(t))
	writeFile(t, dir+"/users", `"mta" ""`+"\n")
	writeFile(t, dir+"/pgbouncer.ini", fmt.Sprintf(`
[databases]
postgres = host=127.0.0.1 port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = trust
auth_file = %s/users
pool_mode = transaction
default_pool_size = 1
`, d.port, port, dir))
	start(t, "pgbouncer", slices.Concat(asPostgres, []string{program, dir + "/pgbouncer.ini"})...)
	dsn = fmt.Sprintf("host=127.0.0.1 port=%s user=mta dbname=postgres sslmode=disable", port)
	eventually(t, patience, func() error {
		c, err := pgconn.Connect(t.Context(), dsn)
		if err == nil {
			c.Close(t.Context())
		}
		return err
	})
	return dsn
}
