package smtpclient

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
)

func TestHandshake(t *testing.T) {
	for _, test := range []struct {
		name   string
		script string
		change func(*Config)
		mode   Mode   // when it succeeds
		want   string // in the error
		step   error
	}{
		{name: "EHLO", script: greeted(chunking), mode: Chunked},
		{name: "chunking without pipelining", script: greeted("< 250-mx\n< 250 CHUNKING\n"), mode: LockStep},
		{name: "long greeting", script: "< 220-mx\n< 220-no spam\n< 220 please\n> EHLO relay.example\n" + pipelining, mode: Pipelined},
		{name: "HELO", script: "< 220 mx\n> EHLO relay.example\n< 502 what\n> HELO relay.example\n< 250 mx\n", mode: LockStep},
		{name: "neither", script: "< 220 mx\n> EHLO relay.example\n< 550 5.7.1 your name is bad\n> HELO relay.example\n< 550 no\n> QUIT\neof\n", want: "EHLO: 550 5.7.1 your name is bad"},
		{name: "EHLO deferred", script: "< 220 mx\n> EHLO relay.example\n< 421 4.7.0 later\n> QUIT\neof\n", want: "EHLO: 421 4.7.0 later"},
		{name: "greeting refused", script: "< 554 5.7.1 go away\n> QUIT\neof\n", want: "greeting: 554 5.7.1 go away"},
		{name: "greeting busy", script: "< 421 too busy\n> QUIT\neof\n", want: "greeting: 421 too busy"},
		{name: "greeting late", script: "pause 299s\nsilence\n" + greeted(pipelining), mode: Pipelined},
		{name: "no greeting", script: "pause 301s\neof\n", want: "greeting: 421 4.4.2 timed out while waiting for the greeting"},
		{name: "closed", script: "close\n", want: "greeting: 421 4.4.2 the host closed the connection"},
		{name: "not SMTP", script: "< SSH-2.0-OpenSSH_9.9\neof\n", want: "greeting: 451 4.5.0 the host answers out of step", step: ErrOutOfStep},
		{name: "354 to EHLO", script: "< 220 mx\n> EHLO*\n< 354 go\neof\n", want: "EHLO: 451 4.5.0", step: ErrOutOfStep},
		{name: "STARTTLS not offered, opportunistic", script: greeted(pipelining), mode: Pipelined, change: func(c *Config) { c.TLS = &TLS{} }},
		{name: "STARTTLS not offered, required", script: greeted(pipelining) + "> QUIT\neof\n", want: "STARTTLS: 454 4.7.4", change: func(c *Config) { c.TLS = &TLS{Required: true} }},
		{name: "STARTTLS refused, opportunistic", script: greeted("< 250-mx\n< 250 STARTTLS\n") + "> STARTTLS\n< 454 no\n", mode: LockStep, change: func(c *Config) { c.TLS = &TLS{} }},
		{name: "STARTTLS refused, required", script: greeted("< 250-mx\n< 250 STARTTLS\n") + "> STARTTLS\n< 454 4.3.0 no\n> QUIT\neof\n", want: "STARTTLS: 454 4.3.0 no", change: func(c *Config) { c.TLS = &TLS{Required: true} }},
		{name: "STARTTLS answered with 250, opportunistic", script: greeted("< 250-mx\n< 250 STARTTLS\n") + "> STARTTLS\n< 250 ok\neof\n", want: "STARTTLS: 451 4.5.0", step: ErrOutOfStep, change: func(c *Config) { c.TLS = &TLS{} }},
		{name: "STARTTLS answered with 250, required", script: greeted("< 250-mx\n< 250 STARTTLS\n") + "> STARTTLS\n< 250 ok\neof\n", want: "STARTTLS: 451 4.5.0", step: ErrOutOfStep, change: func(c *Config) { c.TLS = &TLS{Required: true} }},
		{name: "STARTTLS not offered, REQUIRETLS", script: greeted(pipelining) + "> QUIT\neof\n", want: "STARTTLS: 550 5.7.10", change: func(c *Config) { c.TLS = &TLS{Required: true, REQUIRETLS: true} }},
		{name: "STARTTLS offered and off", script: greeted("< 250-mx\n< 250 STARTTLS\n"), mode: LockStep},
		{name: "credentials in clear text", script: greeted("< 250-mx\n< 250 AUTH PLAIN\n") + "> QUIT\neof\n", want: "AUTH: 454 4.7.11", change: func(c *Config) { c.Auth = &route.Auth{Username: "u", Password: "p"} }},
		{name: "bad name of ours", script: "eof\n", want: "EHLO: 451 4.3.5", change: func(c *Config) { c.Name = "a\r\nMAIL FROM:<x>" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				cfg := testConfig()
				if test.change != nil {
					test.change(&cfg)
				}
				client, server := wire(0, 0)
				h := play(t, server, script(test.script))
				c, err := Handshake(context.Background(), client, cfg)
				if test.want == "" {
					if err != nil {
						t.Fatal(err)
					}
					if c.Mode() != test.mode {
						t.Errorf("mode %v; want %v", c.Mode(), test.mode)
					}
					c.Close()
					<-c.Ended()
					<-h.done
					return
				}
				<-h.done
				var e *Error
				var r *reply.Reply
				if !errors.As(err, &e) || !errors.As(err, &r) || !strings.HasPrefix(err.Error(), test.want) {
					t.Fatalf("error %v; want %q", err, test.want)
				}
				if test.step != nil && !errors.Is(err, test.step) {
					t.Errorf("error %v does not wrap %v", err, test.step)
				}
			})
		})
	}
}

func TestHandshakeEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		client, server := wire(0, 0)
		h := play(t, server, "< 220 mx\n> EHLO*\neof\n")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		start := time.Now()
		_, err := Handshake(ctx, client, testConfig())
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		// A chain that led back to itself would never come to an end here.
		if other := (*tls.CertificateVerificationError)(nil); errors.As(err, &other) {
			t.Errorf("%v has to do with certificates", err)
		}
		<-h.done
	})
}

// authority makes certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func (a *authority) serverConfig(t *testing.T, name string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// tlsHost is a host that says what it is told and switches to TLS.
type tlsHost struct {
	t     *testing.T
	nc    net.Conn
	in    *bufio.Reader
	heard []string
}

func (h *tlsHost) say(text string) { _, _ = h.nc.Write([]byte(text)) }

func (h *tlsHost) hear() {
	line, err := h.in.ReadString('\n')
	if err != nil {
		line = err.Error()
	}
	h.heard = append(h.heard, strings.TrimSpace(line))
}

func (h *tlsHost) secure(cfg *tls.Config) bool {
	secured := tls.Server(h.nc, cfg)
	if err := secured.Handshake(); err != nil {
		h.heard = append(h.heard, "no TLS")
		_ = h.nc.Close()
		return false
	}
	h.nc, h.in = secured, bufio.NewReader(secured)
	return true
}

func withTLSHost(t *testing.T, cfg Config, serve func(*tlsHost)) (*Conn, *tlsHost, error) {
	client, server := wire(0, 0)
	h := &tlsHost{t: t, nc: server, in: bufio.NewReader(server)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve(h)
	}()
	c, err := Handshake(context.Background(), client, cfg)
	if c != nil {
		c.Finish()
		<-c.Ended()
	}
	<-done
	return c, h, err
}

func TestStartTLS(t *testing.T) {
	const offer = "250-mx\r\n250-PIPELINING\r\n250 STARTTLS\r\n"
	for _, test := range []struct {
		name   string
		tls    TLS
		verify error
		inject string
		second string // capabilities over TLS
		code   int    // of the failure
		status string
	}{
		{name: "any certificate"},
		{name: "accepted", tls: TLS{Required: true, Verify: func(*tls.ConnectionState) error { return nil }}},
		{name: "not accepted", tls: TLS{Required: true}, verify: errors.New("wrong name"), code: 454, status: "4.7.5"},
		{name: "not accepted, and REQUIRETLS", tls: TLS{Required: true, REQUIRETLS: true}, verify: errors.New("wrong name"), code: 550, status: "5.7.10"},
		{name: "REQUIRETLS", tls: TLS{Required: true, REQUIRETLS: true}, second: "250-REQUIRETLS\r\n"},
		{name: "no REQUIRETLS", tls: TLS{Required: true, REQUIRETLS: true}, code: 550, status: "5.7.30"},
		{name: "injected replies are dropped", inject: "250-evil\r\n250 AUTH PLAIN\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ca := newAuthority(t)
				cfg := testConfig()
				cfg.TLS = &test.tls
				if test.verify != nil {
					cfg.TLS.Verify = func(*tls.ConnectionState) error { return test.verify }
				}
				var log bytes.Buffer
				cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
				c, h, err := withTLSHost(t, cfg, func(h *tlsHost) {
					h.say("220 mx\r\n")
					h.hear()
					h.say(offer)
					h.hear()
					h.say("220 go\r\n" + test.inject)
					if !h.secure(ca.serverConfig(t, "mx.example")) {
						return
					}
					h.hear()
					h.say("250-mx\r\n" + test.second + "250-SIZE 5\r\n250 CHUNKING\r\n")
					h.hear()
					h.say("221 bye\r\n")
				})
				if test.code != 0 {
					var e *Error
					if !errors.As(err, &e) || e.TLS != (test.verify != nil) || e.Reply.Code != test.code || e.Reply.Status().String() != test.status {
						t.Fatalf("error %#v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(h.heard, "|"); got != "EHLO relay.example|STARTTLS|EHLO relay.example|QUIT" {
					t.Errorf("the host heard %s", got)
				}
				if c.TLS() == nil || c.TLS().Version != tls.VersionTLS13 {
					t.Errorf("TLS %v", c.TLS())
				}
				caps := c.Capabilities()
				if caps.Pipelining || !caps.Chunking || caps.SizeLimit != 5 || caps.Auth != nil {
					t.Errorf("capabilities are not those said over TLS: %+v", caps)
				}
				if noted := strings.Contains(log.String(), "discarded"); noted != (test.inject != "") {
					t.Errorf("log: %s", log.String())
				}
			})
		})
	}
}

