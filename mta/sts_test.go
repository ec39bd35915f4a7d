package mta

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/internal/httpclient"
	"example.org/mta/internal/testca"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

// stsWorld is a world whose provider has TLS, behind a man in the middle, and a web server for policies.
type stsWorld struct {
	*world
	man     *middleman
	web     atomic.Pointer[string] // the policy of box.example; nil: 404
	fetched atomic.Int32
}

const boxPolicy = "version: STSv1\nmode: enforce\nmx: mx.box.example\nmax_age: 604800\n"

// stsSetup says how it differs from what works.
type stsSetup struct {
	cert   func(*x509.Certificate) // changes the host's certificate
	names  []string                // in it; mx.box.example by default
	other  bool                    // it is signed by another authority
	noTLS  bool                    // the host has none
	policy string                  // boxPolicy by default; "404"
	record string                  // of the domain; "none"
	extra  string                  // configuration
}

func newSTSWorld(t *testing.T, s stsSetup) *stsWorld {
	t.Helper()
	ca := testca.New(t)
	w := &stsWorld{man: newMiddleman(t)}
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w.fetched.Add(1)
		rw.Header().Set("Content-Type", "text/plain")
		policy := w.web.Load()
		if policy == nil {
			rw.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(rw, *policy)
	}))
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.TLS = &tls.Config{Certificates: []tls.Certificate{*ca.Issue(t, []string{"mta-sts.box.example"})}}
	web.StartTLS()
	t.Cleanup(web.Close)
	transport := httpclient.New(httpclient.Config{
		TLS: &tls.Config{RootCAs: ca.Pool()},
		Addresses: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.80")}, nil
		},
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, web.Listener.Addr().String())
		},
	})
	if s.policy == "" {
		s.policy = boxPolicy
	}
	if s.policy != "404" {
		w.web.Store(&s.policy)
	}
	signer := ca
	if s.other {
		signer = testca.New(t)
	}
	if s.names == nil {
		s.names = []string{"mx.box.example"}
	}
	if s.cert == nil {
		s.cert = func(*x509.Certificate) {}
	}
	host := sink.Config{Hostname: "mx.box.example", TLS: &tls.Config{Certificates: []tls.Certificate{*signer.Issue(t, s.names, s.cert)}}}
	if s.noTLS {
		host.TLS = nil
	}
	w.world = newWorldWith(t, Options{policyTransport: transport}, host, fmt.Sprintf(`
		defaults {
			smtp_port           = %s
			tls_ca              = %q
			retry_interval      = ["1s", "1s", "1s", "1s"]
			host_retry_interval = "1s"
		}
		%s`, w.man.port(), ca.File(t), s.extra))
	w.man.stand("127.0.0.1:" + w.port)
	if s.record == "" {
		s.record = "v=STSv1; id=1;"
	}
	if s.record != "none" {
		w.publish(s.record)
	}
	return w
}

// publish adds a TXT record for policies of box.example.
func (w *stsWorld) publish(record string) {
	w.t.Helper()
	if err := w.zone.Add(fmt.Sprintf("_mta-sts.box.example. 1 IN TXT %q", record)); err != nil {
		w.t.Fatal(err)
	}
}

// deferred sends a message and returns the first reply that deferred it. Nothing may have been readable.
func (w *stsWorld) deferred(to string) *accounting.Record {
	w.t.Helper()
	before := w.recorder.Tally().Deliveries
	w.send("ann@client.example", letter, to)
	rec := w.await(to, string(accounting.TransientFailure))
	if n := w.recorder.Tally().Deliveries - before; n != 0 {
		w.t.Errorf("%d messages were delivered", n)
	}
	w.nothingReadable()
	if r := rec.Response; r.Code/100 != 4 || r.Enhanced[0] != 4 || r.Enhanced[1] != 7 {
		w.t.Errorf("deferred with %s, want 4.7.x", r)
	}
	return rec
}

