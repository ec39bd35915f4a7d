// Package certificates keeps the certificates of listeners and of this relay as a client, and those of
// authorities: read from files, read again when the files change, and chosen by the name that a client
// asks for. It starts no goroutines: files are looked at
// when a handshake needs them.
package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/faultlog"
)

// checkEvery is how old what is known of the files may be.
const checkEvery = time.Second

// Pair names the files of a certificate, with its chain, and of its key, both in PEM.
type Pair struct{ Certificate, Key string }

// Store has the certificates that the configuration names. It is safe for concurrent use.
type Store struct {
	now     func() time.Time
	log     *slog.Logger
	reading *faultlog.Kind

	mu          sync.Mutex // guards what follows
	files       map[Pair]*file
	authorities map[string]*authorities
}

// file is one pair, as it was read last.
type file struct {
	Pair
	loaded atomic.Pointer[tls.Certificate]

	mu      sync.Mutex // guards what follows
	checked time.Time
	seen    [2]stamp
}

// stamp distinguishes one version of a file from another.
type stamp struct {
	size     int64
	modified time.Time
}

// New makes a store without certificates. now is the time of day.
func New(now func() time.Time, log *slog.Logger) *Store {
	return &Store{
		now: now, log: log, files: make(map[Pair]*file), authorities: make(map[string]*authorities),
		reading: faultlog.New(log, now, slog.LevelError,
			"a certificate has changed and can't be read: the one before stays in force",
			"certificates are read again"),
	}
}

// Getter gives what tls.Config wants, for a listener with these pairs and perhaps certificates from ACME:
// the certificate that fits the name and the algorithms of a client, the first of them when none does.
// Files that were read before are not read again, so that an error is about a new one.
func (s *Store) Getter(pairs []Pair, a *ACME) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	var mine []*file
	for _, p := range pairs {
		f, err := s.open(p)
		if err != nil {
			return nil, err
		}
		mine = append(mine, f)
	}
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		for _, f := range mine {
			if c := s.current(f); hello.SupportsCertificate(c) == nil {
				return c, nil
			}
		}
		if a != nil {
			if c := a.Get(hello); c != nil {
				return c, nil
			}
		}
		if len(mine) == 0 {
			return nil, errNone
		}
		return s.current(mine[0]), nil
	}, nil
}

var errNone = errors.New("there is no certificate yet: the certificate authority has not given one")

func (s *Store) open(p Pair) (*file, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[p]; f != nil {
		return f, nil
	}
	f := &file{Pair: p}
	if err := f.read(); err != nil {
		return nil, err
	}
	s.files[p] = f
	return f, nil
}

// Keep forgets all pairs but these.
func (s *Store) Keep(pairs []Pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.files, func(p Pair, _ *file) bool { return !slices.Contains(pairs, p) })
}

// current gives the certificate of a pair, read again when its files have changed. Both are looked at, since
// who renews them writes one after the other: until they fit, the certificate before stays.
func (s *Store) current(f *file) *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := s.now()
	if since := now.Sub(f.checked); since >= 0 && since < checkEvery {
		return f.loaded.Load()
	}
	f.checked = now
	if f.stamps() == f.seen {
		return f.loaded.Load()
	}
	if err := f.read(); err != nil {
		s.reading.Failed(f.Certificate, "error", err)
		return f.loaded.Load()
	}
	s.reading.Well()
	leaf := f.loaded.Load().Leaf
	s.log.Info("certificate read again", "file", f.Certificate, "names", strings.Join(leaf.DNSNames, " "), "expires",
		leaf.NotAfter.UTC().Format(time.RFC3339))
	return f.loaded.Load()
}

func (f *file) read() error {
	seen := f.stamps() // before the content, so that a change meanwhile is seen later
	c, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", f.Certificate, f.Key, err)
	}
	f.loaded.Store(&c)
	f.seen = seen
	return nil
}

func (f *file) stamps() (out [2]stamp) {
	for i, path := range []string{f.Certificate, f.Key} {
		if info, err := os.Stat(path); err == nil {
			out[i] = stampOf(info)
		}
	}
	return out
}

