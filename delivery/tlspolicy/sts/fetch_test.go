package sts

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/httpclient"
	"example.org/mta/internal/testca"
)

// webServer is a web server over TLS on loopback, and the transport that gets there whatever the address and port.
type webServer struct {
	*httptest.Server
	names []string // that clients asked for by SNI
	asked []string // requests: host and path
}

func serveHTTPS(t *testing.T, ca *testca.Authority, cert *tls.Certificate, answer http.HandlerFunc) (*webServer, http.RoundTripper) {
	t.Helper()
	s := &webServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked = append(s.asked, r.Host+r.URL.Path)
		answer(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		s.names = append(s.names, h.ServerName)
		return cert, nil
	}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, transportTo(s.Listener.Addr().String(), ca.Pool())
}

func transportTo(address string, roots *x509.CertPool) http.RoundTripper {
	return httpclient.New(httpclient.Config{
		Addresses: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
		},
		Dial: func(ctx context.Context, _, to string) (net.Conn, error) {
			if to != "192.0.2.1:443" {
				return nil, fmt.Errorf("dialled %s", to)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
		TLS: &tls.Config{RootCAs: roots},
	})
}

func serveText(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, text)
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Location", "https://mta-sts.example.com/elsewhere")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, valid)
	}
}

func TestFetch(t *testing.T) {
	ca := testca.New(t)
	good := ca.Issue(t, []string{"mta-sts.example.com"})
	huge := valid + strings.Repeat("x: "+strings.Repeat("y", 1000)+"\n", 70)
	for _, tc := range []struct {
		name   string
		cert   *tls.Certificate
		answer http.HandlerFunc
		kind   Kind
		want   string
	}{
		{"good", good, serveText(valid), 0, "enforce"},
		{"good, wildcard certificate", ca.Issue(t, []string{"*.example.com"}), serveText(valid), 0, "enforce"},
		{"64 KiB", good, serveText(huge[:maxPolicySize-1]), 0, "enforce"},
		{"huge", good, serveText(huge), Fetch, "more than 65536 octets"},
		{"endless", good, func(w http.ResponseWriter, r *http.Request) {
			for w.Header().Set("Content-Type", "text/plain"); r.Context().Err() == nil; {
				_, _ = io.WriteString(w, valid)
			}
		}, Fetch, "more than 65536 octets"},
		{"no policy", good, serveText("hello"), Invalid, "line 1 of the policy: no colon"},
		{"404", good, status(404), Fetch, "answered 404 Not Found"},
		{"500", good, status(500), Fetch, "answered 500 Internal Server Error"},
		{"204", good, status(204), Fetch, "answered 204"},
		{"206", good, status(206), Fetch, "answered 206"},
		{"301", good, status(301), Fetch, "a redirect"},
		{"302", good, status(302), Fetch, "a redirect"},
		{"308", good, status(308), Fetch, "a redirect"},
		{"HTML", good, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, valid)
		}, Fetch, `media type is "text/html"`},
		{"no media type", good, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, valid)
		}, Fetch, `media type is ""`},
		{"cut", good, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, valid)
		}, Fetch, "unexpected EOF"},
		{"large header", good, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 20<<10))
			serveText(valid)(w, r)
		}, Fetch, "headers exceeded"},
		{"expired certificate", ca.Issue(t, []string{"mta-sts.example.com"}, testca.Expired), serveText(valid), Certificate, "certificate has expired"},
		{"certificate for the domain itself", ca.Issue(t, []string{"example.com"}), serveText(valid), Certificate, "not mta-sts.example.com"},
		{"name as common name only", ca.Issue(t, []string{"mta-sts.example.com"}, func(c *x509.Certificate) { c.DNSNames = []string{} }), serveText(valid), Certificate, "certificate"},
		{"another authority", testca.New(t).Issue(t, []string{"mta-sts.example.com"}), serveText(valid), Certificate, "unknown authority"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, transport := serveHTTPS(t, ca, tc.cert, tc.answer)
			p, err := fetch(t.Context(), transport, "example.com")
			switch {
			case err == nil && p.Mode.String() != tc.want:
				t.Errorf("got a policy of mode %s", p.Mode)
			case err != nil && (kindOfFetch(err) != tc.kind || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %s: %v", kindOfFetch(err), err)
			}
			if len(s.names) != 1 || s.names[0] != "mta-sts.example.com" {
				t.Errorf("names asked for by SNI: %q", s.names)
			}
			if tc.kind != Certificate && (len(s.asked) != 1 || s.asked[0] != "mta-sts.example.com/.well-known/mta-sts.txt") {
				t.Errorf("requests: %q", s.asked)
			}
		})
	}
}

// A web server that accepts and says nothing, before or after the handshake, or does not end, costs the time that is
// given and no more.
func TestFetchEndsInTime(t *testing.T) {
	ca := testca.New(t)
	over := make(chan struct{}) // the servers go on until the end: what they do after the client has gone may still reach it
	block := func(http.ResponseWriter, *http.Request) { <-over }
	begin := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, valid)
		w.(http.Flusher).Flush()
		<-over
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	_, blocked := serveHTTPS(t, ca, ca.Issue(t, []string{"mta-sts.example.com"}), block)
	_, begun := serveHTTPS(t, ca, ca.Issue(t, []string{"mta-sts.example.com"}), begin)
	defer close(over)
	for name, transport := range map[string]http.RoundTripper{
		"no handshake": transportTo(mute.Addr().String(), ca.Pool()), "no answer": blocked, "no end": begun,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if p, err := fetch(ctx, transport, "example.com"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
		cancel()
	}
}

// The next address of a web server is tried when one does not answer; without any, the error says so.
func TestAddressesOfTheWebServer(t *testing.T) {
	ca := testca.New(t)
	s, _ := serveHTTPS(t, ca, ca.Issue(t, []string{"mta-sts.example.com"}), serveText(valid))
	var dialled []string
	with := func(err error, addrs ...string) http.RoundTripper {
		dialled = nil
		return httpclient.New(httpclient.Config{
			TLS: &tls.Config{RootCAs: ca.Pool()},
			Addresses: func(_ context.Context, host string) (all []netip.Addr, _ error) {
				if host != "mta-sts.example.com" {
					t.Errorf("looked up %s", host)
				}
				for _, a := range addrs {
					all = append(all, netip.MustParseAddr(a))
				}
				return all, err
			},
			Dial: func(ctx context.Context, network, to string) (net.Conn, error) {
				dialled = append(dialled, to)
				if to == "192.0.2.9:443" {
					return new(net.Dialer).DialContext(ctx, network, s.Listener.Addr().String())
				}
				return nil, errors.New("connection refused")
			},
		})
	}
	if _, err := fetch(t.Context(), with(nil, "2001:db8::1", "192.0.2.9"), "example.com"); err != nil || strings.Join(dialled, " ") != "[2001:db8::1]:443 192.0.2.9:443" {
		t.Errorf("%v, dialled %q", err, dialled)
	}
	many := []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.9"}
	if _, err := fetch(t.Context(), with(nil, many...), "example.com"); err == nil || len(dialled) != 4 {
		t.Errorf("%v, dialled %q", err, dialled)
	}
	if _, err := fetch(t.Context(), with(nil), "example.com"); err == nil || !strings.Contains(err.Error(), "has no address") {
		t.Error(err)
	}
	if _, err := fetch(t.Context(), with(errors.New("SERVFAIL")), "example.com"); err == nil || !strings.Contains(err.Error(), "SERVFAIL") {
		t.Error(err)
	}
}
