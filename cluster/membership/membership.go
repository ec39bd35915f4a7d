// Package membership is a relay's part in a cluster. Under the number of its certificate the relay joins, writes its
// row into the database every few seconds, and reads those of the others. While the row is its own, it runs the node,
// the exchange of what all nodes know, and the link to the other nodes.
//
// A data directory has the right to a number by the file that package node keeps there. Two things end that right: the
// row has a later incarnation, since the node was forgotten, or it shows more than the file has, since another process
// has gone on with another copy of the directory.
package membership

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"example.org/mta/cluster/ca"
	"example.org/mta/cluster/changes"
	"example.org/mta/cluster/exchange"
	"example.org/mta/cluster/link"
	"example.org/mta/cluster/node"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/postgres"
	"example.org/mta/cluster/term"
	"example.org/mta/internal/certificates"
	"example.org/mta/internal/faultlog"
	"example.org/mta/internal/format"
	"example.org/mta/internal/smallfile"
)

// Intervals of a membership.
const (
	look  = 5 * time.Second // between two readings
	retry = time.Second     // likewise, until the relay has joined, and when a node is asked for that is not known
)

// Term is how long rights last, the same for all nodes.
var Term = term.Term{Length: 3 * time.Minute, Drift: 200e-6}

// Engine is the database.
type Engine interface {
	node.Engine
	Join(context.Context, postgres.Member) error
	View(context.Context) (postgres.View, error)
	Fence(ctx context.Context, node uint16, incarnation uint64, dead bool) error
	Reset(ctx context.Context, node uint16, known uint64) (uint64, error)
	Close()
}

// Config is a membership's.
type Config struct {
	Database postgres.Config
	Name     string // the nodeid of this relay
	Address  string // where this node listens, and where the others reach it
	Pair     certificates.Pair
	CA       string             // the file of the cluster's authority
	Path     string             // of what the node keeps in the data directory
	Changes  *exchange.Exchange // exchanged while this relay takes part; may be nil
	Version  string             // of the program
	Part     bool               // after a loss of the database this node goes on by a part of each limit
	Now      func() time.Time
	Log      *slog.Logger

	// What Open makes, unless a test has.
	writer, reader Engine           // the reader's calls never wait for the standby
	sharer         *postgres.Engine // the changes' alone: theirs may wait long
	clock          func() time.Duration
	boot, life     uint64 // life distinguishes two processes of copies of a data directory
	listener       net.Listener
	dial           func(ctx context.Context, address string) (net.Conn, error)
}

// Membership is a relay's part in a cluster; nil is that of a relay without one. It is safe for concurrent use.
//
// Goroutines: Start's, the link's, the node's and that of the changes, which end with Close.
type Membership struct {
	cfg    Config
	number uint16
	certs  *certificates.Store
	link   *link.Link
	talks  map[string]func(ctx context.Context, from uint16, talk net.Conn) // set before Start
	ctx    context.Context
	end    context.CancelFunc
	all    sync.WaitGroup

	unknown chan struct{}                                                  // a node is asked for that the rows lack
	have    kept                                                           // Open's, then run's
	row     *postgres.Member                                               // likewise: as written last; nil: not yet
	settled func(note string) (end string, keep time.Duration, taken bool) // set before Start

	mu      sync.Mutex // guards what follows
	view    postgres.View
	read    time.Duration // by the clock: when view was
	steady  time.Duration // since when there were readings without a gap
	node    *node.Node
	joined  bool          // node may run: the row is its
	over    bool          // it may not any more
	ousted  error         // why the mail here may be another node's; nil: it is not
	since   time.Duration // by the clock: when joined
	stuck   time.Duration // likewise: since when only its row can't be written, 0: it can
	failed  error         // why the newest attempt to read and write the row did
	changed func(members bool)
	unheard *faultlog.Kind // the row has not been written for long

	fixed  map[string]string        // sums of this relay's settings
	shared func() map[string]string // and of what nodes share, such as users
	sums   map[string]string        // both, as compared last
	apart  map[uint16]time.Duration // by the clock: since when members have other settings
}

// kept is what package node keeps.
type kept struct {
	Node                 uint16
	Name                 string
	Incarnation, Process uint64
	Seen                 float64 // by the database's clock, in seconds since 1970
	Memory               owner.Memory
}

// noted is Seen as the row of the node has it.
func (k kept) noted() uint64 { return uint64(k.Seen * 1e6) }

// behind reports whether the row of the same incarnation shows more than the file has. When the node before was
// forgotten, the row shows what that had.
func (k kept) behind(row *postgres.Member) bool {
	return row.Process > k.Process || !row.Forgotten && row.Noted > k.noted()
}

