package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"example.org/mta/internal/httpclient"
	"example.org/mta/internal/smallfile"
)

const (
	// renewCheck is how often a certificate is looked at, retryAfter when one could not be had: a CA
	// bounds how often it is asked in vain.
	renewCheck = time.Hour
	retryAfter = 10 * time.Minute
)

// ACMEConfig says which certificates must come from a CA, and how it finds out that the names are
// ours.
type ACMEConfig struct {
	Names     []string // each gets a certificate
	Email     string   // for the CA to write to; "": none
	Directory string   // URL
	Dir       string   // where account key and certificates are kept
	// HTTP and TLS are where the CA's questions arrive: HTTP-01 (RFC 8555, 8.3), TLS-ALPN-01 (RFC
	// 8737). One can be nil.
	HTTP, TLS net.Listener
	// Addresses gives those of the authority's server; nil: by the system's resolver.
	Addresses httpclient.Addresses
	Now       func() time.Time
	Log       *slog.Logger
}

// ACME gets certificates from a CA and renews them (RFC 8555). What strangers ask for orders nothing.
//
// Goroutines: Run's, one for each listener and one that orders; they end with its context.
type ACME struct {
	cfg     ACMEConfig
	manager *autocert.Manager

	mu     sync.Mutex // guards what follows
	have   map[string]*tls.Certificate
	failed map[string]error
}

// NewACME makes an ACME that has nothing yet.
func NewACME(cfg ACMEConfig) *ACME {
	transport := httpclient.New(httpclient.Config{Addresses: cfg.Addresses})
	transport.Proxy, transport.DisableKeepAlives, transport.IdleConnTimeout = http.ProxyFromEnvironment,
		false, time.Minute
	return &ACME{
		cfg: cfg, have: make(map[string]*tls.Certificate), failed: make(map[string]error),
		manager: &autocert.Manager{
			Prompt: autocert.AcceptTOS, Cache: Cache{cfg.Dir, cfg.Now, cfg.Log},
			HostPolicy: autocert.HostWhitelist(cfg.Names...), Email: cfg.Email,
			Client: &acme.Client{
				DirectoryURL: cfg.Directory, UserAgent: "mta",
				HTTPClient: &http.Client{Transport: &orders{next: transport}, Timeout: time.Minute},
			},
		},
	}
}

// Run orders and renews certificates until ctx ends.
func (a *ACME) Run(ctx context.Context) {
	var all sync.WaitGroup
	if l := a.cfg.HTTP; l != nil {
		h := a.manager.HTTPHandler(http.NotFoundHandler())
		all.Go(func() {
			a.serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if host, _, err := net.SplitHostPort(r.Host); err == nil {
					r.Host = host // the manager knows names without ports
				}
				h.ServeHTTP(w, r)
			}))
		})
	}
	if l := a.cfg.TLS; l != nil {
		questions := tls.NewListener(l,
			&tls.Config{GetCertificate: a.answer, NextProtos: []string{acme.ALPNProto}, MinVersion: tls.VersionTLS12})
		all.Go(func() { a.serve(ctx, questions, http.NotFoundHandler()) })
	}
	for {
		next := renewCheck
		for _, name := range a.cfg.Names {
			if err := a.order(ctx, name); err != nil {
				next = retryAfter
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
			timer.Stop()
		}
		break
	}
	all.Wait()
}