func (w *stsWorld) nothingReadable() {
	w.t.Helper()
	if heard := w.man.readable(); strings.Contains(heard, "MAIL") || strings.Contains(heard, "@") {
		w.t.Errorf("readable on the way:\n%s", heard)
	}
}

func TestMTASTSModes(t *testing.T) {
	t.Parallel()
	policy := func(mode, mx string) string {
		return "version: STSv1\nmode: " + mode + "\nmx: " + mx + "\nmax_age: 604800\n"
	}
	for _, tc := range []struct {
		name  string
		setup stsSetup
		says  string // why mail is deferred; "": it is delivered
		clear bool   // in clear text
		by    string // what vouches for the host
	}{
		{"enforce", stsSetup{}, "", false, "STS"},
		{"enforce, wildcard", stsSetup{policy: policy("enforce", "*.box.example")}, "", false, "STS"},
		{"enforce, another host", stsSetup{policy: policy("enforce", "mx2.box.example")}, "the MTA-STS policy of box.example does not name the host", false, ""},
		{"enforce, wildcard for more labels", stsSetup{policy: policy("enforce", "*.example")}, "does not name the host", false, ""},
		{"enforce, no TLS", stsSetup{noTLS: true}, "does not offer it", false, ""},
		{"enforce, expired certificate", stsSetup{cert: testca.Expired}, "certificate has expired", false, ""},
		{"enforce, wrong name", stsSetup{names: []string{"mx.other.example"}}, "the certificate is for mx.other.example", false, ""},
		{"enforce, certificate for the domain", stsSetup{names: []string{"box.example"}}, "the certificate is for box.example", false, ""},
		{"enforce, another authority", stsSetup{other: true}, "unknown authority", false, ""},
		{"testing, another host", stsSetup{policy: policy("testing", "mx2.box.example")}, "", false, "PKIX"},
		{"testing, another host, verified", stsSetup{policy: policy("testing", "mx2.box.example"), extra: `domain "box.example" { tls = "verified" }`}, "", false, "PKIX"},
		{"testing, another authority", stsSetup{policy: policy("testing", "mx.box.example"), other: true}, "", false, ""},
		{"testing, no TLS", stsSetup{policy: policy("testing", "mx.box.example"), noTLS: true}, "", true, ""},
		{"none", stsSetup{policy: policy("none", "mx2.box.example"), noTLS: true}, "", true, ""},
		{"no record", stsSetup{record: "none", noTLS: true}, "", true, ""},
		{"malformed record", stsSetup{record: "v=STSv1; id=!", noTLS: true}, "", true, ""},
		{"no policy behind the record", stsSetup{policy: "404", noTLS: true}, "", true, ""},
		{"malformed policy", stsSetup{policy: "<html>", noTLS: true}, "", true, ""},
		{"switched off", stsSetup{noTLS: true, extra: `domain "box.example" { mta_sts = false }`}, "", true, ""},
		{"TLS switched off", stsSetup{noTLS: true, extra: `domain "box.example" { tls = "off" }`}, "", true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newSTSWorld(t, tc.setup)
			if tc.says != "" {
				if rec := w.deferred("bob@box.example"); !strings.Contains(rec.Response.Text, tc.says) {
					t.Errorf("deferred with %s, want %q", rec.Response, tc.says)
				}
				return
			}
			w.send("ann@client.example", letter, "bob@box.example")
			if m := w.arrived(1)[0]; m.TLS == tc.clear {
				t.Errorf("came in clear text: %v", !m.TLS)
			}
			if rec := w.await("bob@box.example", string(accounting.Delivery)); rec.TLS.By != tc.by {
				t.Errorf("verified by %q, want %q", rec.TLS.By, tc.by)
			}
		})
	}
}

// A domain with two records has no policy (RFC 8461, 3.1).
func TestMTASTSTwoRecords(t *testing.T) {
	w := newSTSWorld(t, stsSetup{noTLS: true})
	w.publish("v=STSv1; id=2")
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(1)
	if n := w.fetched.Load(); n != 0 {
		t.Errorf("fetched %d times", n)
	}
}