// Refusal is why a data directory can't take part under its number, with the remedy.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// final is a Refusal that another start meets, too, until an operator acts. It is format.ErrRefused.
type final struct{ Refusal }

func (f final) Unwrap() error        { return f.Refusal }
func (f final) Is(target error) bool { return target == format.ErrRefused }

// ousted is a final Refusal of a directory whose mail another relay may have.
type ousted struct{ final }

// lost is a Refusal that ends with a reset of the database.
type lost struct{ Refusal }

func (l lost) Unwrap() error { return l.Refusal }

// Open joins the cluster, or takes part in it again. If the database does not answer, Start goes on with that. Open
// fails with a Refusal, which is format.ErrRefused if no restart mends it, and when a relay that has never taken part
// can't use the database as it is. If the database has lost writes, Start waits for a reset.
func Open(cfg Config) (*Membership, error) {
	m := &Membership{cfg: cfg, certs: certificates.New(cfg.Now, cfg.Log), changed: func(bool) {},
		unheard: faultlog.New(cfg.Log, cfg.Now, slog.LevelError, "this node can't read and write its row of the "+
			"cluster's members: to the others it is gone", "this node writes its row of the cluster's members again"),
		unknown: make(chan struct{}, 1),
		talks:   map[string]func(context.Context, uint16, net.Conn){}}
	own, err := m.certificate()
	if err != nil {
		return nil, err
	}
	if _, m.number, err = ca.Identity(own.Leaf); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Pair.Certificate, err)
	}
	m.ctx, m.end = context.WithCancel(context.Background())
	if err = m.complete(); err == nil {
		m.link = link.New(link.Config{Node: m.number, Certificate: m.certificate, Address: m.address, Talks: m.talks,
			Authorities: func() (*x509.CertPool, error) { return m.certs.Authorities(cfg.CA) },
			Dial:        m.cfg.dial, Receive: m.receive, Now: cfg.Now, Log: cfg.Log})
		m.attend()
		if ends(m.failed) || m.have.Process == 0 && postgres.Unfit(m.failed) {
			err = m.failed
		}
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// complete makes what the configuration leaves to it.
func (m *Membership) complete() (err error) {
	c := &m.cfg
	if c.clock != nil {
		return nil
	}
	c.life = rand.Uint64()
	c.dial = func(ctx context.Context, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	if c.clock, c.boot, err = node.Boot(); err != nil {
		return err
	}
	for _, e := range []*Engine{&c.writer, &c.reader} {
		p, err := postgres.Open(c.Database)
		if err != nil {
			return err
		}
		*e = p
	}
	if c.sharer, err = postgres.Open(c.Database); err == nil {
		c.listener, err = net.Listen("tcp", c.Address)
	}
	return err
}

// Close hands over what this node has, and ends what Start began. Delivery has ended before.
func (m *Membership) Close() error {
	if m == nil {
		return nil
	}
	m.end()
	m.all.Wait()
	if m.cfg.listener != nil {
		m.cfg.listener.Close()
	}
	if m.cfg.sharer != nil {
		m.cfg.sharer.Close()
	}
	for _, e := range []Engine{m.cfg.writer, m.cfg.reader} {
		if e != nil {
			e.Close()
		}
	}
	return nil
}

// Start takes part until Close.
func (m *Membership) Start() {
	if m != nil {
		m.all.Go(m.run)
	}
}

func (m *Membership) run() {
	var nodes, links sync.WaitGroup
	linked, unlink := context.WithCancel(context.Background())
	links.Go(func() {
		if err := m.link.Run(linked, m.cfg.listener); err != nil {
			m.cfg.Log.Error("no more connections of the cluster's nodes are taken", "error", err)
		}
	})
	taking, leave := context.WithCancel(m.ctx)
	for running, wait := false, retry; ; m.attend() {
		m.mu.Lock()
		joined, over, n := m.joined, m.over, m.node
		m.mu.Unlock()
		if joined && !running {
			running, wait = true, look
			m.cfg.Log.Info("this relay takes part in the cluster", "node", m.number, "incarnation", m.have.Incarnation)
			m.change(false) // before it asks: what is in use already counts
			nodes.Go(func() { n.Run(taking) })
			if m.cfg.Changes != nil {
				me := changes.Me{Node: m.number, Incarnation: m.have.Incarnation}
				nodes.Go(func() { m.cfg.Changes.Run(taking, me, m.cfg.sharer) })
			}
		}
		if over {
			leave()
		}
		if !m.pause(wait) {
			break
		}
	}
	leave()
	nodes.Wait()
	m.depart()
	unlink()
	links.Wait()
}

// depart has the row show no boot: this relay has stopped in order, so that another machine need not wait.
func (m *Membership) depart() {
	m.mu.Lock()
	stays := m.over || m.failed != nil
	m.mu.Unlock()
	if m.row == nil || stays {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), owner.Patience)
	defer cancel()
	m.row.Boot = 0
	_ = m.cfg.writer.Join(ctx, *m.row) // or the other machine waits
}

// pause waits for d, or for retry if a node is asked for that is not known: it may have joined. It returns false when
// the membership ends.
func (m *Membership) pause(d time.Duration) bool {
	least, most := time.After(retry), time.After(d)
	select {
	case <-least:
	case <-m.ctx.Done():
		return false
	}
	select {
	case <-m.unknown:
	case <-most:
	case <-m.ctx.Done():
	}
	return m.ctx.Err() == nil
}

// attend reads the rows and writes this relay's.
func (m *Membership) attend() {
	ctx, cancel := context.WithTimeout(m.ctx, owner.Patience)
	defer cancel()
	view, err := m.cfg.reader.View(ctx)
	if own := m.described(); err == nil {
		m.mu.Lock()
		was := m.count()
		if now := m.cfg.clock(); m.view.Members == nil || now-m.read > absent {
			m.steady = now
		}
		m.view, m.read = view, m.cfg.clock()
		m.sums = own
		m.compare()
		other := m.count() != was
		m.mu.Unlock()
		if other {
			m.change(true)
		}
		err = m.join(ctx, view)
	}
	if m.ctx.Err() != nil {
		return
	}
	n := m.Node()
	works := n != nil && n.Failing() == nil && n.Silent() <= owner.Patience
	m.mu.Lock()
	was := m.joined && !m.over
	if !m.joined && err == nil {
		m.joined, m.since = true, m.cfg.clock()
	}
	m.over = m.over || m.joined && ends(err)
	if errors.As(err, new(ousted)) {
		m.ousted = err
	}
	switch m.failed = err; {
	case err == nil || !works:
		m.stuck = 0
		m.unheard.Well()
	case m.stuck == 0:
		m.stuck = m.cfg.clock()
	case m.unwritten() > 0:
		m.unheard.Failed("", "error", err)
	}
	if was && m.over {
		defer m.change(false)
	}
	m.mu.Unlock()
}

// unwritten is for how long this node can't write its row, although its calls have results; 0 if that is not long. m.mu
// is held.
func (m *Membership) unwritten() time.Duration {
	if d := m.cfg.clock() - m.stuck; m.stuck != 0 && d >= 2*look {
		return d
	}
	return 0
}

// ends reports whether a relay that meets an error takes no part any more.
func ends(err error) bool { return errors.As(err, new(Refusal)) && !errors.As(err, new(lost)) }

// join writes this relay's row, if it may, and follows a reset. Before it does so for the first time, it makes the
// node.
func (m *Membership) join(ctx context.Context, view postgres.View) (err error) {
	row := find(view, m.number)
	if m.node == nil {
		file := (*fs.PathError)(nil)
		if m.have, err = read(m.cfg.Path); errors.As(err, &file) { // too many open files, perhaps: a restart mends it
			return Refusal(err.Error())
		} else if err != nil {
			return damaged(m.cfg.Path, err)
		}
	}
	if m.have.Node != 0 && m.have.Node != m.number {
		return final{Refusal(fmt.Sprintf("%s belongs to node %d, and the certificate %s to node %d: one of the two is "+
			"the wrong one", m.cfg.Path, m.have.Node, m.cfg.Pair.Certificate, m.number))}
	}
	if err := m.right(row, view); err != nil {
		if m.node != nil && errors.As(err, new(lost)) {
			m.node.Lose(err)
		}
		return err
	}
	// A member that has a name in common with another one goes on, with an alarm: its mail waits for it.
	if other := m.namesake(view); other != "" && m.have.Incarnation == 0 {
		return final{Refusal(fmt.Sprintf("node %d: %s; or if that relay is gone for good, 'mta cluster forget' it",
			m.number, other))}
	}
	if m.node == nil {
		if err := m.begin(row, view.Now); err != nil {
			return err
		}
	}
	m.have.Seen = m.node.Seen(view.Now)
	row = &postgres.Member{Number: m.number, Name: m.cfg.Name, Address: m.cfg.Address, Sums: m.described(),
		Version: m.cfg.Version, Incarnation: m.have.Incarnation, Process: m.have.Process, Life: m.cfg.life,
		Boot: m.cfg.boot, Noted: m.have.noted()}
	if view.Version >= postgres.Reserves { // who has read this row may rely on that this node heeds reserves
		m.node.KnowsReserves()
		row.OnLoss = m.onLoss()
	}
	if err = m.cfg.writer.Join(ctx, *row); err == nil {
		m.row = row
	}
	if err == nil && m.resets() < view.Reset {
		m.node.Reset(view.Reset)
	}
	return err
}

// onLoss is what this node does after a loss of the database.
func (m *Membership) onLoss() string {
	if m.cfg.Part {
		return "part"
	}
	return "wait"
}

// resets is the newest reset of the database that this relay has followed.
func (m *Membership) resets() uint64 {
	if m.node == nil {
		return m.have.Memory.Reset
	}
	return m.node.Resets()
}

// Reset begins anew what the nodes have in the database, after it has lost writes. All nodes follow as they read the
// members, within seconds; shards are taken a term later.
func (m *Membership) Reset(ctx context.Context) error {
	m.mu.Lock()
	known := m.view.Reset
	if m.node != nil {
		known = max(known, m.node.Resets())
	}
	m.mu.Unlock()
	_, err := m.cfg.writer.Reset(ctx, m.number, known)
	return err
}

// begin makes the node, and the file of one that joins for the first time.
func (m *Membership) begin(row *postgres.Member, now float64) (err error) {
	if m.have.Incarnation == 0 {
		m.have.Incarnation = 1
		if row != nil {
			m.have.Incarnation = row.Incarnation
		}
		if err := node.Create(m.cfg.Path, m.have.Incarnation); err != nil {
			return err
		}
	}
	n, err := node.New(node.Config{Node: m.number, Name: m.cfg.Name, Engine: m.cfg.writer, Term: Term,
		Path: m.cfg.Path, Seen: now, Part: m.cfg.Part,
		Clock: m.cfg.clock, Boot: m.cfg.boot, Rand: rand.New(rand.NewPCG(m.cfg.life, uint64(m.number))),
		Incarnation: m.incarnation, Members: m.members, Send: m.link.Send,
		Mail:    func(r once.Row) (string, time.Duration, bool) { return m.settled(r.Note) },
		Changed: func() { m.change(false) }, Now: m.cfg.Now, Log: m.cfg.Log})
	if err == nil {
		m.have, err = read(m.cfg.Path)
	}
	if err == nil {
		m.mu.Lock()
		m.node = n
		m.mu.Unlock()
	}
	return err
}

// read reads the file of the node; without one there is no incarnation.
func read(path string) (k kept, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		_, err = smallfile.Unmarshal(text, &k)
	}
	return k, err
}