// A host that promises STARTTLS and can't do it: the caller must be able to tell, so that it can try
// again in clear text.
func TestBrokenTLSIsToldApart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.TLS = &TLS{}
		_, _, err := withTLSHost(t, cfg, func(h *tlsHost) {
			h.say("220 mx\r\n")
			h.hear()
			h.say("250-mx\r\n250 STARTTLS\r\n")
			h.hear()
			h.say("220 go\r\n")
			h.say("500 what is that\r\n")
			h.hear()
			_ = h.nc.Close()
		})
		var e *Error
		if !errors.As(err, &e) || !e.TLS {
			t.Errorf("error %v", err)
		}
	})
}

func TestImplicitTLS(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		cfg := testConfig()
		cfg.TLS = &TLS{Implicit: true, Required: true}
		c, h, err := withTLSHost(t, cfg, func(h *tlsHost) {
			if !h.secure(ca.serverConfig(t, "mx.example")) {
				return
			}
			h.say("220 mx\r\n")
			h.hear()
			h.say("250-mx\r\n250 STARTTLS\r\n")
			h.hear()
			h.say("221 bye\r\n")
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(h.heard, "|"); got != "EHLO relay.example|QUIT" || c.TLS() == nil {
			t.Errorf("the host heard %s", got)
		}
	})
}

func TestAuth(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString
	for _, test := range []struct {
		name, offer string
		says        []string // after each thing heard
		heard       string
		want        string
	}{
		{name: "PLAIN", offer: "AUTH LOGIN PLAIN CRAM-MD5", says: []string{"235 2.7.0 ok"}, heard: "AUTH PLAIN " + b64([]byte("\x00user\x00secret"))},
		{name: "LOGIN", offer: "AUTH LOGIN", says: []string{"334 VXNlcm5hbWU6", "334 UGFzc3dvcmQ6", "235 ok"}, heard: "AUTH LOGIN|" + b64([]byte("user")) + "|" + b64([]byte("secret"))},
		{name: "old spelling", offer: "AUTH=LOGIN", says: []string{"334 ", "334 ", "235 ok"}, heard: "AUTH LOGIN|" + b64([]byte("user")) + "|" + b64([]byte("secret"))},
		{name: "refused", offer: "AUTH PLAIN", says: []string{"535 5.7.8 wrong"}, want: "AUTH: 535 5.7.8 wrong"},
		{name: "nothing in common", offer: "AUTH GSSAPI", want: "AUTH: 454 4.7.4"},
		{name: "not offered", offer: "HELP", want: "AUTH: 454 4.7.4"},
		{name: "one question too many", offer: "AUTH LOGIN", says: []string{"334 ", "334 ", "334 "}, want: "AUTH: 454 4.7.0"},
		{name: "out of step", offer: "AUTH PLAIN", says: []string{"354 go"}, want: "AUTH: 451 4.5.0"},
		{name: "not base64", offer: "AUTH LOGIN", says: []string{"334 Username:"}, want: "AUTH: 451 4.5.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ca := newAuthority(t)
				var trace, log bytes.Buffer
				cfg := testConfig()
				cfg.TLS = &TLS{Implicit: true, Required: true}
				cfg.Auth = &route.Auth{Username: "user", Password: "secret"}
				cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
				cfg.Trace = &Trace{Line: func(_ *Transaction, d Direction, line []byte) {
					trace.WriteString(d.String() + " " + string(line) + "\n")
				}}
				_, h, err := withTLSHost(t, cfg, func(h *tlsHost) {
					if !h.secure(ca.serverConfig(t, "mx.example")) {
						return
					}
					h.say("220 mx\r\n")
					h.hear()
					h.say("250-mx\r\n250 " + test.offer + "\r\n")
					for _, line := range test.says {
						h.hear()
						h.say(line + "\r\n")
					}
					h.hear()
					h.say("221 bye\r\n")
				})
				if test.want != "" {
					if err == nil || !strings.HasPrefix(err.Error(), test.want) {
						t.Errorf("error %v", err)
					}
				} else if got := strings.Join(h.heard, "|"); err != nil || got != "EHLO relay.example|"+test.heard+"|QUIT" {
					t.Errorf("heard %s, error %v", got, err)
				}
				for _, secret := range []string{"secret", b64([]byte("secret")), b64([]byte("\x00user\x00secret"))} {
					if strings.Contains(trace.String()+log.String(), secret) {
						t.Errorf("the password is in trace or log:\n%s%s", trace.String(), log.String())
					}
				}
				if !strings.Contains(trace.String(), "> EHLO relay.example\n") {
					t.Errorf("trace:\n%s", trace.String())
				}
			})
		})
	}
}
