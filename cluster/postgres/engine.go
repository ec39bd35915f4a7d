// Package postgres is the engine of a cluster: PostgreSQL 14 or newer with a synchronous standby.
//
// Each call is one statement, a function of the schema mta_cluster, in one round trip and one transaction: a client
// that stops holds no lock, and a pooler in transaction mode may stand between. The functions compare what
// owner.Part.Fits, once.Part.Apply and changes.Part.Fits compare. The rules of a commit:
//
//   - It waits for the standby, whatever the role's settings are.
//   - It is never cancelled. When a context ends, only the caller stops waiting.
//   - One that ends with a broken connection or a warning has an unknown outcome: an error.
package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"example.org/mta/cluster/ca"
	"example.org/mta/cluster/changes"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/term"
)

// Limits of a node's connections.
const (
	most    = 4                // at a time, unless Config has another number
	connect = 2 * time.Second  // for each host, unless the address says otherwise
	abandon = 10 * time.Second // a connection without an answer is closed: the host may be gone

	mostEntries = 50_000 // of a book; the statement gives one more
)

// Config is an engine's.
type Config struct {
	Database   string // a URL or keywords as libpq takes them; of several hosts the one that may be written to is used
	Replicated bool   // a managed service replicates below the database, so that no standby shows
	Most       int    // connections at a time; 0: 4
}

// Engine is a node's access to the database. Its methods may be called at the same time.
type Engine struct {
	cfg        *pgconn.Config
	replicated bool
	slots      chan struct{} // one for each connection in use
	ctx        context.Context
	close      context.CancelFunc
	mu         sync.Mutex // guards the rest
	idle       []*conn    // the newest last
}

// Open makes an engine; it connects when it is called.
func Open(c Config) (*Engine, error) {
	if c.Database == "" {
		return nil, errors.New("no database is named")
	}
	cfg, err := pgconn.ParseConfig(c.Database)
	if err != nil {
		return nil, cmp.Or(errors.Unwrap(err), errors.New("it can't be read")) // its own text has the address
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connect
	}
	if cfg.ValidateConnect == nil {
		cfg.ValidateConnect = writable
	}
	e := &Engine{cfg: cfg, replicated: c.Replicated, slots: make(chan struct{}, cmp.Or(c.Most, most))}
	e.ctx, e.close = context.WithCancel(context.Background())
	return e, nil
}

// Close closes all connections. Commits on their way have an unknown outcome.
func (e *Engine) Close() {
	e.close()
	for range cap(e.slots) {
		e.slots <- struct{}{}
	}
	e.drop()
}

// do uses a connection for something that is not cancelled: when ctx ends, its outcome is unknown.
func (e *Engine) do(ctx context.Context, f func(*conn) error) (err error) {
	defer func() {
		if err != nil {
			err = fault{err}
		}
	}()
	select {
	case e.slots <- struct{}{}:
	case <-e.ctx.Done():
		return errors.New("the engine is closed")
	case <-ctx.Done():
		return fmt.Errorf("all %d connections wait for the database: %w", cap(e.slots), ctx.Err())
	}
	var begun atomic.Bool
	done := make(chan error, 1)
	go func() { // ended by the connection's deadline
		done <- e.use(ctx, &begun, f)
		<-e.slots
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if !begun.Load() { // and it won't be
			return fmt.Errorf("no connection to the database: %w", ctx.Err())
		}
		return fmt.Errorf("%w: %w", errUnknown, ctx.Err())
	}
}

// use carries out f by an idle connection, or a new one. It notes when f begins, unless ctx has ended before.
func (e *Engine) use(ctx context.Context, begun *atomic.Bool, f func(*conn) error) (err error) {
	c := e.take()
	if c == nil {
		dialing, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(e.ctx, cancel)()
		if c, err = dial(dialing, e.cfg); err != nil {
			return err
		}
	}
	defer context.AfterFunc(e.ctx, func() { c.Close() })()
	begun.Store(true)
	if err = ctx.Err(); err == nil {
		if err = f(c); err != nil {
			c.Close()
			e.drop() // the idle ones go to the same host
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.idle = append(e.idle, c)
	return err
}

// take takes the connection that was idle for the shortest time, nil without one.
func (e *Engine) take() *conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.idle)
	if n == 0 {
		return nil
	}
	c := e.idle[n-1]
	e.idle = e.idle[:n-1]
	return c
}

