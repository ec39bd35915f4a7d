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
	"net/netip"
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
	// renewCheck is how often a certificate is looked at.
	renewCheck = time.Hour
	// renewBefore the end, or in the last third of its time, a certificate is renewed: as package autocert does.
	renewBefore = 30 * 24 * time.Hour
	// Let's Encrypt allows 5 validations in vain for a name, within an hour. After mostInVain in a row, one for each
	// kind of challenge comes each vainPause.
	mostInVain = 3
	vainPause  = 30 * time.Minute
	// turnCheck is how often a relay without a certificate looks whether it is the one of the cluster that orders.
	turnCheck = 10 * time.Second
)

// retries are the pauses after failures in a row; the last is repeated.
var retries = []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
	10 * time.Minute}

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
	// Published gives the addresses of a name in the DNS, none and no error when there are none: the authority is not
	// asked at first, since it would fail. Nil: that is not known.
	Published func(ctx context.Context, name string) ([]netip.Addr, error)
	Changed   func()  // is called when Problem has changed; nil: nobody needs to know
	Cluster   Cluster // nil: the relay orders for itself
	Now       func() time.Time
	Log       *slog.Logger
}

// Cluster is several relays with the same names: one orders at a time, all answer the CA's questions, and have the
// certificate. Its methods are those of ordering.Store.
type Cluster interface {
	Certificate(name string) []byte
	Token(name string) []byte
	PutCertificate(name string, data []byte) error
	PutToken(ctx context.Context, name string, data []byte) error
	DeleteToken(name string) error
	Turn(ctx context.Context, name string) (mine bool, err error)
	Watch(func(name string))
}

// ACME gets certificates from a CA and renews them (RFC 8555). What strangers ask for orders nothing. A nil ACME has no
// certificates.
//
// Goroutines: Run's, one for each listener and name, and one that orders; they end with its context.
type ACME struct {
	cfg       ACMEConfig
	transport http.RoundTripper
	ordering  chan struct{} // has room for one order at a time

	mu     sync.Mutex // guards what follows
	wanted map[string]*wanted
}

// wanted is a certificate that there is to be.
type wanted struct {
	manager  *autocert.Manager // another for each attempt: it remembers a failure for a minute
	have     *tls.Certificate
	failed   error
	next     time.Time     // when the authority is asked again after that
	failures int           // in a row
	inVain   int           // validations since there was a certificate
	wake     chan struct{} // of the goroutine that orders: another node has a certificate
}

// NewACME makes an ACME that has nothing yet.
func NewACME(cfg ACMEConfig) *ACME {
	transport := httpclient.New(httpclient.Config{Addresses: cfg.Addresses})
	transport.Proxy, transport.DisableKeepAlives, transport.IdleConnTimeout = http.ProxyFromEnvironment,
		false, time.Minute
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	a := &ACME{cfg: cfg, transport: transport, ordering: make(chan struct{}, 1), wanted: make(map[string]*wanted)}
	for _, name := range cfg.Names {
		a.wanted[name] = &wanted{wake: make(chan struct{}, 1)}
	}
	if cfg.Cluster == nil {
		return a
	}
	cfg.Cluster.Watch(func(name string) {
		select {
		case a.wanted[name].wake <- struct{}{}:
		default:
		}
	})
	for _, name := range cfg.Names {
		a.kept(context.Background(), name) // and so the others get it
	}
	return a
}

func (a *ACME) cache() Cache {
	return Cache{Dir: a.cfg.Dir, Cluster: a.cfg.Cluster, Directory: a.cfg.Directory, Now: a.cfg.Now, Log: a.cfg.Log}
}

// kept is the certificate that there is, unless it has ended; nil for none.
func (a *ACME) kept(ctx context.Context, name string) *tls.Certificate {
	data, err := a.cache().Get(ctx, name)
	if err != nil {
		return nil
	}
	c, err := tls.X509KeyPair(data, data)
	if err != nil || c.Leaf.VerifyHostname(name) != nil || !a.cfg.Now().Before(c.Leaf.NotAfter) {
		return nil
	}
	return &c
}

// errOthers is returned when another node of the cluster orders, or has a certificate.
var errOthers = errors.New("another relay of the cluster orders the certificate")

// turn returns why a certificate must not be ordered by this node now. A manager renews what it has as late as here.
func (a *ACME) turn(ctx context.Context, name string) error {
	fresh := func() bool {
		c := a.kept(ctx, name)
		return c != nil && c.Leaf.NotAfter.Sub(a.cfg.Now()) > min(c.Leaf.NotAfter.Sub(c.Leaf.NotBefore)/3, renewBefore)
	}
	if fresh() {
		return errOthers
	}
	mine, err := a.cfg.Cluster.Turn(ctx, name)
	if err == nil && (!mine || fresh()) { // it may have come before the turn
		return errOthers
	}
	return err
}

