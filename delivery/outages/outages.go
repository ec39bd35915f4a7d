// Package outages has the nodes of a cluster know which hosts one of them could not reach, and which it reached again.
// It is a kind of changes.
//
// The rules, each with the failure that it prevents:
//
//   - Only the step from sound to down is shared, and the one back: a host that stays down costs one row.
//   - Others count it as a first failure, for a minute at most, no longer than the node that had it, and less its age.
//     Then each tries by itself: mail waits that long where only one node has no way to the host.
//   - Who has an open connection, or has failed itself, doesn't heed it: it knows better.
//   - "Reached" outranks "down" by nodes that had not heard of it: a connection proves more than none.
//   - A node that left a host alone, and hears "reached", shares no failure of that host before it has reached it: else
//     one without a way there has the others wait again and again.
//   - A node that fails to reach 30 % of its sites shares no failure, and takes back those of the last minute: its own
//     network is what fails.
//   - A node shares 20 hosts a second, each as it is then, and none while 200 changes wait: the engine has to write
//     them, and what comes late is of no use.
package outages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/route"
)

const (
	most      = 5                      // hosts that are noted at once
	gap       = 250 * time.Millisecond // between two such times
	atOnce    = 30 * time.Second       // within which sites fail at once
	fewSites  = 10                     // with fewer than that nothing is known of a node's own network
	takenBack = time.Minute            // the age of failures that are taken back
	upFor     = time.Hour              // that a host was reached is of use so long: others try again by then
	distrust  = time.Hour              // without a connection
	mostHosts = 10_000                 // of which distrust is remembered
	longest   = 24 * time.Hour         // a wait
	tooMany   = 200                    // changes that wait: the engine is away
)

// Hosts is what delivery knows: see the methods of delivery.Scheduler.
type Hosts interface {
	Hear([]delivery.News) (again []netip.AddrPort)
	Answering(since time.Time) map[string]bool
}

// Config is what a Store works with.
type Config struct {
	Note func(keys []string) (done func(), err error) // see exchange.Exchange
	Age  func() time.Duration                         // likewise
	// Waiting is how many changes wait for the engine.
	Waiting func() int
	Now     func() time.Time
	Log     *slog.Logger
}

// Store has what a node shares of hosts. It implements changes.Kind, and is safe for concurrent use.
type Store struct {
	cfg   Config
	hosts Hosts
	wake  chan struct{}

	mu       sync.Mutex // guards what follows; hosts are not asked while it is held
	next     map[netip.AddrPort]notice
	said     map[netip.AddrPort]notice // noted, until it ends
	distrust map[netip.AddrPort]time.Time
	sites    map[string]tried
	prune    int // sites beyond which old ones are forgotten
}

// notice is what is shared of a host; zero: nothing any more.
type notice struct {
	host      string // its name
	down      string // why it can't be reached; "": it was reached
	at, until time.Time
}

func (n *notice) over(now time.Time) bool { return *n != (notice{}) && !n.until.After(now) }

// tried is how the last attempt to connect to a site ended.
type tried struct {
	stood bool
	at    time.Time
}

// value is a notice as the engine has it: times of two machines are never compared.
type value struct {
	Host string `json:"host,omitempty"`
	Down string `json:"down,omitempty"`
	Wait int64  `json:"wait_ms,omitempty"` // from when it was sent
	Up   bool   `json:"up,omitempty"`
}

// New makes a Store. Join must follow before any of its methods is called but Reach.
func New(cfg Config) *Store {
	return &Store{cfg: cfg, wake: make(chan struct{}, 1), next: make(map[netip.AddrPort]notice),
		said: make(map[netip.AddrPort]notice), distrust: make(map[netip.AddrPort]time.Time),
		sites: make(map[string]tried)}
}

// Join gives it the hosts of its node.
func (s *Store) Join(h Hosts) {
	if s != nil {
		s.hosts = h
	}
}

// OnReach returns Reach; nil without a Store.
func (s *Store) OnReach() func(delivery.Reach) {
	if s == nil {
		return nil
	}
	return s.Reach
}

// Reach takes note of an attempt to connect: see delivery.Config.OnReach.
func (s *Store) Reach(r delivery.Reach) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sites[r.Site] = tried{r.Stood, now}
	if len(s.sites) > s.prune {
		s.recent(now)
		s.prune = max(1000, 2*len(s.sites))
	}
	addr := r.Host.Addr
	if r.Stood {
		delete(s.distrust, addr)
	}
	down := s.said[addr].down + s.next[addr].down // the record can be gone that others have heard of
	switch {
	case r.Again, r.Stood && down != "":
		s.next[addr] = notice{host: r.Host.Name, at: now, until: now.Add(upFor)}
	case r.Down != "" && !now.Before(s.distrust[addr]):
		s.next[addr] = notice{host: r.Host.Name, down: r.Down, at: now, until: now.Add(r.Wait)}
	case r.Stood:
		return
	}
	if len(s.next)+len(s.said) > 0 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// recent forgets the sites that were not tried of late, and counts the others, and those that failed. The caller has
// mu.
func (s *Store) recent(now time.Time) (all, failed int) {
	for site, t := range s.sites {
		switch {
		case now.Sub(t.at) > atOnce:
			delete(s.sites, site)
			continue
		case !t.stood:
			failed++
		}
		all++
	}
	return all, failed
}

// Run notes what is to be shared, until ctx ends.
func (s *Store) Run(ctx context.Context) {
	if s == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for more := true; more && ctx.Err() == nil; {
			more = s.share()
			select {
			case <-ctx.Done():
			case <-time.After(gap):
			}
		}
	}
}

