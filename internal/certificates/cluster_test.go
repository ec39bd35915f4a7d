package certificates

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/acme"

	"example.org/mta/cluster/changes"
	"example.org/mta/cluster/enginetest"
	"example.org/mta/cluster/exchange"
	"example.org/mta/cluster/ordering"
	"example.org/mta/cluster/secrets"
	"example.org/mta/internal/bubble"
)

const shared, testDirectory = "mx.example.com", "https://ca.example/dir"

// issuer is a certificate authority that verifies a name at each of some nodes, whatever its load balancer chooses.
type issuer struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate

	mu     sync.Mutex // guards what follows
	nodes  []*acmeNode
	hangs  bool              // and answers no order
	http   bool              // TLS does not reach it
	names  []string          // of the orders, by number
	ended  [][]byte          // their certificates
	status map[string]string // of the authorizations, by number
	issued map[string]int    // certificates, by name
	failed []string          // validations
}

func newIssuer(t *testing.T) *issuer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}}
	return &issuer{key: key, cert: cert, status: make(map[string]string), issued: make(map[string]int)}
}

// asked is a request to the authority, of a node.
type asked struct {
	*issuer
	of *acmeNode
}

func (a asked) RoundTrip(r *http.Request) (*http.Response, error) {
	ca := a.issuer
	var jws, body struct {
		Payload     string `json:"payload"`
		CSR         string `json:"csr"`
		Identifiers []struct{ Value string }
	}
	if r.Body != nil {
		if err := json.NewDecoder(r.Body).Decode(&jws); err != nil {
			return nil, err
		}
		payload, _ := base64.RawURLEncoding.DecodeString(jws.Payload)
		_ = json.Unmarshal(payload, &body)
	}
	ca.mu.Lock()
	hangs := ca.hangs
	ca.mu.Unlock()
	w := httptest.NewRecorder()
	w.Header().Set("Replay-Nonce", "nonce")
	w.Header().Set("Content-Type", "application/json")
	path, at, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "-")
	if hangs && path == "order" {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if path == "challenge" {
		a.validate(at)
	}
	ca.mu.Lock()
	defer ca.mu.Unlock()
	var n int
	fmt.Sscan(at, &n)
	order := func(status string) string {
		text := fmt.Sprintf(`{"status": %q, "authorizations": ["https://ca.example/authorization-%d"], `+
			`"finalize": "https://ca.example/end-%d"`, status, n, n)
		if status == "valid" {
			text += fmt.Sprintf(`, "certificate": "https://ca.example/certificate-%d"`, n)
		}
		w.Header().Set("Location", fmt.Sprintf("https://ca.example/state-%d", n))
		return text + "}"
	}
	switch path {
	case "dir":
		fmt.Fprint(w, `{"newNonce": "https://ca.example/nonce", "newAccount": "https://ca.example/account", "newOrder": "https://ca.example/order"}`)
	case "account":
		w.Header().Set("Location", "https://ca.example/account-1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{}`)
	case "order":
		n, ca.names, ca.ended = len(ca.names), append(ca.names, body.Identifiers[0].Value), append(ca.ended, nil)
		text := order("pending")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, text)
	case "authorization":
		fmt.Fprintf(w, `{"status": %q, "identifier": {"type": "dns", "value": %q}, "challenges": [
			{"type": "tls-alpn-01", "url": "https://ca.example/challenge-%[3]d-tls", "token": "tls%[3]d"},
			{"type": "http-01", "url": "https://ca.example/challenge-%[3]d-http", "token": "http%[3]d"}]}`, cmp.Or(ca.status[at], "pending"), ca.names[n], n)
	case "challenge":
		fmt.Fprint(w, `{}`)
	case "state":
		fmt.Fprint(w, order("ready"))
	case "end":
		der, _ := base64.RawURLEncoding.DecodeString(body.CSR)
		csr, err := x509.ParseCertificateRequest(der)
		if err != nil {
			return nil, err
		}
		ca.issued[ca.names[n]]++
		ca.ended[n] = ca.issue(csr.PublicKey, ca.names[n], life)
		fmt.Fprint(w, order("valid"))
	case "certificate":
		w.Header().Set("Content-Type", "application/pem-certificate-chain")
		w.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.ended[n]}))
	}
	return w.Result(), nil
}