func (a *ACME) manager(name string, through *orders) *autocert.Manager {
	if a.cfg.Cluster != nil {
		through.may = func(ctx context.Context) error { return a.turn(ctx, name) }
	}
	m := &autocert.Manager{
		Prompt: autocert.AcceptTOS, Cache: a.cache(), HostPolicy: autocert.HostWhitelist(name), Email: a.cfg.Email,
		Client: &acme.Client{
			DirectoryURL: a.cfg.Directory, UserAgent: "mta",
			HTTPClient: &http.Client{Transport: through, Timeout: time.Minute},
		},
	}
	if a.cfg.HTTP != nil {
		m.HTTPHandler(nil) // from now on it takes HTTP-01
	}
	return m
}

// of returns the manager that asks for a name's certificate, nil when none does.
func (a *ACME) of(name string) *autocert.Manager {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.wanted[strings.ToLower(name)]; w != nil {
		return w.manager
	}
	return nil
}

// Run orders and renews certificates until ctx ends.
func (a *ACME) Run(ctx context.Context) {
	if a == nil {
		return
	}
	if a.cfg.Cluster != nil { // all answer for the node that orders
		a.mu.Lock()
		for name, w := range a.wanted {
			w.manager = a.manager(name, &orders{next: a.transport})
		}
		a.mu.Unlock()
	}
	var all sync.WaitGroup
	if l := a.cfg.HTTP; l != nil {
		all.Go(func() {
			a.serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if host, _, err := net.SplitHostPort(r.Host); err == nil {
					r.Host = host // managers know names without ports
				}
				if m := a.of(r.Host); m != nil {
					m.HTTPHandler(http.NotFoundHandler()).ServeHTTP(w, r)
					return
				}
				http.NotFound(w, r)
			}))
		})
	}
	if l := a.cfg.TLS; l != nil {
		questions := tls.NewListener(l,
			&tls.Config{GetCertificate: a.answer, NextProtos: []string{acme.ALPNProto}, MinVersion: tls.VersionTLS12})
		all.Go(func() { a.serve(ctx, questions, http.NotFoundHandler()) })
	}
	for _, name := range a.cfg.Names {
		all.Go(func() {
			for ctx.Err() == nil {
				again := time.NewTimer(a.order(ctx, name))
				select {
				case <-again.C:
				case <-a.wanted[name].wake:
				case <-ctx.Done():
				}
				again.Stop()
			}
		})
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
	if m := a.of(hello.ServerName); m != nil {
		return m.GetCertificate(hello)
	}
	return nil, errors.New("for another name")
}

// order gets a name's certificate: from the folder, or, when there is none or it ends soon, from the CA. It returns
// when to look again.
func (a *ACME) order(ctx context.Context, name string) (again time.Duration) {
	if a.cfg.Cluster != nil { // also while another name's is ordered
		if kept := a.kept(ctx, name); kept != nil {
			a.mu.Lock()
			a.show(name, kept)
			a.mu.Unlock()
		}
	}
	a.ordering <- struct{}{}
	defer func() { <-a.ordering }()
	a.mu.Lock()
	w, o := a.wanted[name], &orders{next: a.transport}
	if w.have == nil {
		w.manager = a.manager(name, o)
	}
	a.mu.Unlock()
	err := a.published(ctx, name, w)
	if err == nil && a.cfg.Cluster != nil && a.kept(ctx, name) == nil {
		err = a.turn(ctx, name)
	}
	var c *tls.Certificate
	if err == nil || errors.Is(err, errOthers) && a.kept(ctx, name) != nil {
		c, err = certificateOf(ctx, w.manager, name)
	}
	if ctx.Err() != nil {
		return 0
	}
	a.mu.Lock()
	defer a.cfg.Changed()
	defer a.mu.Unlock()
	if errors.Is(err, errOthers) {
		w.failed = nil
		return turnCheck
	}
	if err != nil {
		reasons := o.reasons()
		w.failures, w.inVain = w.failures+1, w.inVain+len(reasons)
		if again = retries[min(w.failures, len(retries))-1]; w.inVain >= mostInVain {
			again = vainPause * time.Duration(max(1, len(reasons)))
		}
		if refused := (*acme.Error)(nil); errors.As(err, &refused) {
			if wait, limited := acme.RateLimit(refused); limited {
				again = max(again, vainPause, wait)
			}
		}
		if len(reasons) > 0 { // the manager's error is that there is no other challenge to try
			err = errors.New("the authority can't verify the name: " + strings.Join(reasons, "; "))
		}
		w.failed, w.next = err, a.cfg.Now().Add(again)
		a.cfg.Log.Error("getting a certificate", "name", name, "directory", a.cfg.Directory, "error", err,
			"again in", again)
		return again
	}
	a.show(name, c)
	w.failed, w.failures, w.inVain = nil, 0, 0
	return renewCheck
}

