package auth

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/faultlog"
	"example.org/mta/internal/smallfile"
)

// Errors of an exchange. All that is wrong with a name and a password is ErrDenied.
var (
	ErrDenied    = errors.New("user name or password is wrong")
	ErrMalformed = errors.New("the response is malformed")
	// ErrTooMany is for a client from whose network too many logins have failed, ErrBusy for one that had no turn
	// because of others: it has done nothing wrong.
	ErrTooMany = errors.New("too many logins have failed")
	ErrBusy    = errors.New("too many others log in")
	ErrNoUsers = errors.New("the users file can't be read")
)

// checkEvery is how old what is known of the users file may be when an open session is asked about. A
// login always looks.
const checkEvery = time.Second

// Config is what a Service needs to know.
type Config struct {
	File   string       // of users
	Shared *SharedUsers // count before the file; nil: none
	// Scheme is what hashes are made in; others are renewed by it at the next login.
	Scheme Scheme
	// Secret makes the salts of users that don't exist. It should outlive the process: whoever sees
	// a salt change knows that there is no such user. Nil: of this process.
	Secret func() []byte
	// Known is the file of the networks that users have logged in from; "": they are forgotten with the process.
	Known string
	Now   func() time.Time // nil: time.Now
	Log   *slog.Logger     // nil: none
}

// Service checks logins against a users file. It is safe for concurrent use, and shared by all
// listeners.
type Service struct {
	cfg Config

	known   *known
	guesses guesses
	slots   slots
	renew   *renewer
	writing *faultlog.Kind
	file    *smallfile.Follower[inForce]
	merging sync.Mutex
	merged  atomic.Pointer[inForce] // the shared users over those of the file; nil: not made yet

	succeeded, remembered, failed, refused atomic.Int64
}

// inForce is the users, and of them those with a password.
type inForce struct {
	*UserTable
	hashes []Hash
	sum    string // see UserTable.Sum

	file   *inForce          // that shared users are over, and
	shared *map[string]*User // which
}

// New makes a service. A users file that can't be read is no error: nobody can log in until it can.
func New(cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Scheme = cmp.Or(cfg.Scheme, Argon2id)
	if cfg.Secret == nil {
		secret := make([]byte, 32)
		rand.Read(secret)
		cfg.Secret = func() []byte { return secret }
	}
	s := &Service{cfg: cfg, known: newKnown(cfg.Now, newKnownFile(cfg.Known, cfg.Log)), slots: newSlots()}
	s.guesses = guesses{
		NewPace[netip.Prefix](PaceConfig{Free: freeByNetwork, Longest: longestByNet, Now: cfg.Now}),
		NewPace[string](PaceConfig{Free: freeByUser, Longest: longestByUser, Now: cfg.Now}),
		newChances(cfg.Now),
	}
	reading := faultlog.New(cfg.Log, cfg.Now, slog.LevelError,
		"the users file can't be read: the users before it stay in force", "the users file is read again")
	s.writing = faultlog.New(cfg.Log, cfg.Now, slog.LevelWarn,
		"hashes of passwords can't be renewed: the old ones stay good", "hashes of passwords are renewed again")
	s.renew = newRenewer(s.Users(), s.renewed)
	s.file = smallfile.Follow(cfg.File, inForceOf, func(was, is *inForce) {
		cfg.Shared.Take(cfg.File, is.Users())
		if was != nil {
			cfg.Log.Info("users file read", "file", cfg.File, "users", len(is.Users()))
		}
	}, reading)
	return s
}

// Close writes what is still to be written.
func (s *Service) Close() {
	if s == nil {
		return
	}
	s.renew.soon.close()
	s.known.file.write.close()
}

func (s *Service) renewed(err error) {
	if err != nil {
		s.writing.Failed("", "file", s.cfg.File, "error", err)
		return
	}
	s.writing.Well()
}

// inForceOf reads a users file.
func inForceOf(path string) (*inForce, error) {
	t, err := LoadUsers(path)
	if err != nil {
		return nil, err
	}
	next := newInForce(t)
	next.sum = t.Sum()
	return next, nil
}

func newInForce(t *UserTable) *inForce {
	next := &inForce{UserTable: t}
	for _, u := range t.Users() {
		if u.Hash.Scheme != "" {
			next.hashes = append(next.hashes, u.Hash)
		}
	}
	return next
}

// Users are those of the file, or of the cluster, to be changed.
func (s *Service) Users() File { return File{Path: s.cfg.File, Users: s.cfg.Shared} }