func (ca *issuer) issue(key any, name string, life time.Duration) []byte {
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(life),
	}, ca.cert, key, ca.key)
	if err != nil {
		panic(err)
	}
	return der
}

// validate asks all nodes that have the name: each must answer.
func (a asked) validate(at string) {
	var n int
	number, kind, _ := strings.Cut(at, "-")
	fmt.Sscan(number, &n)
	a.mu.Lock()
	name, http := a.names[n], a.http
	var all []*ACME
	for _, node := range a.nodes {
		if node.acme != nil && slices.Contains(node.names, name) {
			all = append(all, node.acme)
		}
	}
	a.mu.Unlock()
	status := "valid"
	if http && kind == "tls" {
		all, status = nil, "invalid"
	}
	for i, of := range all {
		err := asks(of, name, kind, number)
		if err != nil {
			status = "invalid"
			a.fail(fmt.Sprintf("%d of %d, %s: %v", i, len(all), at, err))
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status[number] = status
}

// asks returns why a node's answer to a challenge is not right.
func asks(of *ACME, name, kind, number string) error {
	if kind == "tls" {
		c, err := of.answer(&tls.ClientHelloInfo{ServerName: name, SupportedProtos: []string{acme.ALPNProto},
			CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}})
		if err != nil {
			return err
		}
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		is := func(e pkix.Extension) bool { return e.Id.String() == "1.3.6.1.5.5.7.1.31" } // RFC 8737, 3
		if err == nil && (!slices.ContainsFunc(leaf.Extensions, is) || leaf.VerifyHostname(name) != nil) {
			err = errors.New("it is no answer")
		}
		return err
	}
	w, m := httptest.NewRecorder(), of.of(name)
	if m == nil {
		return errors.New("nobody answers")
	}
	m.HTTPHandler(http.NotFoundHandler()).ServeHTTP(w,
		httptest.NewRequest("GET", "http://"+name+"/.well-known/acme-challenge/http"+number, nil))
	if !strings.HasPrefix(w.Body.String(), "http"+number+".") {
		return fmt.Errorf("%d %q", w.Code, w.Body)
	}
	return nil
}

func (ca *issuer) fail(why string) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	ca.failed = append(ca.failed, why)
}

// gave checks how many certificates there are of a name.
func (ca *issuer) gave(t *testing.T, name string, want int) {
	t.Helper()
	ca.mu.Lock()
	defer ca.mu.Unlock()
	if ca.issued[name] != want {
		t.Errorf("after %v: %d certificates were ordered for %s; want %d", time.Since(epoch), ca.issued[name], name, want)
	}
	if len(ca.failed) > 0 {
		t.Errorf("not all answer: %q", ca.failed)
		ca.failed = nil
	}
}

// epoch is when virtual time begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// quiet is a listener at which nobody asks.
type quiet struct{ closed chan struct{} }

func (q quiet) Accept() (net.Conn, error) {
	<-q.closed
	return nil, net.ErrClosed
}
func (q quiet) Close() error {
	close(q.closed)
	return nil
}
func (q quiet) Addr() net.Addr { return new(net.TCPAddr) }

// away is an engine that may not answer.
type away struct {
	*enginetest.Shared
	mu sync.Mutex // guards what follows
	is bool
}

func (a *away) set(is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.is = is
}

func (a *away) Changes(ctx context.Context, c changes.Call) (changes.Result, error) {
	a.mu.Lock()
	is := a.is
	a.mu.Unlock()
	if is {
		return changes.Result{}, errors.New("it is away")
	}
	return a.Shared.Changes(ctx, c)
}

// acmeNode is a node of a cluster that has an ACME.
type acmeNode struct {
	*testing.T
	me     changes.Me
	dir    string
	key    string
	names  []string
	engine *away
	ca     *issuer
	acme   *ACME
	orders *ordering.Store
	known  *exchange.Exchange
	end    func()
}