func (a *ACME) serve(ctx context.Context, l net.Listener, h http.Handler) {
	s := &http.Server{Handler: h, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(a.cfg.Log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		a.cfg.Log.Error("no longer answering the certificate authority", "address", l.Addr().String(), "error", err)
	}
}

// answer is for the CA's questions over TLS alone.
func (a *ACME) answer(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if !slices.Equal(hello.SupportedProtos, []string{acme.ALPNProto}) {
		return nil, errors.New("not from a certificate authority")
	}
	return a.manager.GetCertificate(hello)
}

// order gets a name's certificate: from the folder, or, when there is none or it ends soon, from the CA.
func (a *ACME) order(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return nil
	}
	type result struct {
		c   *tls.Certificate
		err error
	}
	done := make(chan result, 1)
	go func() { // the manager has a deadline, and no context
		c, err := a.manager.GetCertificate(&tls.ClientHelloInfo{
			ServerName: name, SupportedVersions: []uint16{tls.VersionTLS13},
			CipherSuites:     []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
			SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
			SupportedCurves:  []tls.CurveID{tls.CurveP256},
		})
		done <- result{c, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.err != nil {
		a.failed[name] = r.err
		a.cfg.Log.Error("getting a certificate", "name", name, "directory", a.cfg.Directory, "error", r.err,
			"again in", retryAfter)
		return r.err
	}
	delete(a.failed, name)
	if old := a.have[name]; old == nil || !old.Leaf.Equal(r.c.Leaf) {
		a.cfg.Log.Info("certificate is there", "name", name, "expires", r.c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	a.have[name] = r.c
	return nil
}

// Get gives the certificate for a client: that of the name that it asks for, else the first that there is;
// nil when there is none yet.
func (a *ACME) Get(hello *tls.ClientHelloInfo) *tls.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.have[strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))]; c != nil {
		return c
	}
	for _, name := range a.cfg.Names {
		if c := a.have[name]; c != nil {
			return c
		}
	}
	return nil
}

// Expiries lists the certificates that there are.
func (a *ACME) Expiries() (all []Expiry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range a.cfg.Names {
		if c := a.have[name]; c != nil {
			all = append(all, Expiry{"acme:" + name, c.Leaf.DNSNames, c.Leaf.NotAfter})
		}
	}
	return all
}

// Problem returns which certificates can't be had, "" when all can.
func (a *ACME) Problem() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range a.cfg.Names {
		if err := a.failed[name]; err != nil {
			return fmt.Sprintf("no certificate for %s can be had from the certificate authority: %v", name, err)
		}
	}
	return ""
}

// orders gives the answer to the end of an order the order's URL, where an authority leaves it out. RFC 8555
// (7.4) does not demand it, and package acme asks there how the order goes on.
type orders struct {
	next http.RoundTripper

	mu  sync.Mutex        // guards url
	url map[string]string // of an order, by the URL that ends it
}

// maxOrder is more than an order has, in octets.
const maxOrder = 1 << 20

func (o *orders) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := o.next.RoundTrip(req)
	if err != nil || req.Method != http.MethodPost {
		return res, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	at := res.Header.Get("Location")
	if at == "" {
		if at = o.url[req.URL.String()]; at != "" {
			res.Header.Set("Location", at)
		}
		return res, nil
	}
	if res.StatusCode != http.StatusCreated {
		return res, nil
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxOrder))
	res.Body.Close()
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(text))
	var order struct {
		Finalize string `json:"finalize"`
	}
	if json.Unmarshal(text, &order) == nil && order.Finalize != "" { // else it is an account
		if o.url == nil || len(o.url) > 100 {
			o.url = make(map[string]string)
		}
		o.url[order.Finalize] = at
	}
	return res, nil
}

// Cache is the folder in which an ACME keeps its account's key and the certificates. Each file begins with a line that
// has the sum of the rest, which readers of PEM pass by, earlier programs too. One that is damaged is set aside, and
// the ACME gets another from the authority.
type Cache struct {
	Dir string
	Now func() time.Time
	Log *slog.Logger
}

var _ autocert.Cache = Cache{}

const (
	sumLine = "sum %08x\n"
	sumSize = len("sum 01234567\n")
)

// Get implements autocert.Cache.
func (c Cache) Get(ctx context.Context, name string) ([]byte, error) {
	data, err := os.ReadFile(c.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, autocert.ErrCacheMiss
	case err != nil:
		return nil, err
	case len(data) > sumSize && string(data[:sumSize]) == fmt.Sprintf(sumLine, smallfile.Sum(data[sumSize:])):
		return data[sumSize:], nil
	case bytes.HasPrefix(data, []byte("-----BEGIN ")): // an earlier program wrote it
		if err := c.Put(ctx, name, data); err != nil {
			c.Log.Error("a file of acme has no sum until the disk takes it", "file", c.path(name), "error", err)
		}
		return data, nil
	}
	aside, err := smallfile.SetAside(c.path(name), c.Now())
	c.Log.Error("a file of acme was damaged: the certificate authority is asked for what was in it", "file",
		c.path(name), "kept", aside)
	if err != nil {
		return nil, err
	}
	return nil, autocert.ErrCacheMiss
}

// Put implements autocert.Cache.
func (c Cache) Put(_ context.Context, name string, data []byte) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	return smallfile.Write(c.path(name), 0o600, fmt.Appendf(nil, sumLine+"%s", smallfile.Sum(data), data))
}

// Delete implements autocert.Cache.
func (c Cache) Delete(_ context.Context, name string) error {
	if err := os.Remove(c.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// path keeps within the folder: part of a name may be a stranger's.
func (c Cache) path(name string) string { return filepath.Join(c.Dir, filepath.Clean("/"+name)) }