// users returns those in force, nil while there are none: what is known of the file is at most age old.
func (s *Service) users(age time.Duration) *inForce {
	file, shared := s.file.Get(age), s.cfg.Shared.InForce()
	if shared == nil {
		return file
	}
	if t := s.merged.Load(); t != nil && t.file == file && t.shared == shared {
		return t
	}
	s.merging.Lock()
	defer s.merging.Unlock()
	if t := s.merged.Load(); t != nil && t.file == file && t.shared == shared {
		return t
	}
	var own []*User
	if file != nil {
		own = file.Users()
	}
	next := newInForce(usersOf(s.cfg.Shared.Over(own)))
	next.file, next.shared = file, shared
	s.merged.Store(next)
	return next
}

// Client is who tries to log in.
type Client struct {
	Session string
	Peer    netip.AddrPort
	Network netip.Prefix         // what counts as one client
	TLS     *tls.ConnectionState // nil in clear
	CAs     *x509.CertPool       // whose client certificates count by name; nil: nobody's
}

// Login is a user who has logged in.
type Login struct {
	User      string
	Tenant    string
	Senders   Senders
	Role      string // at the console, see package users
	Mechanism string // SASL's name; "certificate" when the client's certificate was enough

	hash string
}

// Still reports whether a login is still good, and brings what the users file says of the user up to
// date: a user who was removed, or whose password was changed, is logged out.
func (s *Service) Still(l *Login) bool {
	t := s.users(checkEvery)
	if t == nil {
		return true
	}
	u := t.User(l.User)
	switch {
	case u == nil:
		return false
	case !s.renew.same(u.Name, l.hash, u.Hash.String()) && !slices.Contains(u.same, hashSum(l.hash)):
		return false
	}
	l.Tenant, l.Senders, l.Role = u.Tenant, u.Senders, u.Role
	return true
}

// Password checks a name and a password, as PLAIN does.
func (s *Service) Password(ctx context.Context, c Client, name, password string) (*Login, error) {
	e := &Exchange{a: &attempt{s: s, ctx: ctx, client: c, mechanism: ByPassword, began: s.cfg.Now()}}
	err := e.plain("", name, password)
	return e.login, err
}

// Knows reports whether somebody has logged in from a network within a day.
func (s *Service) Knows(network netip.Prefix) bool { return s.known.from(network) }

// Vouched gives the login of a user for whom somebody else has checked the password, nil when there is no such
// user. The name is the user's exactly: names that are one to this program may be two to whoever vouches.
func (s *Service) Vouched(name string) *Login {
	if t := s.users(checkEvery); t != nil {
		if u := t.User(name); u != nil {
			return loginOf(u, "")
		}
	}
	return nil
}

func loginOf(u *User, mechanism string) *Login {
	return &Login{User: u.Name, Tenant: u.Tenant, Senders: u.Senders, Role: u.Role, Mechanism: mechanism,
		hash: u.Hash.String()}
}

// Sum is that of the users in force, "" while there are none: see UserTable.Sum. All nodes that share users have one.
func (s *Service) Sum() string {
	if s == nil {
		return ""
	}
	if shared := s.cfg.Shared; shared.On() {
		return shared.Kind()
	}
	if t := s.file.Get(checkEvery); t != nil {
		return t.sum
	}
	return ""
}

// Problem returns what an operator should look at, "" when there is nothing.
func (s *Service) Problem() string {
	if err := s.file.Broken(); err != nil {
		return fmt.Sprintf("the users file can't be read, and the users before it stay in force: %v", err)
	}
	if t := s.users(checkEvery); t != nil && t.twice != "" {
		return t.twice
	}
	return s.guesses.problem()
}

// Stats counts logins since the start.
type Stats struct {
	Succeeded  int64 // all that did
	Remembered int64 // of those, with a password that had been verified minutes before
	Failed     int64
	Refused    int64 // put off, without a look at the password
}

// Stats gives the counts.
func (s *Service) Stats() Stats {
	return Stats{s.succeeded.Load(), s.remembered.Load(), s.failed.Load(), s.refused.Load()}
}

// attempt is one try to log in, by any mechanism.
type attempt struct {
	s         *Service
	ctx       context.Context
	client    Client
	mechanism string
	began     time.Time

	users *inForce
	name  string // as NormalName gives it
	user  *User
	why   string // it failed, when that was not for the user or the password
}

// find notes whom the client wants to be.
func (a *attempt) find(name string) error {
	if a.users = a.s.users(0); a.users == nil {
		return ErrNoUsers
	}
	normal, err := NormalName(name)
	if err != nil {
		normal = "\x00" // nobody's
	}
	a.name, a.user = normal, a.users.User(normal)
	return nil
}

func (a *attempt) place() place { return place{a.name, a.client.Network} }