// NodeOf returns the number of the node whose file this is; 0: there is none.
func NodeOf(path string) (uint16, error) {
	k, err := read(path)
	return k.Node, err
}

// right returns why the data directory can't take part by the row of its node, nil without one.
func (m *Membership) right(row *postgres.Member, view postgres.View) error {
	have, standbys, followed := m.have, view.Standbys, m.resets()
	begun := have.Memory.Origin.System != 0 || have.Memory.Reset != 0
	refuse := func(format string, args ...any) Refusal {
		return Refusal(fmt.Sprintf("node %d: %s", m.number, fmt.Sprintf(format, args...)))
	}
	lose := func(format string, args ...any) error {
		return lost{Refusal("the database has lost writes: " + fmt.Sprintf(format, args...))}
	}
	const anew = "'mta cluster rejoin' has this relay join anew"
	const gone = "If that relay is gone for good, " + anew
	switch {
	case have.Incarnation != 0 && view.Reset < followed:
		return lose("its last reset is %d, and this node has followed %d", view.Reset, followed)
	case row == nil && begun && view.Reset > followed: // the row was lost
		return nil
	case row == nil && begun && m.node != nil:
		return lose("it has no row of this node")
	case row == nil && begun:
		return final{refuse("the database has no row of this node any more: is it the right database? If so, %s", anew)}
	case row == nil && !m.cfg.Database.Replicated && standbys.Missing() != "":
		return refuse("the database has no synchronous standby (%s), so that a failover would lose what it has "+
			"acknowledged: 'mta cluster check'; replicated = true is for a service that replicates below the database",
			standbys.Missing())
	case row == nil, have.Incarnation == 0 && row.Forgotten:
		return nil
	case have.Incarnation == 0:
		return final{refuse("the number belongs to the relay at %s, seen %.0fs ago, and this data directory is not "+
			"that relay's. Issue a certificate with another number. %s", row.Address, row.Ago, gone)}
	case have.Incarnation < row.Incarnation:
		return ousted{final{refuse("this node was forgotten, and may have been replaced: it is incarnation %d, and "+
			"the database has %d. If no other relay has the number, %s; else issue a certificate with another number "+
			"first", have.Incarnation, row.Incarnation, anew)}}
	case have.Incarnation > row.Incarnation && view.Reset == followed:
		return lose("it has incarnation %d of this node, which has joined as %d", row.Incarnation, have.Incarnation)
	case have.Incarnation > row.Incarnation:
		return nil
	case have.behind(row), m.node != nil && row.Process == have.Process && row.Life != m.cfg.life:
		return ousted{final{refuse("another process has joined at %s, seen %.0fs ago: one of the two data "+
			"directories is a copy, or was restored from a backup or a snapshot, and what has left since would leave "+
			"twice. Stop one. %s", row.Address, row.Ago, gone)}}
	case m.node == nil && row.Boot != 0 && row.Boot != m.cfg.boot && row.Ago < absent.Seconds():
		return refuse("its relay has run on another machine, or before a restart of this one, and was seen at %s "+
			"%.0fs ago: this one may start when that was not seen for %.0f s", row.Address, row.Ago, absent.Seconds())
	}
	return nil
}

