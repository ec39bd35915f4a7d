package delivery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

// secureWorld is a world whose policy trusts one certificate, with what it recorded.
type secureWorld struct {
	*world
	records tlsRecords
	results []tlspolicy.Result
	good    *tls.Config // of mx, and trusted
}

type tlsRecords func(context.Context, route.Host) (tlspolicy.TLSA, error)

func (f tlsRecords) TLSA(ctx context.Context, h route.Host) (tlspolicy.TLSA, error) { return f(ctx, h) }

func (w *secureWorld) Record(r tlspolicy.Result) { w.results = append(w.results, r) }

func newSecureWorld(t *testing.T, change func(*tlspolicy.Config)) *secureWorld {
	good, roots, err := sink.SelfSigned("mx")
	if err != nil {
		t.Fatal(err)
	}
	w := &secureWorld{good: good}
	cfg := tlspolicy.Config{
		Recorder: w, Roots: func(string) (*x509.CertPool, error) { return roots, nil },
		Records: tlsRecords(func(ctx context.Context, h route.Host) (tlspolicy.TLSA, error) {
			if w.records == nil {
				return tlspolicy.TLSA{}, nil
			}
			return w.records(ctx, h)
		}),
	}
	if change != nil {
		change(&cfg)
	}
	w.world = newWorld(t, func(c *Config) { c.TLS = tlspolicy.New(cfg) })
	w.recorder = sink.NewRecorder(sink.Contents, 0)
	return w
}

// certificate makes one that nobody trusts.
func certificate(t *testing.T, name string) *tls.Config {
	cfg, _, err := sink.SelfSigned(name)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// carried returns how a demand's message fared: "tls", "clear", or the enhanced code with which it waits or
// comes back.
func (w *secureWorld) carried(r *route.Route, d tlspolicy.Demand) string {
	d.CA = "ours"
	j, n := w.job(r, 1), w.count()
	j.Demand, j.Message.RequireTLS = d, d.RequireTLS
	w.submit(j)
	res := w.awaitResults(n+1, time.Hour)[n]
	if !res.Reply.OK() {
		return res.Reply.Status().String()
	}
	all := w.recorder.Messages()
	if all[len(all)-1].TLS {
		return "tls"
	}
	return "clear"
}

var enforced = tlspolicy.Demand{Level: tlspolicy.Verified, STS: route.STS{Mode: route.STSEnforce, MX: "mx"}}

// Somebody between us and the host, or the host itself, spoils TLS in all the ways that there are. What
// may go in clear text does, and nothing else.
func TestMenInTheMiddle(t *testing.T) {
	required := tlspolicy.Demand{Level: tlspolicy.Required}
	verified := tlspolicy.Demand{Level: tlspolicy.Verified}
	requireTLS := tlspolicy.Demand{Level: tlspolicy.Verified, RequireTLS: true}
	refuse := func(text string) func(sink.Command) sink.Answer {
		return func(c sink.Command) sink.Answer {
			if c.Phase == sink.StartTLS {
				return sink.Answer{Reply: text}
			}
			return sink.Answer{}
		}
	}
	for _, attack := range []struct {
		name string
		host func(t *testing.T, good *tls.Config) sink.Config
		want [6]string // opportunistic, off, required, verified, enforced by MTA-STS, REQUIRETLS
	}{
		{"none", func(_ *testing.T, good *tls.Config) sink.Config { return sink.Config{TLS: good} },
			[6]string{"tls", "clear", "tls", "tls", "tls", "tls"}},
		{"strips STARTTLS", func(*testing.T, *tls.Config) sink.Config { return sink.Config{} },
			[6]string{"clear", "clear", "4.7.4", "4.7.4", "4.7.4", "5.7.10"}},
		{"answers 454", func(_ *testing.T, good *tls.Config) sink.Config {
			return sink.Config{TLS: good, Hook: refuse("454 4.7.0 not now")}
		}, [6]string{"clear", "clear", "4.7.0", "4.7.0", "4.7.0", "4.7.0"}},
		{"answers 502", func(_ *testing.T, good *tls.Config) sink.Config {
			return sink.Config{TLS: good, Hook: refuse("502 5.5.1 what is that")}
		}, [6]string{"clear", "clear", "4.4.1", "4.4.1", "4.4.1", "4.4.1"}},
		{"answers 250", func(_ *testing.T, good *tls.Config) sink.Config {
			return sink.Config{TLS: good, Hook: refuse("250 2.0.0 go on")}
		}, [6]string{"4.5.0", "clear", "4.5.0", "4.5.0", "4.5.0", "4.5.0"}},
		{"breaks the handshake", func(*testing.T, *tls.Config) sink.Config {
			return sink.Config{TLS: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return nil, errors.New("broken")
			}}}
		}, [6]string{"clear", "clear", "4.7.5", "4.7.5", "4.7.5", "4.7.5"}},
		{"swaps the certificate for another of the name", func(t *testing.T, _ *tls.Config) sink.Config {
			return sink.Config{TLS: certificate(t, "mx")}
		}, [6]string{"tls", "clear", "tls", "4.7.5", "4.7.5", "5.7.10"}},
		{"swaps the certificate for one of another name", func(t *testing.T, _ *tls.Config) sink.Config {
			return sink.Config{TLS: certificate(t, "evil")}
		}, [6]string{"tls", "clear", "tls", "4.7.5", "4.7.5", "5.7.10"}},
	} {
		for i, d := range []tlspolicy.Demand{{}, {Level: tlspolicy.Off}, required, verified, enforced, requireTLS} {
			bubble.Test(t, func(t *testing.T) {
				w := newSecureWorld(t, nil)
				defer w.end()
				r := routeTo("a", tier(w.host("mx", attack.host(t, w.good))))
				r.Secure = d.RequireTLS
				if got := w.carried(r, d); got != attack.want[i] {
					t.Errorf("%s: demand %d (%v) is carried %s, want %s", attack.name, i, d.Level, got, attack.want[i])
				}
			})
		}
	}
}

