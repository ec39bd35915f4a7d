package check

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/dnscheck"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/router/resolver"
)

// Each domain is checked with the sources and keys of those who send as it.
func TestWhoseSourcesAndKeysAreChecked(t *testing.T) {
	cfg, err := config.Parse([]byte(`hostname = "mta.relay.example"
source "a" { address = "192.0.2.1" }
source "b" {
  address        = "10.0.0.2"
  public_address = "192.0.2.2"
}
source "c" { proxy = "socks5://127.0.0.1:1080" }
source "d" {}
pool "pa" { shared = ["a"] }
pool "pb" { shared = ["b", "c"] }
pool "pd" { shared = ["d"] }
tenant "ta" {
  pool    = "pa"
  senders = ["a.example", "news@other.example", "*.wild.example"]
}
tenant "tb" { pool = "pb" }
tenant "td" { pool = "pd" }
checks { mail_from = "bounce.relay.example" }
`+dkimBlock("b.example", `tenants = ["tb"]`)+dkimBlock("relay.example", "senders = [\"*\"]\n tenants = [\"*\"]")), "mta.conf", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cfg.SenderDomains(), []string{"b.example", "a.example", "other.example"}; !slices.Equal(got, want) {
		t.Errorf("domains %v, want %v", got, want)
	}
	d := dnsSubjects{cfg: cfg, now: time.Now(), mailFrom: cfg.Checks.MailFrom, outgoing: func(v6 bool) netip.Addr {
		return netip.MustParseAddr(map[bool]string{false: "192.0.2.40", true: "2001:db8::4"}[v6])
	}}
	for domain, want := range map[string]struct{ sources, keys []string }{
		"a.example":        {[]string{"a 192.0.2.1"}, []string{"relay.example"}},
		"other.example":    {[]string{"a 192.0.2.1"}, []string{"relay.example"}},
		"b.example":        {[]string{"b 192.0.2.2", "c invalid IP"}, []string{"b.example", "relay.example"}},
		"anybody.example":  {[]string{"a 192.0.2.1", "b 192.0.2.2", "c invalid IP", "d 192.0.2.40", "d 2001:db8::4"}, []string{"relay.example"}},
		"below.b.example":  {[]string{"b 192.0.2.2", "c invalid IP"}, []string{"b.example", "relay.example"}},
		"relay.example":    {[]string{"a 192.0.2.1", "b 192.0.2.2", "c invalid IP", "d 192.0.2.40", "d 2001:db8::4"}, []string{"relay.example"}},
		"not.b.example.se": {[]string{"a 192.0.2.1", "b 192.0.2.2", "c invalid IP", "d 192.0.2.40", "d 2001:db8::4"}, []string{"relay.example"}},
	} {
		got := d.domain(domain, nil, false)
		var sources, keys []string
		for _, s := range got.Sources {
			if sources = append(sources, s.Name+" "+s.Address.String()); s.EHLO != "mta.relay.example" {
				t.Errorf("%+v", s)
			}
		}
		for _, k := range got.Keys {
			keys = append(keys, k.Domain)
		}
		if !slices.Equal(sources, want.sources) || !slices.Equal(keys, want.keys) || got.MailFrom != "bounce.relay.example" {
			t.Errorf("%s: %v, %v, MAIL FROM %s, want %v, %v", domain, sources, keys, got.MailFrom, want.sources, want.keys)
		}
	}
}

func TestExchangersAreAskedForSTARTTLS(t *testing.T) {
	for _, offers := range []bool{true, false} {
		host := sink.Config{}
		if offers {
			var err error
			if host.TLS, _, err = sink.SelfSigned("mx.acme.example"); err != nil {
				t.Fatal(err)
			}
		}
		s := sink.New(host)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go s.Serve(l)
		t.Cleanup(s.Close)
		_, port, _ := net.SplitHostPort(l.Addr().String())
		names := sink.NewDNS(sink.MustZone("mx.acme.example. 60 IN A 127.0.0.1"))
		dns, err := names.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { names.Close() })
		r := dnsRecords{resolver.New(resolver.Config{Servers: []netip.AddrPort{dns}})}
		got, err := offersStartTLS(t.Context(), "relay.example", "mx.acme.example:"+port, r)
		if err != nil || got != offers {
			t.Errorf("offered: %v, %v, want %v", got, err, offers)
		}
		if _, err := offersStartTLS(t.Context(), "relay.example", "nosuch.acme.example:"+port, r); err == nil {
			t.Error("a host without address was asked")
		}
	}
}

func TestListenersWithoutTLS(t *testing.T) {
	cfg, err := config.Parse([]byte(`
listener "local" { address = ["127.0.0.1:2525", "[::1]:2525"] }
listener "open" { address = ":2526" }
listener "lan" { address = ["127.0.0.1:2527", "192.0.2.1:2527"] }
acme {
	names       = ["mx.acme.example"]
	tls_address = ":1443"
}
listener "sure" {
	address = ":2528"
	tls { acme = true }
}
`), "mta.conf", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range listenersTLS(t.Context(), cfg, false) {
		if f.Result == dnscheck.Warning {
			got = append(got, f.Listener)
		} else if f.Result != dnscheck.Unknown { // nothing listens
			t.Errorf("%+v", f)
		}
	}
	if want := []string{"open", "lan"}; !slices.Equal(got, want) {
		t.Errorf("without TLS: %v, want %v", got, want)
	}
}

// A relay that runs is asked by a handshake, whatever its file says.
func TestListenersOfARunningRelayAreTried(t *testing.T) {
	cert, _, err := sink.SelfSigned("mx.acme.example")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name string
		how  *sink.Config // nil: nobody listens
		want dnscheck.Result
		text string
	}{
		{"nobody", nil, dnscheck.Failed, "does not answer: dial tcp 127.0.0.1:"},
		{"bare", &sink.Config{}, dnscheck.Failed, "does not offer STARTTLS: it has no certificate"},
		{"well", &sink.Config{TLS: cert}, dnscheck.OK, `listener "well" offers STARTTLS`},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		if x.how == nil {
			l.Close()
		} else {
			s := sink.New(*x.how)
			go s.Serve(l)
			t.Cleanup(s.Close)
		}
		cfg, err := config.Parse([]byte(`
hostname = "mx.acme.example"
acme {
  names       = ["mx.acme.example"]
  tls_address = "127.0.0.1:1"
}
listener "`+x.name+`" {
  address = ":`+port+`"
  tls { acme = true }
}`), "mta.conf", os.Getenv)
		if err != nil {
			t.Fatal(err)
		}
		if found := listenersTLS(t.Context(), cfg, true); len(found) != 1 || found[0].Result != x.want || !strings.Contains(found[0].Text, x.text) {
			t.Errorf("%s: %+v", x.name, found)
		}
	}
}