// namesake is which other member has the nodeid of this relay, with the remedy; "": none.
func (m *Membership) namesake(v postgres.View) string {
	for _, row := range v.Members {
		if row.Number != m.number && !row.Forgotten && row.Name == m.cfg.Name {
			return fmt.Sprintf("node %d at %s has the nodeid %q of this relay, and events, tokens and moved mail name "+
				"relays by that: set another nodeid, which is the hostname unless it is set, at one of them, and "+
				"restart it", row.Number, row.Address, row.Name)
		}
	}
	return ""
}

func find(v postgres.View, number uint16) *postgres.Member {
	for i := range v.Members {
		if v.Members[i].Number == number {
			return &v.Members[i]
		}
	}
	return nil
}

func (m *Membership) certificate() (*tls.Certificate, error) { return m.certs.Client(m.cfg.Pair) }

// member is the row of a node as it was read last.
func (m *Membership) member(number uint16) (row postgres.Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found := find(m.view, number); found != nil {
		row = *found
	}
	return row
}

func (m *Membership) address(number uint16) (string, bool) {
	row := m.member(number)
	if row.Number == 0 || row.Forgotten {
		select {
		case m.unknown <- struct{}{}:
		default:
		}
	}
	return row.Address, row.Number != 0 && !row.Forgotten
}

