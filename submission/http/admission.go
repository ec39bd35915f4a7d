package http

import (
	"crypto/sha256"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/admission"
	"example.org/mta/internal/network"
	"example.org/mta/submission/intake"
)

// queueToken is the field of a refusal that proves the first attempt, and of the request that comes back.
const queueToken = "X-Queue-Token"

// Tokens makes and checks the tokens that prove first attempts, with keys that change every day. It is
// safe for use by many goroutines.
type Tokens struct {
	signer *admission.Signer
	day    atomic.Int64 // of the signer's keys; 0: they are to be made anew

	mu      sync.Mutex // guards what follows, and is held while the signer gets other keys
	secrets [][]byte   // the first makes tokens
}

// NewTokens makes tokens of a secret. Servers with the same one take each other's.
func NewTokens(secret []byte) *Tokens {
	return &Tokens{secrets: [][]byte{secret}, signer: admission.NewSigner(admission.Key{})}
}

// Accept has tokens of other secrets taken, too, and of none else.
func (t *Tokens) Accept(others [][]byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.secrets = slices.Concat(t.secrets[:1], others)
	t.day.Store(0)
	return nil
}

// at gives the signer with the keys of a day.
func (t *Tokens) at(now time.Time) *admission.Signer {
	day := now.Unix()/86_400 + 1 // never 0
	if t.day.Load() == day {
		return t.signer
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []admission.Key
	for _, secret := range t.secrets {
		keys = append(keys, admission.Daily(secret, now)...)
	}
	t.signer.Rotate(keys...)
	t.day.Store(day)
	return t.signer
}

// normalTier is that of messages of which nothing is known.
const normalTier = 3

// admit asks whether messages are taken now, before any of the body has come.
func (c *Call) admit() error {
	cfg := &c.server.config
	if cfg.Admission == nil {
		return nil
	}
	now := cfg.Now()
	first, bound := now, c.bound()
	if cfg.Tokens != nil {
		first = cfg.Tokens.at(now).First(c.Request.Header.Get(queueToken), c.Identity.Tenant, bound, now)
	}
	ask := intake.AdmitRequest{
		Session: c.ID, Peer: c.Client, Network: network.Of(c.Client.Addr()), User: c.Identity.Name,
		Tenant: c.Identity.Tenant,
		Tier:   normalTier, Size: max(c.Request.ContentLength, 0), TLS: c.Request.TLS != nil, First: first,
	}
	link := c.ownLink()
	if link != nil {
		ask.Refused = int(link.shed.Load())
	}
	if cfg.TierOf != nil {
		ask.Tier = cfg.TierOf(ask.Tenant)
	}
	admitted, refused := cfg.Admission.Admit(ask)
	if refused == nil && admitted != nil {
		if refused = admitted.Full(); refused != nil {
			admitted.Drop()
		}
	}
	if refused != nil {
		p := c.shed(refused, first, bound)
		if link != nil {
			link.shed.Add(1)
			p.hold = refused.Hold
		}
		return p
	}
	if link != nil {
		link.shed.Store(0)
	}
	c.admitted = admitted
	return nil
}

// ownLink is the request's connection if it is one client's; nil for that of a proxy, whose clients share it.
func (c *Call) ownLink() *link {
	peer, _ := netip.ParseAddrPort(c.Request.RemoteAddr)
	if network.Contain(c.server.config.TrustedProxies, peer.Addr().Unmap().WithZone("")) {
		return nil
	}
	return linkOf(c.Request)
}

// TakeAdmission gives the admission of the request's messages to whoever commits them, nil where nobody
// had to ask.
func (c *Call) TakeAdmission() (a intake.Admitted) {
	a, c.admitted = c.admitted, nil
	return a
}

// bound is what a token belongs to: the Idempotency-Key of the request, or else all that is known of it
// before its body, so that no token can be kept for another message.
func (c *Call) bound() (sum [16]byte) {
	h := sha256.New()
	write := func(text string) { h.Write([]byte(strconv.Itoa(len(text)) + ":" + text)) }
	if key := c.Request.Header.Get("Idempotency-Key"); key != "" {
		write(key)
	} else {
		write(c.Identity.ID)
		write(c.Request.URL.RequestURI())
		write(c.Request.Header.Get("Content-Type"))
		write(strconv.FormatInt(c.Request.ContentLength, 10))
	}
	copy(sum[:], h.Sum(nil))
	return sum
}

// shed is the answer to a request that Admission refused.
func (c *Call) shed(r *intake.Refused, first time.Time, bound [16]byte) *Problem {
	p := &Problem{RetryAfter: admission.RetryAfter(rand.Float64())}
	if r.Disk {
		p.Status, p.Detail, p.Reason = http.StatusServiceUnavailable,
			"the relay's disk is nearly full: try again", "disk"
		return p
	}
	p.Status, p.Reason = http.StatusTooManyRequests, "overload"
	p.Detail = "the relay is overloaded: try again"
	if tokens := c.server.config.Tokens; tokens != nil {
		p.Detail += ", and send X-Queue-Token back to keep your place in the queue"
		token := tokens.at(c.server.config.Now()).Token(
			admission.Claim{First: first, Tenant: c.Identity.Tenant, Bound: bound})
		p.Header = http.Header{queueToken: {token}}
	}
	return p
}