// drop closes all idle connections.
func (e *Engine) drop() {
	for c := e.take(); c != nil; c = e.take() {
		c.Close()
	}
}

// octets are an argument that goes as it is, for a bytea.
type octets []byte

// call carries out a statement that returns JSON; other arguments than octets go as JSON, too.
func (e *Engine) call(ctx context.Context, result any, sql string, args ...any) error {
	params, formats := make([][]byte, len(args)), make([]int16, len(args))
	for i, a := range args {
		var err error
		if b, is := a.(octets); is {
			params[i], formats[i] = append(octets{}, b...), pgproto3.BinaryFormat // nil would be NULL
		} else if params[i], err = json.Marshal(a); err != nil {
			return err
		}
	}
	var value []byte
	answered := make(chan []byte, 1)
	err := e.do(ctx, func(c *conn) error {
		value, err := c.call(sql, params, formats)
		answered <- value
		return err
	})
	if err != nil {
		return err
	}
	if value = <-answered; json.Unmarshal(value, result) != nil {
		return fmt.Errorf("the database answers %.100q", value)
	}
	return nil
}

// The forms of rows on the wire. Names and keys are bytes: they may not be UTF-8.
type (
	head struct {
		Node        uint16 `json:"node"`
		Incarnation uint64 `json:"incarnation"`
		Boot        uint64 `json:"boot"`
		Epoch       uint64 `json:"epoch"`
		Beat        uint64 `json:"beat"`
		Clock       int64  `json:"clock"`
	}
	entry struct {
		Name []byte   `json:"name"`
		Node int64    `json:"node"` // of a row that somebody has edited: any
		N    [4]int64 `json:"n"`
	}
	part struct {
		Shard   int     `json:"shard"`
		Take    bool    `json:"take"`
		Was     head    `json:"was"`
		To      head    `json:"to"`
		Changes []entry `json:"changes"`
	}
	claim struct {
		Op          once.Op `json:"op"`
		Key         []byte  `json:"key"`
		Node        int64   `json:"node"` // likewise
		Incarnation uint64  `json:"incarnation"`
		Process     uint64  `json:"process"`
		Number      uint64  `json:"number"`
		Done        bool    `json:"done"`
		Note        []byte  `json:"note"`
		Keep        int64   `json:"keep"` // seconds
	}
	reserve struct {
		Node        uint16 `json:"node"`
		Incarnation uint64 `json:"incarnation"`
		Process     uint64 `json:"process"`
		Seq         uint64 `json:"seq"`
		Divisor     int64  `json:"divisor"`
		Timeline    uint64 `json:"timeline"`
		Beats       uint64 `json:"beats"`
	}
)