// When the attack ends, the mail goes; and mail that needs less never stopped.
func TestMailGoesWhenTheAttackEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newSecureWorld(t, nil)
		defer w.end()
		var stripped atomic.Bool
		stripped.Store(true)
		h := w.host("mx", sink.Config{TLS: w.good, Hook: func(c sink.Command) sink.Answer {
			if stripped.Load() && c.Phase == sink.StartTLS {
				return sink.Answer{Reply: "454 4.7.0 not now"}
			}
			return sink.Answer{}
		}})
		r := routeTo("a", tier(h))
		if got := w.carried(r, enforced); got != "4.7.0" {
			t.Errorf("under attack mail is carried %s", got)
		}
		if got := w.carried(r, tlspolicy.Demand{}); got != "clear" {
			t.Errorf("mail that needs no TLS is carried %s", got)
		}
		stripped.Store(false)
		time.Sleep(2 * time.Minute) // until the host is tried again
		if got := w.carried(r, enforced); got != "tls" {
			t.Errorf("after the attack mail is carried %s", got)
		}
	})
}

// A host that falls short is left out for the mail that it falls short of, and the next one takes it.
func TestTheNextHostTakesIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newSecureWorld(t, nil)
		defer w.end()
		bad := w.host("bad", sink.Config{TLS: certificate(t, "bad")})
		r := routeTo("a", tier(bad), tier(w.host("mx", sink.Config{TLS: w.good})))
		if got := w.carried(r, tlspolicy.Demand{Level: tlspolicy.Verified}); got != "tls" {
			t.Errorf("carried %s", got)
		}
		if res := w.settled()[0]; res.Host.Name != "mx" || res.Link.TLS.Verified != tlspolicy.ByPKIX || res.Link.TLS.Certificate != "mx" {
			t.Errorf("%+v", res)
		}
		w.carried(r, tlspolicy.Demand{})
		if res := w.settled()[1]; res.Host.Name != "bad" || res.Link.TLS.Verified != tlspolicy.ByNothing {
			t.Errorf("mail that needs less: %+v", res)
		}
	})
}