// share notes some, and reports whether there are more.
func (s *Store) share() (more bool) {
	now := s.cfg.Now()
	cutOff := s.cutOff(now)
	s.mu.Lock()
	for addr, n := range s.next {
		if cutOff && n.down != "" || n.over(now) {
			delete(s.next, addr)
		}
	}
	for addr, n := range s.said {
		if _, newer := s.next[addr]; n.over(now) {
			delete(s.said, addr)
		} else if cutOff && n.down != "" && now.Sub(n.at) < takenBack && !newer {
			s.next[addr] = notice{}
		}
	}
	taken, keys := make(map[netip.AddrPort]notice), []string(nil)
	for addr, n := range s.next {
		if more = len(keys) == most; more {
			break
		}
		delete(s.next, addr)
		taken[addr], keys = n, append(keys, addr.String())
	}
	s.mu.Unlock()
	if len(keys) == 0 || s.cfg.Waiting() > tooMany { // each node finds out by itself then
		return more
	}
	done, err := s.cfg.Note(keys)
	if err != nil { // each node finds out by itself then
		s.cfg.Log.Error("what is known of hosts is not shared", "hosts", len(keys), "error", err)
		return more
	}
	defer done()
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr, n := range taken {
		if delete(s.said, addr); n != (notice{}) {
			s.said[addr] = n
		}
	}
	return more
}

// cutOff reports whether the network of this node is what fails.
func (s *Store) cutOff(now time.Time) bool {
	s.mu.Lock()
	all, failed := s.recent(now)
	s.mu.Unlock()
	if !much(failed, all) {
		return false
	}
	answering := s.hosts.Answering(now.Add(-atOnce))
	s.mu.Lock()
	for site := range s.sites {
		delete(answering, site)
	}
	all += len(answering)
	s.mu.Unlock()
	return all >= fewSites && much(failed, all)
}

func much(failed, all int) bool { return 10*failed >= 3*all && failed > 0 }

// All implements changes.Kind.
func (s *Store) All(_ context.Context, each func(keys []string) error) error {
	s.mu.Lock()
	var keys []string
	for addr := range s.said {
		keys = append(keys, addr.String())
	}
	s.mu.Unlock()
	return each(keys)
}

// Get implements changes.Kind: what has ended meanwhile is not sent.
func (s *Store) Get(_ context.Context, keys []string) (map[string][]byte, error) {
	now, values := s.cfg.Now(), make(map[string][]byte)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		addr, err := hostOf(key)
		n, is := s.said[addr]
		if err != nil || !is || n.over(now) {
			continue
		}
		v := value{Up: n.down == ""}
		if plain(n.host) {
			v.Host = n.host
		}
		if !v.Up {
			v.Down, v.Wait = n.down, max(n.until.Sub(now).Milliseconds(), 1)
		}
		if values[key], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func hostOf(key string) (netip.AddrPort, error) {
	addr, err := netip.ParseAddrPort(key)
	if err == nil && addr.String() != key {
		err = fmt.Errorf("the key %q is not as an address and port are written", key)
	}
	return addr, err
}

func parse(key string, text []byte) (addr netip.AddrPort, v value, err error) {
	if addr, err = hostOf(key); err == nil {
		err = json.Unmarshal(text, &v)
	}
	switch wait := time.Duration(v.Wait) * time.Millisecond; {
	case err != nil:
	case v.Up != (v.Down == ""), !v.Up && (v.Wait <= 0 || v.Wait > longest.Milliseconds()), wait < 0,
		!plain(v.Host), !plain(v.Down):
		err = errors.New("it is nothing that a node knows of a host")
	}
	return addr, v, err
}

// plain reports whether a text can be shown in one line.
func plain(text string) bool {
	for _, c := range text {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return len(text) <= 255
}

// Look implements changes.Kind.
func (s *Store) Look(key string, text []byte) (rank int, until time.Time, err error) {
	_, v, err := parse(key, text)
	if rank = 1; v.Up {
		rank = 2
	}
	return rank, s.cfg.Now().Add(time.Duration(v.Wait) * time.Millisecond), err
}

// Apply implements changes.Kind. What was down so long ago that its wait may be over is left out, and what was reached
// over an hour ago.
func (s *Store) Apply(_ context.Context, values map[string][]byte, stays func(key string) bool) error {
	var news []delivery.News
	age := s.cfg.Age()
	for key, text := range values {
		addr, err := hostOf(key)
		n := delivery.News{Host: route.Host{Addr: addr}}
		if err == nil && text != nil {
			var v value
			_, v, err = parse(key, text)
			n.Host.Name, n.Up, n.Down = v.Host, v.Up, v.Down
			n.Wait = time.Duration(v.Wait)*time.Millisecond - age
		}
		if err != nil && text != nil {
			return err
		}
		if err != nil || n.Down != "" && n.Wait <= 0 || n.Up && age > upFor || s.changes(addr) || stays(key) {
			continue
		}
		news = append(news, n)
	}
	again := s.hosts.Hear(news)
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.distrust) >= mostHosts {
		maps.DeleteFunc(s.distrust, func(_ netip.AddrPort, until time.Time) bool { return !now.Before(until) })
	}
	for _, addr := range again {
		if len(s.distrust) < mostHosts {
			s.distrust[addr] = now.Add(distrust)
		}
		if s.next[addr].down != "" { // it has failed as soon as it was tried again
			delete(s.next, addr)
		}
	}
	return nil
}

// changes reports whether this node is about to note something newer of a host.
func (s *Store) changes(addr netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, is := s.next[addr]
	return is
}