// Shards carries out a call of a keeper. After an error nothing was done, or the outcome is unknown.
func (e *Engine) Shards(ctx context.Context, c owner.Call) (owner.Result, error) {
	parts := make([]part, len(c.Parts))
	for i, p := range c.Parts {
		parts[i] = part{p.Shard, p.Take, head(p.Was), head(p.To), make([]entry, len(p.Changes))}
		for j, n := range p.Changes {
			parts[i].Changes[j] = entry{[]byte(n.Name), int64(n.Node), n.N}
		}
	}
	var got struct {
		System, Timeline uint64
		Done             []bool
		Heads            []struct {
			Shard int
			head
		}
		Books []struct {
			Shard int
			entry
		}
		Reserves []reserve
		Standbys Standbys
	}
	sql, args := "mta_cluster.shards($1)", []any{parts}
	if c.Reserves {
		sql, args = "mta_cluster.beaten($1, $2)", append(args, wish(c.Wish))
	}
	sql = "SELECT " + sql + " || jsonb_build_object('standbys', mta_cluster.standbys())"
	if err := e.call(ctx, &got, sql, args...); err != nil {
		return owner.Result{}, fmt.Errorf("the shards of the cluster: %w", err)
	}
	r := owner.Result{Number: c.Number, Done: got.Done, Heads: new([owner.Shards]owner.Head),
		Books: make(map[int][]owner.Entry), Origin: owner.Origin{System: got.System, Timeline: got.Timeline}}
	if missing := got.Standbys.Missing(); missing != "" {
		r.Standby = errors.New(missing)
	}
	if len(got.Done) != len(parts) || len(got.Heads) != owner.Shards {
		return owner.Result{}, fmt.Errorf("the database has %d shards and answers %d of %d parts; want %d shards",
			len(got.Heads), len(got.Done), len(parts), owner.Shards)
	}
	for _, h := range got.Heads { // their numbers are the table's key, and checked there
		r.Heads[h.Shard] = owner.Head(h.head)
	}
	rows, last := make(map[int]int), make(map[int]entry)
	for _, b := range got.Books {
		rows[b.Shard]++
		last[b.Shard] = b.entry
		if !numbered(b.Node) {
			r.Fault = cmp.Or(r.Fault, fmt.Errorf("a row of shard %d in mta_cluster.books, of limit %.60q, has node %d",
				b.Shard, b.Name, b.Node))
			continue
		}
		r.Books[b.Shard] = append(r.Books[b.Shard], owner.Entry{Name: string(b.Name), Node: uint16(b.Node), N: b.N})
	}
	for i, p := range parts {
		if rows[p.Shard] > mostEntries { // those that are left out, too: others may be missing
			last := last[p.Shard]
			r.Done[i], r.Fault = false, fmt.Errorf("shard %d is not taken: mta_cluster.books has more than %d rows "+
				"of it, such as that of limit %.60q and node %d: when it has had no owner for %v, delete them", p.Shard,
				mostEntries, last.Name, last.Node, 3*time.Minute)
			delete(r.Books, p.Shard)
		}
	}
	for _, x := range got.Reserves {
		r.Reserves = append(r.Reserves, owner.Reserve{Node: x.Node, Divisor: x.Divisor,
			Order: term.Order{Incarnation: x.Incarnation, Process: x.Process, Seq: x.Seq},
			Heard: owner.Moment{Timeline: x.Timeline, Beats: x.Beats}})
	}
	return r, nil
}

// numbered reports whether a node can have a number. What else is in a row, a column can't have otherwise.
func numbered(node int64) bool { return 0 <= node && node <= ca.LastNode }

func wish(w *owner.Wish) *reserve {
	if w == nil {
		return nil
	}
	return &reserve{w.Node, w.Order.Incarnation, w.Order.Process, w.Order.Seq, w.Divisor, w.Heard.Timeline,
		w.Heard.Beats}
}

// Keys carries out a call of a desk. After an error nothing was done, or the outcome is unknown.
func (e *Engine) Keys(ctx context.Context, c once.Call) (once.Result, error) {
	call := struct {
		Node        uint16  `json:"node"`
		Incarnation uint64  `json:"incarnation"`
		Timeline    uint64  `json:"timeline"`
		Parts       []claim `json:"parts"`
	}{c.Node.Node, c.Node.Incarnation, c.Timeline, make([]claim, len(c.Parts))}
	for i, p := range c.Parts {
		call.Parts[i] = claim{p.Op, []byte(p.Key), int64(p.Node), p.Incarnation, p.Process, p.Number, p.Done,
			[]byte(p.Note), int64((p.Keep + time.Second - 1) / time.Second)}
	}
	var got struct {
		Rows                 []*claim
		Forgotten, Elsewhere bool
	}
	if err := e.call(ctx, &got, "SELECT mta_cluster.keys($1)", call); err != nil {
		return once.Result{}, fmt.Errorf("the keys of the cluster: %w", err)
	}
	r := once.Result{Number: c.Number, Forgotten: got.Forgotten, Elsewhere: got.Elsewhere}
	if !r.Forgotten && !r.Elsewhere && len(got.Rows) != len(c.Parts) {
		return once.Result{}, fmt.Errorf("the database answers %d of %d keys", len(got.Rows), len(c.Parts))
	}
	for _, row := range got.Rows {
		if row != nil && !numbered(row.Node) {
			r.Fault = cmp.Or(r.Fault, fmt.Errorf("the row in mta_cluster.keys whose key is %q has node %d: requests "+
				"with this key are refused", row.Key, row.Node))
			row.Node = 0
		}
		r.Rows = append(r.Rows, row.row())
	}
	return r, nil
}