// DANE, row by row (RFC 7672, 2.2): what a host's records are, and what becomes of opportunistic mail.
func TestRecordsOfAHost(t *testing.T) {
	match := func(ok bool) func(*tls.ConnectionState) error {
		return func(*tls.ConnectionState) error {
			if !ok {
				return errors.New("no record matches")
			}
			return nil
		}
	}
	for _, row := range []struct {
		name  string
		tlsa  tlspolicy.TLSA
		err   error
		tls   bool // the host has TLS, with a certificate of another name
		want  string
		by    tlspolicy.VerifiedBy
		class tlspolicy.Class
	}{
		{name: "none", tls: true, want: "tls"},
		{name: "none, no TLS", want: "clear", class: tlspolicy.NoSTARTTLS},
		{name: "unusable", tlsa: tlspolicy.TLSA{State: tlspolicy.Unusable}, tls: true, want: "tls", class: tlspolicy.TLSAInvalid},
		{name: "unusable, no TLS", tlsa: tlspolicy.TLSA{State: tlspolicy.Unusable}, want: "4.7.4", class: tlspolicy.NoSTARTTLS},
		{name: "match", tlsa: tlspolicy.TLSA{State: tlspolicy.Usable, Match: match(true)}, tls: true, want: "tls", by: tlspolicy.ByDANE},
		{name: "no match", tlsa: tlspolicy.TLSA{State: tlspolicy.Usable, Match: match(false)}, tls: true, want: "4.7.5", class: tlspolicy.TLSAInvalid},
		{name: "usable, no TLS", tlsa: tlspolicy.TLSA{State: tlspolicy.Usable, Match: match(true)}, want: "4.7.4", class: tlspolicy.NoSTARTTLS},
		{name: "bogus", err: &tlspolicy.Failure{Class: tlspolicy.DNSSECInvalid, Err: errors.New("bogus")}, tls: true, want: "4.7.5", class: tlspolicy.DNSSECInvalid},
	} {
		bubble.Test(t, func(t *testing.T) {
			w := newSecureWorld(t, nil)
			defer w.end()
			w.records = func(context.Context, route.Host) (tlspolicy.TLSA, error) { return row.tlsa, row.err }
			var cfg sink.Config
			if row.tls {
				cfg.TLS = certificate(t, "other")
			}
			if got := w.carried(routeTo("a", tier(w.host("mx", cfg))), tlspolicy.Demand{DANE: true}); got != row.want {
				t.Errorf("%s: carried %s, want %s", row.name, got, row.want)
			}
			if link := w.settled()[0].Link; row.by != "" && link.TLS.Verified != row.by {
				t.Errorf("%s: verified by %q", row.name, link.TLS.Verified)
			}
			if len(w.results) != 1 || w.results[0].Class != row.class || w.results[0].Domain != "a.example" {
				t.Errorf("%s: recorded %+v, want class %q", row.name, w.results, row.class)
			}
		})
	}
}

// RFC 8689, 4.2.1: without a host that will do the sender hears of it at once; while one may yet, not.
func TestREQUIRETLSWaitsOnlyForHostsThatMayDo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newSecureWorld(t, nil)
		defer w.end()
		d := tlspolicy.Demand{Level: tlspolicy.Verified, RequireTLS: true}
		plain, down := w.host("plain", sink.Config{}), w.host("mx", sink.Config{TLS: w.good})
		w.setDown(down, true)
		r := routeTo("a", tier(plain), tier(down))
		r.Secure = true
		if got := w.carried(r, d); got[0] != '4' {
			t.Errorf("while a host is down: %s", got)
		}
		w.setDown(down, false)
		time.Sleep(2 * time.Minute)
		if got := w.carried(r, d); got != "tls" {
			t.Errorf("carried %s", got)
		}
		all := w.recorder.Messages()
		if got := all[len(all)-1].MailParams; !strings.Contains(got, "REQUIRETLS") {
			t.Errorf("MAIL said %q", got)
		}
		insecure := routeTo("b", tier(down))
		d.Doubtful = true
		if got := w.carried(insecure, d); got != "5.7.10" {
			t.Errorf("hosts that nobody vouches for: %s", got)
		}
	})
}