func stampOf(info fs.FileInfo) stamp { return stamp{info.Size(), info.ModTime()} }

// Expiry is when a certificate ends.
type Expiry struct {
	File  string
	Names []string // DNS names
	At    time.Time
}

// Expiries lists the certificates in use, in the order of their files, after a check of them.
func (s *Store) Expiries() []Expiry {
	s.mu.Lock()
	files := slices.Collect(maps.Values(s.files))
	s.mu.Unlock()
	var all []Expiry
	for _, f := range files {
		leaf := s.current(f).Leaf
		all = append(all, Expiry{f.Certificate, leaf.DNSNames, leaf.NotAfter})
	}
	slices.SortFunc(all, func(a, b Expiry) int { return strings.Compare(a.File, b.File) })
	return all
}

// End returns when the certificate of a PEM file ends: the first one, which is followed by its chain.
func End(file string) (time.Time, error) {
	all, err := readCertificates(file)
	if err != nil {
		return time.Time{}, err
	}
	return all[0].NotAfter, nil
}

// LastAuthority returns when the last of the authorities in a PEM file ends: some may have ended, as long as others
// have not.
func LastAuthority(file string) (end time.Time, err error) {
	all, err := readCertificates(file)
	for _, c := range all {
		if c.NotAfter.After(end) {
			end = c.NotAfter
		}
	}
	return end, err
}

// readCertificates reads the certificates of a PEM file, of which there is one at least, and leaves out what is not
// valid.
func readCertificates(file string) (all []*x509.Certificate, err error) {
	text, err := readPEM(file)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return all, nil
}

// expiresSoon is how long before the end of a certificate operators are warned: renewal should have come weeks before.
const expiresSoon = 14 * 24 * time.Hour

// Ending returns in words that a certificate has ended, or ends soon; "" if neither.
func Ending(end, now time.Time) string {
	day := end.UTC().Format(time.DateOnly)
	switch left := end.Sub(now); {
	case left <= 0:
		return "expired on " + day
	case left < expiresSoon:
		return "expires on " + day
	}
	return ""
}

// largestAuthorities bounds a file of authorities, in octets; those of operating systems have a quarter of
// a million.
const largestAuthorities = 8 << 20

// ReadAuthorities reads a file with the certificates of authorities, in PEM.
func ReadAuthorities(file string) (*x509.CertPool, error) {
	text, err := readPEM(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return pool, nil
}

func readPEM(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, largestAuthorities+1))
	if err != nil {
		return nil, err
	}
	if len(text) > largestAuthorities {
		return nil, fmt.Errorf("%s has more than %d MiB: is it the right file?", file, largestAuthorities>>20)
	}
	return text, nil
}

// authorities is one file of them, as it was read last.
type authorities struct {
	mu      sync.Mutex // guards what follows
	checked time.Time
	seen    stamp
	pool    *x509.CertPool
}

// Authorities gives the authorities of a file, read again when it has changed. When it can't be read any
// more, those that it had stay in force.
func (s *Store) Authorities(file string) (*x509.CertPool, error) {
	s.mu.Lock()
	a := s.authorities[file]
	if a == nil {
		a = new(authorities)
		s.authorities[file] = a
	}
	s.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	now := s.now()
	if since := now.Sub(a.checked); a.pool != nil && since >= 0 && since < checkEvery {
		return a.pool, nil
	}
	a.checked = now
	var seen stamp // before the content, so that a change meanwhile is seen later
	if info, err := os.Stat(file); err == nil {
		seen = stampOf(info)
	}
	if a.pool != nil && seen == a.seen {
		return a.pool, nil
	}
	pool, err := ReadAuthorities(file)
	switch {
	case err == nil:
		a.pool, a.seen = pool, seen
		s.reading.Well()
	case a.pool == nil:
		return nil, err
	default:
		s.reading.Failed(file, "error", err)
	}
	return a.pool, nil
}

// Client gives the certificate of a pair, for a server that asks for one.
func (s *Store) Client(p Pair) (*tls.Certificate, error) {
	f, err := s.open(p)
	if err != nil {
		return nil, err
	}
	return s.current(f), nil
}
