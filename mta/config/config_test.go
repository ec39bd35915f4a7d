package config

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/settings"
)

func noEnv(string) string { return "" }

// mustParse reads a configuration that is right.
func mustParse(t testing.TB, src string) *Config {
	t.Helper()
	c, problems := parse([]byte(src), "mta.conf", noEnv, func() string { return "host.example" })
	if err := problems.Err(); err != nil {
		t.Fatalf("unexpected problems:\n%s", err)
	}
	return c
}

func TestAnEmptyFileIsTheDefault(t *testing.T) {
	got, err := Parse(nil, "mta.conf", noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if changes := settings.Diff(Default(), got); len(changes) > 0 {
		t.Errorf("an empty file differs from the default: %v", changes)
	}
}

// TestDefault pins what the design promises of a relay without a file.
func TestDefault(t *testing.T) {
	c := Default()
	l := c.Listeners[0]
	if len(c.Listeners) != 1 || !slices.Equal(l.Address, []string{"127.0.0.1:2525"}) {
		t.Errorf("listens at %v", l.Address)
	}
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	if !slices.Equal(l.RelayFrom, loopback) {
		t.Errorf("relays from %v", l.RelayFrom)
	}
	if c.HTTP.Address != "127.0.0.1:8025" || c.DataDir != "./mta-data" {
		t.Errorf("http at %s, data in %s", c.HTTP.Address, c.DataDir)
	}
	if c.Hostname == "" || c.Postmaster != "postmaster@"+c.Hostname {
		t.Errorf("hostname %q, postmaster %q", c.Hostname, c.Postmaster)
	}
	if p := c.PoolOf("anybody"); len(p.Shared) != 1 || c.Source(p.Shared[0]) == nil {
		t.Errorf("the default pool has %v", p.Shared)
	}
}

const full = `
hostname = "mta1.example.com"
data_dir = "/var/lib/mta"

listener "smtp" {
  address        = ["127.0.0.1:2525", "[::1]:2525"]
  relay_from     = "10.0.0.7"
  proxy_from     = []
  tenant         = "acme"
  max_recipients = 5000
  max_hold       = "1d"
  tls {
    certificate = "/etc/mta/cert.pem"
    key         = "/etc/mta/key.pem"
  }
}
listener "odd \"name\" $${x}" { address = ":0" }
http { address = "" }
control { mode = "0600" }
queue {
  incoming_memory  = 100 * 1024 * 1024
  idempotency_keys = 1000
}
source "shared-1" {
  address = "192.0.2.10"
  ehlo    = "out1.example.com"
}
source "shared-2" { address = "2001:db8::10" }
pool "acme" { shared = ["shared-2"] }
tenant "acme" {
  pool = "acme"
  tier = 1
}
defaults {
  connection_limit = 8
  timeouts { connect = "1m30s" }
}
provider "google" {
  mx               = ["*.Google.com.", "*.googlemail.com"]
  connection_limit = 20
  max_message_rate = "100/s"
  timeouts { dot = "3m" }
}
domain "*" { max_age = "3d" }
domain "*.example.net" { connection_limit = 3 }
domain "bücher.example.net" {
  connection_limit = 1
  retry_interval   = ["5m", "30m", "2h"]
  route            = ["smtp://relay.example.net:587", "smtps://[2001:db8::1]"]
  username         = "relay"
  password         = "hunter2"
}
domain "[192.0.2.1]" { tls = "off" }
`

func TestPartsOfAConfiguration(t *testing.T) {
	c := mustParse(t, full)
	for _, x := range []struct {
		what      string
		got, want any
	}{
		{"listeners", len(c.Listeners), 2},
		{"relay_from", c.Listeners[0].RelayFrom, []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")}},
		{"proxy_from", len(c.Listeners[0].ProxyFrom), 0},
		{"tls", c.Listeners[0].TLS, TLS{Certificates: Certificates{Certificate: []string{"/etc/mta/cert.pem"}, Key: []string{"/etc/mta/key.pem"}, MinVersion: "1.2"}}},
		{"no tls", c.Listeners[1].TLS.Enabled(), false},
		{"a default beside", c.Listeners[0].MaxConnectionsPerClient, 1000},
		{"banner", c.Listeners[0].Banner, "mta1.example.com"},
		{"name", c.Listeners[1].Name, `odd "name" ${x}`},
		{"http", c.HTTP.Address, ""},
		{"socket", c.Control.Socket, "/var/lib/mta/control.sock"},
		{"mode", c.Control.Mode, Mode(0o600)},
		{"incoming_memory", c.Queue.IncomingMemory, Size(100 << 20)},
		{"postmaster", c.Postmaster, "postmaster@mta1.example.com"},
		{"dsn from", c.DSN.From, "Mail Delivery System <postmaster@mta1.example.com>"},
		{"ehlo", c.Source("shared-1").EHLO, "out1.example.com"},
		{"ehlo by default", c.Source("shared-2").EHLO, "mta1.example.com"},
		{"pool", c.PoolOf("acme").Shared, []string{"shared-2"}},
		{"default pool", c.PoolOf("other").Shared, []string{"shared-1", "shared-2"}},
		{"tenant", c.Tenant("acme").Tier, 1},
		{"no tenant", c.Tenant("other") == nil, true},
		{"mx", c.Providers[0].MX, []Pattern{"*.google.com", "*.googlemail.com"}},
		{"domain", c.Domains[2].Pattern, Pattern("xn--bcher-kva.example.net")},
		{"route", c.Domains[2].Route, []Smarthost{{Host: "relay.example.net", Port: 587}, {Host: "2001:db8::1", Port: 465, Implicit: true}}},
		{"password", string(c.Domains[2].Password), "hunter2"},
	} {
		if !reflect.DeepEqual(x.got, x.want) {
			t.Errorf("%s: got %v, want %v", x.what, x.got, x.want)
		}
	}
}

func TestTheMostSpecificBlockWins(t *testing.T) {
	c := mustParse(t, full)
	for _, x := range []struct {
		domain, provider, setting string
		got                       func(*Traffic) any
		want                      any
		origin                    string
	}{
		{"example.org", "", "connection_limit", limit, 8, "defaults (mta.conf:35)"},
		{"example.org", "google", "connection_limit", limit, 20, `provider "google" (mta.conf:40)`},
		{"example.net", "google", "connection_limit", limit, 20, `provider "google" (mta.conf:40)`},
		{"a.example.net", "google", "connection_limit", limit, 3, `domain "*.example.net" (mta.conf:45)`},
		{"a.b.example.net", "", "connection_limit", limit, 3, `domain "*.example.net" (mta.conf:45)`},
		{"xn--bcher-kva.example.net", "google", "connection_limit", limit, 1, `domain "bücher.example.net" (mta.conf:47)`},
		{"aexample.net", "", "connection_limit", limit, 8, "defaults (mta.conf:35)"},
		{"xn--bcher-kva.example.net", "google", "max_age", func(t *Traffic) any { return t.MaxAge }, 3 * day, `domain "*" (mta.conf:44)`},
		{"x.example", "google", "timeouts.dot", func(t *Traffic) any { return t.Timeouts.Dot }, 3 * time.Minute, `provider "google" (mta.conf:42)`},
		{"x.example", "google", "timeouts.connect", func(t *Traffic) any { return t.Timeouts.Connect }, 90 * time.Second, "defaults (mta.conf:36)"},
		{"x.example", "google", "idle_timeout", func(t *Traffic) any { return t.IdleTimeout }, 30 * time.Second, "default"},
		{"x.example", "google", "max_message_rate", func(t *Traffic) any { return t.MaxMessageRate }, Rate{Count: 100, Per: time.Second}, `provider "google" (mta.conf:41)`},
		{"x.example", "unknown", "max_message_rate", func(t *Traffic) any { return t.MaxMessageRate }, Rate{}, "default"},
		{"[192.0.2.1]", "", "tls", func(t *Traffic) any { return t.TLS }, "off", `domain "[192.0.2.1]" (mta.conf:53)`},
		{"[192.0.2.1]", "", "max_age", func(t *Traffic) any { return t.MaxAge }, 3 * day, `domain "*" (mta.conf:44)`},
	} {
		for range 2 { // worked out, and remembered
			tr := c.Traffic(x.domain, x.provider)
			if got := x.got(tr); got != x.want {
				t.Errorf("%s of %s at %q: got %v, want %v", x.setting, x.domain, x.provider, got, x.want)
			}
			if got := tr.Origin(x.setting); got != x.origin {
				t.Errorf("%s of %s at %q is from %s, want %s", x.setting, x.domain, x.provider, got, x.origin)
			}
		}
	}
	if got := c.Defaults.Traffic.ConnectionLimit; got != 8 {
		t.Errorf("asking changed the defaults: connection_limit is %d", got)
	}
}

func limit(t *Traffic) any { return t.ConnectionLimit }

func TestSettingsHaveOrigins(t *testing.T) {
	tr := Default().Traffic("example.com", "")
	all := tr.Settings()
	for _, want := range []string{"connection_limit", "max_message_rate", "timeouts.connect", "tls"} {
		if !slices.Contains(all, want) {
			t.Errorf("%s is not among the settings %v", want, all)
		}
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	c := mustParse(t, full)
	for i := range 1000 {
		c.Traffic("d"+strings.Repeat("x", i%50)+".example.org", []string{"", "google", "nobody"}[i%3])
		c.Traffic(strings.Repeat("x.", i%20)+"example.net", "google")
	}
	n := 0
	c.resolved.traffic.Range(func(any, any) bool { n++; return true })
	if most := (len(c.Domains) + 1) * (len(c.Providers) + 1); n > most {
		t.Errorf("%d combinations are remembered, at most %d can differ", n, most)
	}
}

func TestBudgetOfAProvider(t *testing.T) {
	c := mustParse(t, full)
	b := c.Budget("google")
	if want := (Rate{Count: 100, Per: time.Second}); b.ConnectionLimit != 20 || b.MaxMessageRate != want ||
		b.MaxConnectionRate != (Rate{}) {
		t.Errorf("google's budget is %v", b)
	}
	if got := c.Budget(""); got != (Limits{}) {
		t.Errorf("nobody's budget is %v", got)
	}
}

func BenchmarkTraffic(b *testing.B) {
	c := mustParse(b, full)
	b.ReportAllocs()
	for b.Loop() {
		c.Traffic("mail.customer.example.net", "google")
	}
}

// The most specific block that has verify_recipients decides whose mailboxes are verified.
func TestVerifiesMailboxes(t *testing.T) {
	cfg, err := Parse([]byte(`
		domain "*.example.com" { verify_recipients = "mailbox" }
		domain "open.example.com" { verify_recipients = "off" }
		domain "plain.example.com" { connection_limit = 3 }
	`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	for domain, want := range map[string]bool{
		"box.example.com": true, "plain.example.com": true, "open.example.com": false, "example.com": false, "example.net": false,
	} {
		if got := cfg.VerifiesMailboxes(domain); got != want {
			t.Errorf("%s: %v, want %v", domain, got, want)
		}
	}
}