// The hosts that satisfy a policy get the mail, the others nothing, whatever their preference.
func TestMTASTSNextHost(t *testing.T) {
	w := newSTSWorld(t, stsSetup{})
	if err := w.zone.Add(`
		box.example.         MX 5 mx.elsewhere.example.
		mx.elsewhere.example. A 127.0.0.1`); err != nil {
		t.Fatal(err)
	}
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(1)
	rec := w.await("bob@box.example", string(accounting.Delivery))
	if rec.Peer.Name != "mx.box.example" || rec.TLS.By != "STS" {
		t.Errorf("went to %s, verified by %q", rec.Peer.Name, rec.TLS.By)
	}
}

// Mail along a route of the configuration goes by the configuration alone.
func TestMTASTSOfASmarthost(t *testing.T) {
	w := newSTSWorld(t, stsSetup{policy: strings.Replace(boxPolicy, "mx.box", "mx2.box", 1)})
	w.rewrite("smarthost", fmt.Sprintf(`
		resolver { servers = [%q] }
		domain "box.example" { route = ["smtp://mx.box.example:%s"] }`, w.cfg.Resolver.Servers[0], w.man.port()))
	if _, err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(1)
	if n := w.fetched.Load(); n != 0 {
		t.Errorf("the policy was fetched %d times", n)
	}
}

// With a policy of mode enforce, a man in the middle delays mail and gets nothing: not a word of it is readable, and it
// is delivered when he goes.
func TestMTASTSManInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, does := range []attack{stripsEHLO, refuses, breaks, swaps, closes, answersEarly} {
		t.Run(string(does), func(t *testing.T) {
			t.Parallel()
			w := newSTSWorld(t, stsSetup{})
			w.man.begin(does)
			w.deferred("bob@box.example")
			w.nothingReadable()
			w.man.begin(passes)
			if m := w.arrived(1)[0]; !m.TLS {
				t.Error("came in clear text")
			}
		})
	}
}

// The attacks are such: without a policy each gets the mail to read, but for those that only TLS would tell.
func TestManInTheMiddleReadsWithoutPolicy(t *testing.T) {
	for _, does := range []attack{stripsEHLO, refuses, breaks, swaps, closes} {
		t.Run(string(does), func(t *testing.T) {
			w := newSTSWorld(t, stsSetup{record: "none"})
			w.man.begin(does)
			w.send("ann@client.example", letter, "bob@box.example")
			w.arrived(1)
			if heard := w.man.readable(); !strings.Contains(heard, "bob@box.example") {
				t.Errorf("readable on the way:\n%s", heard)
			}
		})
	}
}

// Who keeps the relay from the DNS and the web server, and strips STARTTLS, gains nothing against a cached policy, not even
// over a restart.
func TestMTASTSPolicyCantBeLookedUp(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*stsWorld){
		"DNS times out": func(w *stsWorld) { w.zone.Fault("_mta-sts.box.example", sink.DNSFault{Drop: true}) },
		"record is forged away": func(w *stsWorld) {
			w.zone.Fault("_mta-sts.box.example", sink.DNSFault{Rcode: 3})
		},
		"web server is down": func(w *stsWorld) {
			w.zone.Fault("_mta-sts.box.example", sink.DNSFault{Drop: true, First: 1})
			w.web.Store(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSTSWorld(t, stsSetup{})
			w.send("ann@client.example", letter, "first@box.example")
			w.await("first@box.example", string(accounting.Delivery))
			begin(w)
			for i := range 2 {
				if err := w.stop(); err != nil {
					t.Fatal(err)
				}
				w.man.begin(stripsEHLO)
				w.start()
				w.deferred(fmt.Sprintf("bob%d@box.example", i))
				w.man.begin(passes)
				if m := w.arrived(int64(i + 2))[i+1]; !m.TLS {
					t.Error("came in clear text")
				}
			}
		})
	}
}