// show has clients see a certificate. In a cluster, managers look for those of other nodes only when they renew: one
// that ends later stays. The caller has mu.
func (a *ACME) show(name string, c *tls.Certificate) {
	w := a.wanted[name]
	if old := w.have; old != nil &&
		(old.Leaf.Equal(c.Leaf) || a.cfg.Cluster != nil && old.Leaf.NotAfter.After(c.Leaf.NotAfter)) {
		return
	}
	a.cfg.Log.Info("certificate is there", "name", name, "expires", c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	w.have = c
}

// published returns why the authority would fail: the name has no address. After some time it is asked all the same,
// since it may see another DNS.
func (a *ACME) published(ctx context.Context, name string, w *wanted) error {
	if a.cfg.Published == nil || w.failures >= len(retries) {
		return nil
	}
	if _, err := a.cache().Get(ctx, name); err == nil {
		return nil // nobody has to be asked, or only for a renewal
	}
	if addrs, err := a.cfg.Published(ctx, name); err != nil || len(addrs) > 0 {
		return nil
	}
	return errors.New("the name has no address in the DNS yet, at which the authority could verify it")
}

// certificateOf is the manager's, which has a deadline, and no context.
func certificateOf(ctx context.Context, m *autocert.Manager, name string) (*tls.Certificate, error) {
	type result struct {
		c   *tls.Certificate
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := m.GetCertificate(&tls.ClientHelloInfo{
			ServerName: name, SupportedVersions: []uint16{tls.VersionTLS13},
			CipherSuites:     []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
			SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
			SupportedCurves:  []tls.CurveID{tls.CurveP256},
		})
		done <- result{c, err}
	}()
	select {
	case r := <-done:
		return r.c, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Get gives the certificate for a client: that of the name that it asks for, else the first that there is;
// nil when there is none yet.
func (a *ACME) Get(hello *tls.ClientHelloInfo) *tls.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.wanted[strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))]; w != nil && w.have != nil {
		return w.have
	}
	for _, name := range a.cfg.Names {
		if c := a.wanted[name].have; c != nil {
			return c
		}
	}
	return nil
}

// Any reports whether there is a certificate.
func (a *ACME) Any() bool {
	return a != nil && a.Get(&tls.ClientHelloInfo{}) != nil
}

// Expiries lists the certificates that there are.
func (a *ACME) Expiries() (all []Expiry) {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range a.cfg.Names {
		if c := a.wanted[name].have; c != nil {
			all = append(all, Expiry{"acme:" + name, c.Leaf.DNSNames, c.Leaf.NotAfter})
		}
	}
	return all
}

// Problem returns which certificates can't be had, "" when all can.
func (a *ACME) Problem() string {
	if a == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range a.cfg.Names {
		if w := a.wanted[name]; w.failed != nil {
			return fmt.Sprintf("no certificate for %s can be had from the certificate authority: %v; "+
				"it is asked again at %s", name, w.failed, w.next.Local().Format("2006-01-02 15:04"))
		}
	}
	return ""
}

// orders gives the answer to the end of an order the order's URL, where an authority leaves it out. RFC 8555
// (7.4) does not demand it, and package acme asks there how the order goes on. It also keeps why the authority could
// not verify a name (RFC 8555, 6.7 and 8), which a manager leaves out of its error.
//
// In a cluster each request needs this node's turn.
type orders struct {
	next http.RoundTripper
	may  func(context.Context) error // nil: it may

	mu     sync.Mutex        // guards what follows
	url    map[string]string // of an order, by the URL that ends it
	inVain []string          // a reason for each validation
}

func (o *orders) reasons() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.inVain)
}

// maxOrder is more than an order has, in octets.
const maxOrder = 1 << 20