// The second connection to a host resumes the session of the first, and is verified all the same.
func TestSessionsAreResumedAndVerified(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		trusts := true
		good, roots, err := sink.SelfSigned("mx")
		if err != nil {
			t.Fatal(err)
		}
		w := newSecureWorld(t, func(c *tlspolicy.Config) {
			c.Roots = func(string) (*x509.CertPool, error) {
				if trusts {
					return roots, nil
				}
				return x509.NewCertPool(), nil
			}
		})
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{TLS: good})))
		verified := tlspolicy.Demand{Level: tlspolicy.Verified}
		for i := range 2 {
			if got := w.carried(r, verified); got != "tls" {
				t.Fatalf("carried %s", got)
			}
			time.Sleep(time.Minute) // the connection is closed
			if x := w.settled()[i].Link.TLS; x.Resumed != (i == 1) || x.Verified != tlspolicy.ByPKIX {
				t.Errorf("connection %d: %+v", i, x)
			}
		}
		trusts = false
		if got := w.carried(r, verified); got != "4.7.5" {
			t.Errorf("when the authority is no longer trusted: %s", got)
		}
	})
}

// RFC 8689, 4.2.1: a policy of mode testing vouches for the hosts that it names, and for no others.
func TestREQUIRETLSHeedsPoliciesInTesting(t *testing.T) {
	for mx, want := range map[string]string{"mx": "tls", "other": "5.7.10"} {
		bubble.Test(t, func(t *testing.T) {
			w := newSecureWorld(t, nil)
			defer w.end()
			r := routeTo("a", tier(w.host("mx", sink.Config{TLS: w.good})))
			r.STS = route.STS{Mode: route.STSTesting, MX: mx}
			d := tlspolicy.Decide(tlspolicy.Settings{STS: true}, r, tlspolicy.Message{RequireTLS: true})
			if got := w.carried(r, d); got != want {
				t.Errorf("a policy for %s: carried %s, want %s", mx, got, want)
			}
		})
	}
}

// A session has the certificate that the host had when it began. That this one is not good any more is no
// reason for mail to wait, if the one that the host has now is.
func TestStaleSessionsAreNoTrouble(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newSecureWorld(t, nil)
		defer w.end()
		now := w.good.Certificates[0]
		w.records = func(context.Context, route.Host) (tlspolicy.TLSA, error) {
			return tlspolicy.TLSA{State: tlspolicy.Usable, Match: func(s *tls.ConnectionState) error {
				if string(s.PeerCertificates[0].Raw) != string(now.Certificate[0]) {
					return errors.New("no record matches")
				}
				return nil
			}}, nil
		}
		get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &now, nil }
		r := routeTo("a", tier(w.host("mx", sink.Config{TLS: &tls.Config{GetCertificate: get}})))
		for i := range 2 {
			if got := w.carried(r, tlspolicy.Demand{DANE: true}); got != "tls" {
				t.Errorf("certificate %d: carried %s", i, got)
			}
			time.Sleep(time.Minute) // the connection is closed
			now = certificate(t, "mx").Certificates[0]
		}
		for _, res := range w.results {
			if res.Class != "" {
				t.Errorf("recorded %+v", res)
			}
		}
	})
}

// Where TLS fails because of what was asked of it, or under a name that a stranger gave the host, other mail
// for the host is not sent in clear text.
func TestOthersKeepTheirTLS(t *testing.T) {
	old := func(cfg *tls.Config) *tls.Config {
		cfg = cfg.Clone()
		cfg.MaxVersion = tls.VersionTLS12
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if hello.ServerName != "mx" {
				return nil, errors.New("unrecognized name")
			}
			return nil, nil
		}
		return cfg
	}
	for name, demand := range map[string]tlspolicy.Demand{"mx": {MinVersion: tls.VersionTLS13}, "evil": {}} {
		bubble.Test(t, func(t *testing.T) {
			w := newSecureWorld(t, nil)
			defer w.end()
			h := w.host("mx", sink.Config{TLS: old(w.good)})
			if got := w.carried(routeTo("evil", tier(&worldHost{Host: route.Host{Name: name, Addr: h.Addr}})), demand); got != "clear" {
				t.Errorf("%s: carried %s", name, got)
			}
			if got := w.carried(routeTo("a", tier(h)), tlspolicy.Demand{}); got != "tls" {
				t.Errorf("after %s others are carried %s", name, got)
			}
		})
	}
}