func (c *claim) row() *once.Row {
	if c == nil {
		return nil
	}
	return &once.Row{Key: string(c.Key), Done: c.Done, Note: string(c.Note), Request: once.Request{Node: uint16(c.Node),
		Incarnation: c.Incarnation, Process: c.Process, Number: c.Number}}
}

// Unsettled are the rows of a node that have no answer.
func (e *Engine) Unsettled(ctx context.Context, node uint16) ([]once.Row, error) {
	var got []*claim
	if err := e.call(ctx, &got, "SELECT mta_cluster.unsettled($1)", node); err != nil {
		return nil, fmt.Errorf("the keys of node %d: %w", node, err)
	}
	rows := make([]once.Row, len(got))
	for i, c := range got {
		rows[i] = *c.row()
	}
	return rows, nil
}

// DropKeys deletes settled rows whose time is over by the database's clock, most of them at a time, and returns how
// many.
func (e *Engine) DropKeys(ctx context.Context, most int) (n int, err error) {
	if err = e.call(ctx, &n, "SELECT mta_cluster.dropped($1)", most); err != nil {
		err = fmt.Errorf("the old keys of the cluster: %w", err)
	}
	return n, err
}

// change is a changes.Part or a changes.Row.
type change struct {
	Kind        string `json:"kind"`
	Key         []byte `json:"key"`
	Number      int64  `json:"number,omitempty"`
	Node        int64  `json:"node,omitempty"` // as in an entry
	Incarnation uint64 `json:"incarnation,omitempty"`
	Serial      uint64 `json:"serial,omitempty"`
	Seen        uint64 `json:"seen"`
	Rank        int    `json:"rank"`
	Value       []byte `json:"value"`
	Size        int    `json:"size,omitempty"`
	Until       *int64 `json:"until,omitempty"`
}

func (c *change) row() *changes.Row {
	if c == nil {
		return nil
	}
	r := &changes.Row{Kind: c.Kind, Key: string(c.Key), Number: uint64(max(0, c.Number)), Incarnation: c.Incarnation,
		Rank: c.Rank, Value: c.Value, Size: c.Size}
	if r.Node = uint16(c.Node); !numbered(c.Node) || c.Number < 0 {
		r.Node, r.Fault = 0, fmt.Errorf("it has node %d and number %d", c.Node, c.Number)
	}
	return r
}

// Changes carries out a call of a node. After an error nothing was done, or the outcome is unknown.
func (e *Engine) Changes(ctx context.Context, c changes.Call) (r changes.Result, err error) {
	call := struct {
		Node         uint16            `json:"node"`
		Incarnation  uint64            `json:"incarnation"`
		Era          string            `json:"era"`
		Acknowledged uint64            `json:"acknowledged"`
		After        map[string]uint64 `json:"after"`
		Most         int               `json:"most"`
		Parts        []change          `json:"parts"`
	}{c.Node, c.Incarnation, c.Era, c.Acknowledged, c.After, c.Most, make([]change, len(c.Parts))}
	for i, p := range c.Parts {
		call.Parts[i] = change{Kind: p.Kind, Key: []byte(p.Key), Serial: p.Serial, Seen: p.Seen, Rank: p.Rank,
			Value: p.Value}
		if !p.Until.IsZero() {
			until := p.Until.Unix()
			call.Parts[i].Until = &until
		}
	}
	var got struct {
		changes.Result
		Rows, After []*change // in the place of the embedded ones
	}
	if err := e.call(ctx, &got, "SELECT mta_cluster.changes($1)", call); err != nil {
		return r, fmt.Errorf("the changes of the cluster: %w", err)
	}
	if r = got.Result; !r.Forgotten && !r.Stale && len(got.After) != len(c.Parts) {
		return r, fmt.Errorf("the database answers %d of %d changes", len(got.After), len(c.Parts))
	}
	for _, row := range got.Rows {
		r.Rows = append(r.Rows, *row.row())
	}
	for _, row := range got.After {
		r.After = append(r.After, row.row())
	}
	return r, nil
}