func (n *acmeNode) start() {
	n.Helper()
	log := slog.New(slog.DiscardHandler)
	x, err := exchange.Open(exchange.Config{Path: n.dir + "/changes", Now: time.Now, Log: log})
	if err != nil {
		n.Fatal(err)
	}
	keys, err := secrets.ReadKeys(n.key)
	if err != nil {
		n.Fatal(err)
	}
	o := ordering.New(ordering.Config{Node: fmt.Sprint("node", n.me.Node), Directory: testDirectory, Names: n.names, Keys: keys,
		Note: x.Of("acme"), Behind: func(ctx context.Context) string { return x.Behind(ctx, "acme") }, Now: time.Now, Log: log})
	if err := x.Add("acme", o, true); err != nil {
		n.Fatal(err)
	}
	a := NewACME(ACMEConfig{Names: n.names, Directory: testDirectory, Dir: n.dir + "/acme", HTTP: quiet{make(chan struct{})},
		Cluster: o, Now: time.Now, Log: log})
	a.transport = asked{n.ca, n}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { x.Run(ctx, n.me, n.engine) })
	all.Go(func() { a.Run(ctx) })
	n.ca.mu.Lock()
	n.acme = a
	n.ca.mu.Unlock()
	n.orders, n.known, n.end = o, x, func() {
		n.ca.mu.Lock()
		n.acme = nil
		n.ca.mu.Unlock()
		cancel()
		all.Wait()
		if err := x.Close(); err != nil {
			n.Error(err)
		}
	}
}

// serial is that of the certificate that a node shows, 0 for none.
func (n *acmeNode) serial(name string) string {
	c := n.acme.Get(&tls.ClientHelloInfo{ServerName: name})
	if c == nil || c.Leaf.VerifyHostname(name) != nil {
		return "0"
	}
	return c.Leaf.SerialNumber.String()
}

// agree checks that nodes show one certificate, which is valid, and returns its serial number.
func agree(t *testing.T, nodes ...*acmeNode) string {
	t.Helper()
	want := nodes[0].serial(shared)
	for _, n := range nodes {
		if got := n.serial(shared); got != want || got == "0" {
			t.Errorf("after %v: node %d shows certificate %s, and node %d %s", time.Since(epoch), n.me.Node, got,
				nodes[0].me.Node, want)
		}
		if c := n.acme.Get(&tls.ClientHelloInfo{ServerName: shared}); c != nil && time.Now().After(c.Leaf.NotAfter) {
			t.Errorf("after %v: that of node %d has ended", time.Since(epoch), n.me.Node)
		}
		if why := n.known.Trouble() + n.acme.Problem(); why != "" && !n.engine.is {
			t.Errorf("node %d: %s", n.me.Node, why)
		}
	}
	return want
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// inCluster has some nodes run, with a name that all have, and one that only the last has.
func inCluster(t *testing.T, count int, test func(*testing.T, *issuer, *away, []*acmeNode)) {
	key := t.TempDir() + "/key"
	if err := secrets.WriteKeys(key); err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		members := make(map[uint16]uint64)
		e := &away{Shared: enginetest.NewShared("era", func() map[uint16]uint64 { return members })}
		ca := newIssuer(t)
		for i := range count {
			n := &acmeNode{T: t, me: changes.Me{Node: uint16(i + 1), Incarnation: 1}, dir: t.TempDir(), key: key,
				names: []string{shared}, engine: e, ca: ca}
			members[n.me.Node], ca.nodes = 1, append(ca.nodes, n)
		}
		nodes := slices.Clone(ca.nodes)
		nodes[count-1].names = []string{shared, "own.example.com"}
		test(t, ca, e, nodes)
		for _, n := range nodes {
			if n.acme != nil {
				n.end()
			}
		}
	})
}

// Certificates are renewed in the last third of their life.
const (
	life = 4 * time.Hour
	due  = life*2/3 + life/3/10
)

