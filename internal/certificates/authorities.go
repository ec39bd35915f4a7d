package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

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