// password checks a password.
func (a *attempt) password(name, password string) (*Login, error) {
	if err := a.find(name); err != nil {
		return nil, a.end(nil, err)
	}
	s, p := a.s, a.place()
	hash := a.hash()
	here, right := s.known.has(p, hash.String(), password)
	if here && right {
		return a.remembered(nil)
	}
	ahead, err := a.begin(here)
	if err != nil {
		return nil, a.end(nil, err)
	}
	giveBack, err := s.slots.take(a.ctx, here)
	if err != nil {
		ahead.turn.done(false)
		return nil, a.end(nil, ErrBusy)
	}
	// Others of the same user may have been here meanwhile, as when all clients come back at once.
	if _, right = s.known.has(p, hash.String(), password); right {
		giveBack()
		return a.remembered(ahead)
	}
	right = hash.Verify(password) && a.user != nil && a.user.Hash.Scheme != ""
	if right {
		s.known.right(p, hash.String(), password)
		a.renew(password)
	}
	giveBack()
	if !right {
		return nil, a.wrong(ahead)
	}
	ahead.right()
	return a.login(), a.end(nil, nil)
}

// remembered logs in with a password that was verified minutes ago.
func (a *attempt) remembered(h *hearing) (*Login, error) {
	a.s.remembered.Add(1)
	h.right()
	return a.login(), a.end(nil, nil)
}

// hearing is how an attempt came to be looked at: in its turn, or before, by a chance or because the user is
// known at its place.
type hearing struct {
	a      *attempt
	turn   *turn
	chance bool
}

// begin waits for an attempt's turn, unless it is looked at before.
func (a *attempt) begin(here bool) (h *hearing, err error) {
	h = &hearing{a: a, chance: !here && a.s.guesses.chances.take(a.place())}
	if !here && !h.chance {
		h.turn, err = a.s.guesses.take(a.ctx, a.place())
	}
	return h, err
}

// right ends it for a right password.
func (h *hearing) right() {
	if h == nil {
		return
	}
	if h.chance {
		h.a.s.guesses.chances.giveBack(h.a.place())
	}
	h.turn.done(false)
}

// wrong fails an attempt that was looked at. Whoever had no turn waits for it all the same, or the time would
// say that this was so, and that the user is known here.
func (a *attempt) wrong(h *hearing) (err error) {
	a.s.known.wrong(a.place())
	if h.turn == nil {
		if h.turn, err = a.s.guesses.take(a.ctx, a.place()); err != nil {
			return a.end(nil, err)
		}
	}
	return a.end(h.turn, ErrDenied)
}

// hash gives what the password is checked against. A user who has none, or does not exist, has somebody's:
// always the same for a name, so that the time that it takes is a user's.
func (a *attempt) hash() Hash {
	if a.user != nil && a.user.Hash.Scheme != "" {
		return a.user.Hash
	}
	t := a.users
	if len(t.hashes) == 0 {
		return nobody
	}
	return t.hashes[binary.LittleEndian.Uint64(a.s.mac("hash", a.name))%uint64(len(t.hashes))]
}

// nobody is the hash of a password that nobody has.
var nobody, _ = ParseHash(
	"$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")

// mac makes of a name what nobody else can.
func (s *Service) mac(what, name string) []byte {
	m := hmac.New(sha256.New, s.cfg.Secret())
	m.Write([]byte(what + "\x00" + name))
	return m.Sum(nil)
}

// renew makes the hash anew when it is not as they are made today.
func (a *attempt) renew(password string) {
	s := a.s
	old := a.user.Hash
	if old.Is(s.cfg.Scheme) || s.renew.tried(a.name, old.String()) {
		return
	}
	hash, err := NewHash(s.cfg.Scheme, password)
	if err != nil {
		return // a password that can't be hashed anew keeps what it has
	}
	s.renew.add(a.name, old, hash)
}

func (a *attempt) login() *Login { return loginOf(a.user, a.mechanism) }

// end logs and counts how an attempt went, and answers failures late. turn is the attempt's, if it has
// one.
func (a *attempt) end(turn *turn, err error) error {
	s := a.s
	log := s.cfg.Log.With("peer", a.client.Peer, "session", a.client.Session, "mechanism", a.mechanism)
	switch {
	case err == nil:
		s.succeeded.Add(1)
		log.Info("login", "user", a.user.Name)
		return nil
	case errors.Is(err, ErrDenied):
		s.failed.Add(1)
		log.Warn("login failed", "user", a.known(), "reason", a.reason())
	default:
		s.refused.Add(1)
		log.Warn("login put off", "user", a.known(), "reason", err.Error())
	}
	turn.done(true)
	Late(a.ctx, s.cfg.Now().Sub(a.began))
	return err
}

// known is a user's name for the log. Another name is left out: people type their password there.
func (a *attempt) known() string {
	if a.user == nil {
		return ""
	}
	return a.user.Name
}

func (a *attempt) reason() string {
	switch {
	case a.why != "":
		return a.why
	case a.user == nil:
		return "unknown user"
	case a.user.Hash.Scheme == "":
		return "user has no password"
	}
	return "wrong password"
}