// Readers is what each member has read of a kind of changes. It waits for no commit.
func (e *Engine) Readers(ctx context.Context, kind string) (read map[uint16]uint64, err error) {
	if err = e.call(ctx, &read, `SELECT COALESCE(jsonb_object_agg(r.node, COALESCE(r.read->($1::jsonb #>> '{}'), '0')),
		'{}') FROM mta_cluster.readers() r`, kind); err != nil {
		err = fmt.Errorf("what the members of the cluster have read: %w", err)
	}
	return read, err
}

// Tidy deletes changes that no member needs any more, most of them at a time, and returns how many.
func (e *Engine) Tidy(ctx context.Context, most int) (n int, err error) {
	if err = e.call(ctx, &n, "SELECT mta_cluster.tidied($1)", most); err != nil {
		err = fmt.Errorf("the old changes of the cluster: %w", err)
	}
	return n, err
}

// Member is a node's row.
type Member struct {
	Number      uint16            `json:"number"` // from 1 to 1,023
	Name        string            `json:"name"`   // the nodeid of the relay; "": a program that knows none has written the row
	Sums        map[string]string `json:"plans"`  // of its settings: see settings.Sums; earlier, of warm-up plans
	Address     string            `json:"address"`
	Version     string            `json:"version"` // of the program
	Incarnation uint64            `json:"incarnation"`
	Process     uint64            `json:"process"` // of the incarnation
	Life        uint64            `json:"life"`    // of that process, by chance
	Forgotten   bool              `json:"forgotten"`
	// The boot of its machine, and the database's clock that its data directory has, in microseconds since 1970: a
	// directory that has less is an older copy. 0: the schema has a version before 7, or a program that knows none has
	// written the row.
	Boot  uint64 `json:"boot,omitempty"`
	Noted uint64 `json:"noted,omitempty"`
	// What processes of earlier incarnations had has ended: their machine is off. Join leaves it out.
	Dead uint64 `json:"dead,omitempty"`
	// What the node does after a loss of the database: "wait" or "part". "": a program that knows no reserves has
	// written the row, or will with a schema of before version Reserves.
	OnLoss string `json:"on_loss,omitempty"`
	// Seconds since the row was written last, by the database's clock. Join leaves it out.
	Ago float64 `json:"ago,omitempty"`
}

// View is what a reading found.
type View struct {
	Members  []Member // by number
	Standbys Standbys
	Now      float64 // the database's clock then, in seconds since 1970
	Reset    uint64  // the newest, 0: there was none
	Version  int     // of the schema
	Fault    error   // what of the rows was left out
}

// Standbys are those for which a commit may wait.
type Standbys struct {
	Names  []string
	Hidden int // those that the schema's owner may not look at
}

// Missing is why a failover may lose what was acknowledged, "" if it can't.
func (s Standbys) Missing() string {
	switch {
	case len(s.Names) > 0:
		return ""
	case s.Hidden > 0:
		return fmt.Sprintf("the owner of the schema doesn't see the state of %d: grant it pg_monitor", s.Hidden)
	}
	return "none is synchronous and streaming: start it, and look at pg_stat_replication and synchronous_standby_names"
}

// Join writes a node's row, with the time. The first time it is refused without a synchronous standby; always when a
// later incarnation or process has joined, or another one of the same number.
func (e *Engine) Join(ctx context.Context, m Member) error {
	var done bool
	if err := e.call(ctx, &done, "SELECT mta_cluster.joined($1, $2)", m, e.replicated); err != nil {
		return fmt.Errorf("joining the cluster as node %d: %w", m.Number, err)
	}
	return nil
}

// Forget raises the incarnation of a node that is gone for good, and reports whether that had to be done. It is refused
// while the node answers, unless it is known to be dead.
func (e *Engine) Forget(ctx context.Context, node uint16, dead bool) (done bool, err error) {
	if err = e.protected(); err != nil {
		return false, err
	}
	err = e.call(ctx, &done, "SELECT mta_cluster.forgotten($1, $2)", node, dead)
	return done, err
}

// WouldForget is Forget without the change: what the cluster has of the node, and for how many shards it decides.
func (e *Engine) WouldForget(ctx context.Context, node uint16, dead bool) (
	m Member, shards int, would bool, err error,
) {
	var none int
	err = e.call(ctx, &none, wouldForget, node, dead)
	if p := (*pgconn.PgError)(nil); errors.As(err, &p) && p.Code == noNumber {
		would, err = strings.Contains(p.Message, "true"), nil
	}
	if err != nil {
		return m, 0, false, err
	}
	v, err := e.View(ctx)
	for _, row := range v.Members {
		if row.Number == node {
			m = row
		}
	}
	if err == nil {
		err = e.call(ctx, &shards, "SELECT to_jsonb(count(*)) FROM mta_cluster.shards s WHERE s.node = $1", node)
	}
	return m, shards, would, err
}

