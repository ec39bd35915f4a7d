package certificates

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
)

// write makes a certificate for names and writes it to the pair's files.
func write(t *testing.T, p Pair, until time.Time, names ...string) {
	t.Helper()
	cert, key := certificate(t, until, names...)
	for path, text := range map[string][]byte{p.Certificate: cert, p.Key: key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func certificate(t *testing.T, until time.Time, names ...string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Unix(0, 0), NotAfter: until, DNSNames: names}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

func pair(t *testing.T) Pair {
	dir := t.TempDir()
	return Pair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
}

// shown is the first name of the certificate that a client sees who asks for a name.
func shown(t *testing.T, get func(*tls.ClientHelloInfo) (*tls.Certificate, error), name string) string {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_ = tls.Server(theirs, &tls.Config{GetCertificate: get}).Handshake()
		theirs.Close()
	}()
	c := tls.Client(ours, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return c.ConnectionState().PeerCertificates[0].DNSNames[0]
}

func TestCertificatesAreChosenByName(t *testing.T) {
	a, b := pair(t), pair(t)
	until := time.Now().Add(time.Hour)
	write(t, a, until, "a.example")
	write(t, b, until, "b.example", "*.b.example")
	s := New(time.Now, slog.New(slog.DiscardHandler))
	get, err := s.Getter([]Pair{a, b}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"": "a.example", "a.example": "a.example", "b.example": "b.example", "x.b.example": "b.example", "other.example": "a.example"} {
		if got := shown(t, get, name); got != want {
			t.Errorf("who asks for %q gets %s, want %s", name, got, want)
		}
	}
}

// Files are read again when they change. Half a change leaves the certificate before in force.
func TestCertificatesAreReadAgain(t *testing.T) {
	p := pair(t)
	bubble.Test(t, func(t *testing.T) {
		until := time.Now().Add(24 * time.Hour)
		write(t, p, until, "old.example")
		var log bytes.Buffer
		s := New(time.Now, slog.New(slog.NewTextHandler(&log, nil)))
		get, err := s.Getter([]Pair{p}, nil)
		if err != nil {
			t.Fatal(err)
		}
		cert, key := certificate(t, until.Add(time.Hour), "new.example")
		time.Sleep(2 * checkEvery)
		if err := os.WriteFile(p.Certificate, append(cert, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(2 * checkEvery)
			if got := shown(t, get, ""); got != "old.example" {
				t.Fatalf("with half a change: %s", got)
			}
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
			t.Errorf("%d errors in the log:\n%s", n, log.String())
		}
		if err := os.WriteFile(p.Key, append(key, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * checkEvery)
		if got := shown(t, get, ""); got != "new.example" {
			t.Errorf("after the change: %s\n%s", got, log.String())
		}
		if all := s.Expiries(); len(all) != 1 || !all[0].At.Equal(until.Add(time.Hour).Truncate(time.Second)) || all[0].File != p.Certificate {
			t.Errorf("expiries %+v", all)
		}
		os.Remove(p.Certificate)
		time.Sleep(2 * checkEvery)
		if got := shown(t, get, ""); got != "new.example" {
			t.Errorf("after the file was removed: %s", got)
		}
		s.Keep(nil)
		if all := s.Expiries(); len(all) != 0 {
			t.Errorf("forgotten certificates expire: %+v", all)
		}
	})
}

func TestBadFilesAreNamed(t *testing.T) {
	p := pair(t)
	s := New(time.Now, slog.New(slog.DiscardHandler))
	if _, err := s.Getter([]Pair{p}, nil); err == nil || !strings.Contains(err.Error(), p.Certificate) {
		t.Error(err)
	}
}

// The authority's server is where the given resolver says.
func TestAuthoritiesAreFoundByTheGivenResolver(t *testing.T) {
	a := NewACME(ACMEConfig{
		Now:   time.Now,
		Names: []string{"mx.example.com"}, Directory: "https://ca.example/dir", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Addresses: func(_ context.Context, host string) ([]netip.Addr, error) {
			return nil, errors.New("asked for " + host)
		},
	})
	if a.order(t.Context(), "mx.example.com"); !strings.Contains(a.Problem(), "asked for ca.example") {
		t.Error(a.Problem())
	}
}

// doubtful is an authority that can verify no name.
type doubtful struct {
	sync.Mutex  // the client gives up orders in the background
	validations []time.Time
	kinds       []string // of the challenges
}

func (d *doubtful) RoundTrip(r *http.Request) (*http.Response, error) {
	d.Lock()
	defer d.Unlock()
	w := httptest.NewRecorder()
	w.Header().Set("Replay-Nonce", "nonce")
	w.Header().Set("Content-Type", "application/json")
	path, n, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "-")
	order := fmt.Sprint(len(d.validations))
	switch path {
	case "dir":
		fmt.Fprint(w, `{"newNonce": "https://ca.example/nonce", "newAccount": "https://ca.example/account", "newOrder": "https://ca.example/order"}`)
	case "account":
		w.Header().Set("Location", "https://ca.example/account-1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{}`)
	case "order":
		w.Header().Set("Location", "https://ca.example/order-"+order)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"status": "pending", "authorizations": ["https://ca.example/authorization-`+order+`"], "finalize": "https://ca.example/end"}`)
	case "authorization":
		if n == order {
			fmt.Fprint(w, `{"status": "pending", "challenges": [{"type": "tls-alpn-01", "url": "https://ca.example/challenge-tls-alpn-01", "token": "t"},
				{"type": "http-01", "url": "https://ca.example/challenge-http-01", "token": "t"}]}`)
		} else {
			i, _ := strconv.Atoi(n)
			fmt.Fprintf(w, `{"status": "invalid", "challenges": [{"type": %q, "error": {"detail": "no route to %s"}}]}`, d.kinds[i], n)
		}
	case "challenge":
		d.validations, d.kinds = append(d.validations, time.Now()), append(d.kinds, n)
		fmt.Fprint(w, `{}`)
	}
	return w.Result(), nil
}

// An authority that can't verify a name is asked again soon, but never more often than Let's Encrypt allows: 5 times within
// an hour. Its reason is the problem's. While a name has no address it isn't asked at all, for a time.
func TestAuthorityIsAskedAsOftenAsItAllows(t *testing.T) {
	for _, x := range []struct {
		http  bool
		early int           // validations within a minute
		begin time.Duration // when the name has an address
	}{{early: 3}, {http: true, early: 4}, {begin: 40 * time.Second}, {begin: 99 * time.Hour}} {
		bubble.Test(t, func(t *testing.T) {
			d, began, changes := new(doubtful), time.Now(), 0
			cfg := ACMEConfig{Names: []string{"mx.example.com"}, Directory: "https://ca.example/dir", Dir: t.TempDir(), Now: time.Now, Log: slog.New(slog.DiscardHandler),
				Changed: func() { changes++ },
				Published: func(context.Context, string) ([]netip.Addr, error) {
					if time.Since(began) < x.begin {
						return nil, nil
					}
					return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
				}}
			if x.http {
				cfg.HTTP = new(net.TCPListener)
			}
			a := NewACME(cfg)
			a.transport = d
			early, attempts := 0, 0
			for time.Since(began) < 6*time.Hour {
				time.Sleep(a.order(t.Context(), "mx.example.com"))
				if attempts++; attempts != changes {
					t.Fatalf("%d attempts, and %d changes", attempts, changes)
				}
			}
			d.Lock()
			defer d.Unlock()
			for i, at := range d.validations {
				if at.Sub(began) < time.Minute {
					early++
				}
				if i >= 5 && at.Sub(d.validations[i-5]) <= time.Hour {
					t.Errorf("%+v: validations %d to %d come within %v", x, i-5, i, at.Sub(d.validations[i-5]))
				}
				if since := at.Sub(began); since < x.begin && since < 18*time.Minute {
					t.Errorf("%+v: the authority is asked after %v", x, since)
				}
			}
			if early < x.early || len(d.validations) < 10 {
				t.Errorf("%+v: %d validations, %d within a minute", x, len(d.validations), early)
			}
			if p := a.Problem(); !strings.Contains(p, "can't verify the name: tls-alpn-01: no route to ") || x.http && !strings.Contains(p, "; http-01: no route to ") ||
				!strings.Contains(p, "; it is asked again at 20") {
				t.Errorf("%+v: %s", x, p)
			}
		})
	}
}