func (m *Membership) incarnation(number uint16) uint64 { return m.member(number).Incarnation }

// members are the nodes there are, as far as they were read, and those that are off: see share.Book.Census. This one
// may have no row yet.
func (m *Membership) members() (all []uint16, off map[uint16]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	off = make(map[uint16]uint64)
	for _, row := range m.view.Members {
		if off[row.Number] = row.Dead; !row.Forgotten && row.Number != m.number {
			all = append(all, row.Number)
		}
	}
	return append(all, m.number), off
}

func (m *Membership) receive(msg link.Message) error {
	if n := m.Node(); n != nil {
		return n.Receive(msg)
	}
	return errors.New("this node takes no part in the cluster")
}

// OnUnsettled has f called with the notes of this node's claims whose requests are over, as they were left by a process
// that crashed. f returns how they have ended and for how long that is kept, false if nothing was taken; it must not
// use the Node. OnUnsettled is called before Start.
func (m *Membership) OnUnsettled(f func(note string) (end string, keep time.Duration, taken bool)) {
	m.settled = f
}

// OnTalk has f called with the talks that other nodes open for a purpose: see package link. It is called before Start.
func (m *Membership) OnTalk(purpose link.Purpose, f func(ctx context.Context, from uint16, talk net.Conn)) {
	m.talks[purpose.Name] = f
}

// Talk opens a talk with another node.
func (m *Membership) Talk(ctx context.Context, node uint16, purpose link.Purpose) (net.Conn, error) {
	return m.link.Open(ctx, node, purpose)
}

// Node is what takes part, nil while nothing does: nothing of a shared limit may be used then.
func (m *Membership) Node() *node.Node {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.joined || m.over {
		return nil
	}
	return m.node
}

// OnChange has f called when there are more or fewer members, and when what Node may use has changed, also since there
// is a node or none any more. f does not block.
func (m *Membership) OnChange(f func(members bool)) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed = f
}

func (m *Membership) change(members bool) {
	m.mu.Lock()
	f := m.changed
	m.mu.Unlock()
	f(members)
}