// wouldForget forgets a node, and fails then, with what that returned in the error's text, so that the transaction
// changes nothing.
const (
	wouldForget = "SELECT to_jsonb((mta_cluster.forgotten($1, $2) #>> '{}')::int)"
	noNumber    = "22P02"
)

// Fence forgets a node as Forget does, unless it has another incarnation: another relay may have its number then.
func (e *Engine) Fence(ctx context.Context, node uint16, incarnation uint64, dead bool) error {
	var done bool
	return e.call(ctx, &done, fence, node, incarnation, dead)
}

const fence = `WITH there AS MATERIALIZED (
	SELECT m.number FROM mta_cluster.members m WHERE m.number = $1 AND m.incarnation = $2 FOR UPDATE)
	SELECT COALESCE((SELECT mta_cluster.forgotten(t.number, $3) FROM there t), 'false')`

// Reset begins anew what the nodes have in the database, for a node that knows of an earlier reset, and returns its
// number, which is later than that. Shards have no owner for a term.
func (e *Engine) Reset(ctx context.Context, node uint16, known uint64) (reset uint64, err error) {
	if err = e.call(ctx, &reset, "SELECT mta_cluster.reset($1, $2)", node, known); err != nil {
		err = fmt.Errorf("the reset of the cluster: %w", err)
	}
	return reset, err
}

// View reads all rows of members, and the standbys. It waits for no commit.
func (e *Engine) View(ctx context.Context) (v View, err error) {
	var got struct {
		View
		Members []json.RawMessage
	}
	if err = e.call(ctx, &got, view); err != nil {
		return v, fmt.Errorf("the members of the cluster: %w", err)
	}
	v = got.View
	for _, text := range got.Members { // a node that runs writes its row anew
		m, lacks := struct {
			Member
			Ago *float64 `json:"ago"`
		}{}, ""
		wrong := (*json.UnmarshalTypeError)(nil) // all else was read
		if err := json.Unmarshal(text, &m); errors.As(err, &wrong) {
			lacks, _, _ = strings.Cut(strings.TrimPrefix(wrong.Field, "Member."), ".")
		} else if err != nil {
			return View{}, fmt.Errorf("the members of the cluster: %w", err)
		}
		if lacks == "number" {
			return View{}, fmt.Errorf("the members of the cluster: %w", wrong)
		}
		if lacks == "plans" {
			m.Sums = nil
		}
		if m.Member.Ago = 0; m.Ago != nil {
			m.Member.Ago = *m.Ago
		} else {
			lacks = cmp.Or(lacks, "seen")
		}
		if lacks != "" {
			v.Fault = cmp.Or(v.Fault, fmt.Errorf("the row of node %d in mta_cluster.members can't be read in %s",
				m.Number, lacks))
		}
		v.Members = append(v.Members, m.Member)
	}
	return v, nil
}

const view = `SELECT jsonb_build_object('standbys', mta_cluster.standbys(),
	'now', extract(epoch FROM clock_timestamp()),
	'reset', (SELECT to_jsonb(v)->'reset' FROM mta_cluster.version v),
	'version', (SELECT v.version FROM mta_cluster.version v), 'members', COALESCE(jsonb_agg(to_jsonb(m)
	|| jsonb_build_object('ago', CASE WHEN isfinite(m.seen) THEN extract(epoch FROM clock_timestamp() - m.seen) END)
	ORDER BY m.number), '[]'))
	FROM mta_cluster.members m`

// Unfit reports whether an error is the database's answer that it can't be used as it is: the login, the name, the
// schema, the rights or its version are wrong.
func Unfit(err error) bool {
	p := (*pgconn.PgError)(nil)
	return errors.As(err, new(tooOld)) ||
		errors.As(err, &p) && slices.Contains([]string{"28", "3D", "3F", "42"}, p.Code[:min(2, len(p.Code))])
}