// TestOneNodeOrders, all answer and have the certificate: at the first start, when one joins, when it is renewed, and when
// the database was away meanwhile. A node has it over a restart without the database. Nothing is in the database in clear.
func TestOneNodeOrders(t *testing.T) {
	inCluster(t, 4, func(t *testing.T, ca *issuer, e *away, nodes []*acmeNode) {
		a, b, c, late := nodes[0], nodes[1], nodes[2], nodes[3]
		for _, n := range []*acmeNode{a, b, c} {
			n.start()
		}
		pass(time.Minute)
		first := agree(t, a, b, c)
		ca.gave(t, shared, 1)
		late.start()
		pass(2 * time.Second)
		if agree(t, nodes...) != first {
			t.Error("a node that joins changes the certificate")
		}
		pass(time.Minute)
		ca.gave(t, shared, 1)
		ca.gave(t, "own.example.com", 1)
		if got := late.serial("own.example.com"); got == "0" {
			t.Error("there is no certificate for a name of one node")
		}
		e.Do(func(rows map[[2]string]changes.Row) {
			for at, row := range rows {
				if row.Value != nil && (bytes.Contains(row.Value, []byte("PRIVATE")) || !bytes.Contains(row.Value, []byte(`"key":`))) {
					t.Errorf("%s has %q", at, row.Value)
				}
				if form, _, _ := strings.Cut(at[1], " "); row.Value != nil && form != "certificate" {
					t.Errorf("%s is left", at)
				}
			}
		})
		ca.mu.Lock()
		ca.http = true
		ca.mu.Unlock()
		pass(due)
		second := agree(t, nodes...)
		ca.gave(t, shared, 2)
		if second == first {
			t.Error("it is not renewed")
		}
		e.set(true)
		pass(due)
		if agree(t, nodes...) != second {
			t.Error("it is renewed without the database")
		}
		ca.gave(t, shared, 2)
		b.end()
		b.start()
		pass(time.Second)
		agree(t, nodes...)
		e.set(false)
		pass(time.Hour)
		if agree(t, nodes...) == second {
			t.Error("it is not renewed after the database was away")
		}
		ca.gave(t, shared, 3)
	})
}

// TestAnotherNodeTakesOver when the one that orders dies, and orders meanwhile nothing twice.
func TestAnotherNodeTakesOver(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, ca *issuer, e *away, nodes []*acmeNode) {
		ca.hangs = true
		for _, n := range nodes {
			n.start()
		}
		pass(30 * time.Second)
		holder := func() (is *acmeNode) {
			for _, n := range nodes {
				if n.acme == nil {
					continue
				}
				if mine, _ := n.orders.Turn(t.Context(), shared); mine {
					if is != nil {
						t.Error("two nodes order")
					}
					is = n
				}
			}
			return is
		}
		was := holder()
		if was == nil {
			t.Fatal("nobody orders")
		}
		was.end()
		died := time.Now()
		ca.mu.Lock()
		ca.hangs = false
		ca.mu.Unlock()
		pass(ordering.Lease - time.Minute)
		ca.gave(t, shared, 0)
		pass(2 * time.Minute)
		others := slices.DeleteFunc(slices.Clone(nodes), func(n *acmeNode) bool { return n == was })
		agree(t, others...)
		ca.gave(t, shared, 1)
		was.start()
		pass(2 * time.Second)
		agree(t, nodes...)
		ca.gave(t, shared, 1)
		t.Log("taken over within", time.Since(died))
	})
}

// TestATurnEnds: who can't claim again orders no more, before the others may.
func TestATurnEnds(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, ca *issuer, e *away, nodes []*acmeNode) {
		ca.hangs = true
		for _, n := range nodes {
			n.start()
		}
		pass(30 * time.Second)
		turns := func() (n int) {
			for _, node := range nodes {
				if mine, _ := node.orders.Turn(t.Context(), shared); mine {
					n++
				}
			}
			return n
		}
		if n := turns(); n != 1 {
			t.Errorf("%d nodes order; want 1", n)
		}
		e.set(true)
		pass(ordering.Lease / 2)
		if n := turns(); n != 1 {
			t.Errorf("%d nodes order while the database is away; want 1", n)
		}
		pass(ordering.Lease/2 - 30*time.Second)
		if n := turns(); n != 0 {
			t.Errorf("%d nodes order after their time; want none", n)
		}
		e.set(false)
		pass(time.Minute)
		if n := turns(); n != 1 {
			t.Errorf("%d nodes order with the database again; want 1", n)
		}
		ca.mu.Lock()
		ca.hangs = false
		ca.mu.Unlock()
		pass(15 * time.Minute) // in which the orders that hang end
		agree(t, nodes...)
	})
}