func (o *orders) RoundTrip(req *http.Request) (*http.Response, error) {
	if o.may != nil {
		if err := o.may(req.Context()); err != nil {
			if req.Body != nil {
				req.Body.Close()
			}
			return nil, err
		}
	}
	res, err := o.next.RoundTrip(req)
	if err != nil || req.Method != http.MethodPost {
		return res, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	at := res.Header.Get("Location")
	if known := o.url[req.URL.String()]; at == "" && known != "" {
		res.Header.Set("Location", known)
	}
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		return res, nil
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxOrder))
	res.Body.Close()
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(text))
	var answer struct { // an order, or an authorization
		Finalize   string `json:"finalize"`
		Status     string `json:"status"`
		Challenges []struct {
			Type  string `json:"type"`
			Error struct {
				Detail string `json:"detail"`
			} `json:"error"`
		} `json:"challenges"`
	}
	if json.Unmarshal(text, &answer) != nil {
		return res, nil
	}
	if at != "" && res.StatusCode == http.StatusCreated && answer.Finalize != "" {
		if o.url == nil || len(o.url) > 100 {
			o.url = make(map[string]string)
		}
		o.url[answer.Finalize] = at
	}
	for _, c := range answer.Challenges {
		reason := c.Type + ": " + c.Error.Detail
		if answer.Status == acme.StatusInvalid && c.Error.Detail != "" && !slices.Contains(o.inVain, reason) {
			o.inVain = append(o.inVain, reason)
		}
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
	// Cluster has what other nodes have put, and gets all but the account's key, which is each node's own. Certificates
	// are kept with the URL of the authority then, in a line that readers of PEM pass by: those of another one are
	// missing.
	Cluster   Cluster // nil: there is none
	Directory string  // that URL
}

var _ autocert.Cache = Cache{}

const (
	sumLine = "sum %08x\n"
	sumSize = len("sum 01234567\n")
)

// How package autocert begins the name of an account's key, and the ends of its names for the answers to challenges.
const (
	account   = "acme_account"
	tlsToken  = "+token"
	httpToken = "+http-01"
)

const directoryLine = "directory %s\n"

// Get implements autocert.Cache. In a cluster, of two certificates it is the one that ends later.
func (c Cache) Get(ctx context.Context, name string) ([]byte, error) {
	switch {
	case c.Cluster == nil || strings.HasPrefix(name, account):
		return c.get(ctx, name)
	case isToken(name):
		if data := c.Cluster.Token(name); data != nil {
			return data, nil
		}
		return nil, autocert.ErrCacheMiss
	}
	data, err := c.get(ctx, name)
	if line, rest, ok := bytes.Cut(data, []byte("\n")); ok && bytes.HasPrefix(line, []byte("directory ")) {
		if data = rest; string(line)+"\n" != fmt.Sprintf(directoryLine, c.Directory) {
			data, err = nil, autocert.ErrCacheMiss
		}
	}
	if err == nil {
		if err := c.Cluster.PutCertificate(name, data); err != nil {
			c.Log.Error("the nodes of the cluster do not get a certificate", "name", name, "error", err)
		}
	} else if !errors.Is(err, autocert.ErrCacheMiss) {
		return nil, err
	}
	newest := c.Cluster.Certificate(name)
	if newest == nil || bytes.Equal(newest, data) {
		return data, err
	}
	if err := c.put(name, fmt.Appendf(nil, directoryLine+"%s", c.Directory, newest)); err != nil {
		c.Log.Error("another node's certificate is not kept", "name", name, "error", err)
	}
	return newest, nil
}

func isToken(name string) bool {
	return strings.HasSuffix(name, tlsToken) || strings.HasSuffix(name, httpToken)
}

func (c Cache) get(ctx context.Context, name string) ([]byte, error) {
	data, err := os.ReadFile(c.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, autocert.ErrCacheMiss
	case err != nil:
		return nil, err
	case len(data) > sumSize && string(data[:sumSize]) == fmt.Sprintf(sumLine, smallfile.Sum(data[sumSize:])):
		return data[sumSize:], nil
	case bytes.HasPrefix(data, []byte("-----BEGIN ")): // an earlier program wrote it
		if err := c.put(name, data); err != nil {
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
func (c Cache) Put(ctx context.Context, name string, data []byte) error {
	switch {
	case c.Cluster == nil || strings.HasPrefix(name, account):
		return c.put(name, data)
	case isToken(name):
		return c.Cluster.PutToken(ctx, name, data)
	}
	return errors.Join(c.put(name, fmt.Appendf(nil, directoryLine+"%s", c.Directory, data)),
		c.Cluster.PutCertificate(name, data))
}

func (c Cache) put(name string, data []byte) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	return smallfile.Write(c.path(name), 0o600, fmt.Appendf(nil, sumLine+"%s", smallfile.Sum(data), data))
}

// Delete implements autocert.Cache.
func (c Cache) Delete(_ context.Context, name string) error {
	if c.Cluster != nil && isToken(name) {
		return c.Cluster.DeleteToken(name)
	}
	if err := os.Remove(c.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// path keeps within the folder: part of a name may be a stranger's.
func (c Cache) path(name string) string { return filepath.Join(c.Dir, filepath.Clean("/"+name)) }