// The operator sees the policy, and has it looked up when the domain has mended it.
// A policy that can't be fetched gets into the day's report, once for each look-up, without a policy's text.
func TestMTASTSFailuresAreReported(t *testing.T) {
	for what, s := range map[tlspolicy.Class]stsSetup{
		tlspolicy.STSFetchError: {policy: "404"},
		tlspolicy.STSInvalid:    {policy: "version: STSv1\nmode: enforce\n"},
	} {
		s.extra = `tls_reports { from = "tls-reports@client.example" }`
		w := newSTSWorld(t, s)
		for range 2 {
			w.send("ann@client.example", letter, "bob@box.example")
		}
		w.arrived(2)
		days, _ := w.tls.Reports.Days("box.example", "", 10)
		if len(days) != 1 {
			t.Fatalf("%s: %+v", what, days)
		}
		i := slices.IndexFunc(days[0].Policies, func(p tlsrpt.Policy) bool { return p.Type == tlspolicy.STSPolicy })
		if i < 0 {
			t.Fatalf("%s: %+v", what, days[0])
		}
		p := days[0].Policies[i]
		if p.Mode != "" || p.Failure != 1 || p.Success != 0 || len(p.Details) != 1 || p.Details[0].Class != what || p.Details[0].Reason == "" || p.Details[0].Host != "" {
			t.Errorf("%s: %+v", what, p)
		}
	}
}

// The text of a policy in a report is whole (RFC 8460, 4.4).
func TestTLSReportsKnowThePolicy(t *testing.T) {
	w := newSTSWorld(t, stsSetup{extra: `tls_reports { from = "tls-reports@client.example" }`})
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(1)
	days, _ := w.tls.Reports.Days("box.example", "", 10)
	if len(days) != 1 || len(days[0].Policies) != 1 || days[0].Policies[0].MaxAge != 604800 || days[0].Policies[0].Success == 0 {
		t.Errorf("%+v", days)
	}
}

func TestMTASTSForOperators(t *testing.T) {
	t.Parallel()
	w := newSTSWorld(t, stsSetup{policy: strings.Replace(boxPolicy, "mx.box", "mx2.box", 1)})
	w.deferred("bob@box.example")
	e := w.explainDomain("box.example")
	if e.TLS != "verified" || e.TLSOrigin != "the MTA-STS policy of box.example" || e.MTASTS == nil || e.MTASTS.Mode != "enforce" || e.MTASTS.MX[0] != "mx2.box.example" || e.MTASTS.ID != "1" {
		t.Errorf("%s by %s, %+v", e.TLS, e.TLSOrigin, e.MTASTS)
	}
	good := boxPolicy
	w.web.Store(&good)
	client := w.api.Destinations
	p, err := client.RefreshSTSPolicy(t.Context(), "box.example", api.Intent{})
	if err != nil || p.Mode != "enforce" || p.MX[0] != "mx.box.example" || p.Failure != "" {
		t.Errorf("%+v, %v", p, err)
	}
	w.arrived(1) // by a route that has the new policy

	w.web.Store(nil)
	p, err = client.RefreshSTSPolicy(t.Context(), "box.example", api.Intent{})
	if err != nil || p.Mode != "enforce" || !strings.Contains(p.Failure, "404 Not Found") || p.Absent {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := client.RefreshSTSPolicy(t.Context(), "null.example", api.Intent{}); err != nil || p.Mode != "none" || !p.Absent {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := client.STSPolicy(t.Context(), "unknown.example"); err == nil {
		t.Error("something is known of unknown.example")
	}
	if _, err := client.RefreshSTSPolicy(t.Context(), "[192.0.2.1]", api.Intent{}); err == nil || err.(*api.Error).Status != http.StatusBadRequest {
		t.Errorf("%v", err)
	}
	text := w.scrape()
	for _, line := range []string{
		"mta_sts_policies 1", `mta_sts_lookups_total{result="fetched"} 2`, `mta_sts_lookups_total{result="policy-fetch-error"} 1`, `mta_sts_lookups_total{result="absent"} 1`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
}