// TestRowsThatSomebodyWrites: no row makes a node serve another certificate, whether it is an old one, of another name, or
// forged.
func TestRowsThatSomebodyWrites(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, ca *issuer, e *away, nodes []*acmeNode) {
		for _, n := range nodes {
			n.start()
		}
		pass(time.Minute)
		at := [2]string{"acme", "certificate " + testDirectory + " " + shared}
		var old, own changes.Row
		e.Do(func(rows map[[2]string]changes.Row) {
			old, own = rows[at], rows[[2]string{"acme", "certificate " + testDirectory + " own.example.com"}]
		})
		if own.Value == nil {
			t.Fatal("there is no row of the other name")
		}
		pass(due)
		newest := agree(t, nodes...)
		edit := func(value []byte) {
			last := uint64(0)
			e.Do(func(rows map[[2]string]changes.Row) {
				for _, row := range rows {
					last = max(last, row.Number)
				}
				last++
				row := rows[at]
				row.Number, row.Value, row.Size = last, value, len(value)
				rows[at] = row
			})
			e.Advance(last)
		}
		for what, value := range map[string][]byte{"an old one": old.Value, "a removal": nil} {
			edit(value)
			pass(3 * time.Second)
			if agree(t, nodes...) != newest {
				t.Errorf("%s replaces a certificate", what)
			}
			nodes[0].end()
			nodes[0].start()
			pass(3 * time.Second)
			if agree(t, nodes...) != newest {
				t.Errorf("%s replaces a certificate over a restart", what)
			}
			e.Do(func(rows map[[2]string]changes.Row) {
				if value := rows[at].Value; value == nil || bytes.Equal(value, old.Value) {
					t.Errorf("%s stays in the database", what)
				}
			})
		}
		// a lost folder gets it from the others
		nodes[0].end()
		for _, f := range []string{"acme", "changes"} {
			if err := os.RemoveAll(filepath.Join(nodes[0].dir, f)); err != nil {
				t.Fatal(err)
			}
		}
		nodes[0].start()
		pass(3 * time.Second)
		if agree(t, nodes...) != newest {
			t.Error("an empty node has another one")
		}
		other := own.Value
		foreign, err := secrets.ReadKeys(otherKey(t))
		if err != nil {
			t.Fatal(err)
		}
		right, err := secrets.ReadKeys(nodes[0].key)
		if err != nil {
			t.Fatal(err)
		}
		key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		der, _ := x509.MarshalECPrivateKey(key)
		forged := append(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.issue(key.Public(), shared, 999*life)})...)
		for what, value := range map[string][]byte{
			"of another name": other, "in clear": forged,
			"of another authority": right.Seal("acme certificate https://test.example/dir "+shared, forged),
			"under another key":    foreign.Seal("acme "+at[1], forged),
		} {
			edit(value)
			pass(3 * time.Second)
			for _, n := range nodes {
				if n.serial(shared) != newest {
					t.Errorf("a row %s replaces a certificate", what)
				}
				if why := n.known.Trouble(); !strings.Contains(why, ", of kind acme and node ") || strings.Contains(why, "PRIVATE") {
					t.Errorf("a row %s: %q", what, why)
				}
			}
			e.Do(func(rows map[[2]string]changes.Row) { own = rows[at] })
			nodes[own.Node-1].end() // which wrote the row, and writes it again
			nodes[own.Node-1].start()
			pass(2 * time.Minute)
			agree(t, nodes...)
		}
		ca.gave(t, shared, 2)
	})
}

func otherKey(t *testing.T) string {
	path := t.TempDir() + "/other"
	if err := secrets.WriteKeys(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAnotherAuthority: a certificate of before a change of the authority stays at its node, and is ordered anew there.
func TestAnotherAuthority(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, ca *issuer, e *away, nodes []*acmeNode) {
		nodes[0].start()
		pass(time.Minute)
		first := agree(t, nodes[0])
		nodes[0].end()
		path := filepath.Join(nodes[0].dir, "acme", shared)
		c := Cache{Dir: filepath.Dir(path), Now: time.Now, Log: slog.New(slog.DiscardHandler)}
		text, err := c.Get(t.Context(), shared)
		if err != nil || !bytes.HasPrefix(text, []byte("directory "+testDirectory+"\n")) {
			t.Fatalf("the file has %q, %v", text, err)
		}
		if err := c.Put(t.Context(), shared, bytes.Replace(text, []byte(testDirectory), []byte("https://test.example/dir"), 1)); err != nil {
			t.Fatal(err)
		}
		e.Do(func(rows map[[2]string]changes.Row) { clear(rows) })
		nodes[1].start()
		nodes[0].start()
		pass(time.Minute)
		if agree(t, nodes...) == first {
			t.Error("the certificate of another authority is shared")
		}
		ca.gave(t, shared, 2)
	})
}
