package wiring

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
)

const fourSources = `
source "a" { address = "192.0.2.1" }
source "b" { address = "192.0.2.2" }
source "c" { address = "192.0.2.3" }
source "six" { address = "2001:db8::1" }
pool "default" { shared = ["a", "b", "c"] }
pool "both" { shared = ["a", "six"] }
tenant "both" { pool = "both" }
`

func parse(t *testing.T, text string) *Policy {
	t.Helper()
	cfg, err := config.Parse([]byte(text), "test.conf", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return New(cfg)
}

func routeTo(addresses ...string) *route.Route {
	var tier route.Tier
	for _, a := range addresses {
		tier = append(tier, route.Host{Name: "mx", Addr: netip.AddrPortFrom(netip.MustParseAddr(a), 25)})
	}
	return &route.Route{Domain: "x.example", Site: "x.example", Tiers: []route.Tier{tier}}
}

func TestAMissingSourcesMailSpreadsAndTheRestStays(t *testing.T) {
	pol, rt := parse(t, fourSources), routeTo("192.0.2.99")
	none := func(string) bool { return false }
	noB := func(s string) bool { return s == "b" }
	moved := make(map[string]int)
	for i := range 3000 {
		m := &envelope.Message{ID: envelope.ID(i) << 20}
		before, _ := pol.SourceFor(m, rt, "", none)
		after, ok := pol.SourceFor(m, rt, "", noB)
		if again, _ := pol.SourceFor(m, rt, "", noB); again != after || !ok {
			t.Fatalf("message %s goes from %s, and then from %s", m.ID, after, again)
		}
		switch {
		case before != "b" && after != before:
			t.Fatalf("message %s moved from %s to %s, though b is missing", m.ID, before, after)
		case before == "b":
			moved[after]++
		}
	}
	if moved["a"] < 400 || moved["c"] < 400 || moved["b"] > 0 {
		t.Errorf("the mail of the missing source went to %v", moved)
	}
}

func TestTheSourceReachesTheHosts(t *testing.T) {
	pol := parse(t, fourSources)
	none := func(string) bool { return false }
	count := make(map[string]int)
	for i := range 100 {
		m := &envelope.Message{ID: envelope.ID(i) << 20, Tenant: "both"}
		for want, rt := range map[string]*route.Route{"a": routeTo("192.0.2.99"), "six": routeTo("2001:db8::99")} {
			if got, _ := pol.SourceFor(m, rt, "", none); got != want {
				t.Fatalf("to %s mail goes from %s", rt.Tiers[0][0], got)
			}
		}
		s, _ := pol.SourceFor(m, routeTo("192.0.2.99", "2001:db8::99"), "", none)
		count[s]++
		if got, ok := pol.SourceFor(m, routeTo("2001:db8::99"), "", func(s string) bool { return s == "six" }); got != "a" || !ok {
			t.Fatalf("without the only source that reaches it: %s, %v; delivery is to say what is wrong with the other", got, ok)
		}
	}
	if count["a"] < 30 || count["six"] < 30 {
		t.Errorf("to a host of both families mail goes from %v", count)
	}
}

// After a restart the queue knows the site of what waits, and nobody knows whose domains have it.
func TestQueueGivesUpNothingBeforeItsDomainDoes(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
	}{
		{`defaults { max_age = "2d" }`, 48 * time.Hour},
		{`domain "long.example" { max_age = "10d" }`, 240 * time.Hour},
		{`domain "short.example" { max_age = "1h" }`, 120 * time.Hour},
		{`provider "slow" {
			mx      = ["mx.example"]
			max_age = "7d"
		}`, 168 * time.Hour},
	} {
		cfg, err := config.Parse([]byte(c.text), "test.conf", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := New(cfg).LongestAge; got != c.want {
			t.Errorf("%s: %v, want %v", c.text, got, c.want)
		}
	}
}

func TestMessageKeepsItsSource(t *testing.T) {
	cfg, err := config.Parse([]byte(`
		source "one" { address = "127.0.0.2" }
		source "two" { address = "127.0.0.3" }
		source "own" { address = "127.0.0.4" }
		pool "acme" { shared = ["own"] }
		tenant "acme" { pool = "acme" }`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	pol := New(cfg)
	source := func(pol *Policy, m *envelope.Message) string {
		s, _ := pol.SourceFor(m, nil, "", func(string) bool { return false })
		return s
	}
	count := make(map[string]int)
	for id := range envelope.ID(3000) {
		m := &envelope.Message{ID: id << 20}
		s := source(pol, m)
		if again := source(New(cfg), m); again != s {
			t.Fatalf("message %s went from %s, then from %s", m.ID, s, again)
		}
		count[s]++
	}
	for _, s := range []string{"one", "two", "own"} {
		if count[s] < 900 {
			t.Errorf("source %s got %d of 3000 messages", s, count[s])
		}
	}
	if s := source(pol, &envelope.Message{ID: 1, Tenant: "acme"}); s != "own" {
		t.Errorf("mail of acme went from %s", s)
	}
}

// A report of ours travels without REQUIRETLS where it must (RFC 8689, 5). What a client submits keeps what
// it asks for, though it has the null sender, too.
func TestREQUIRETLSOfTheNullSender(t *testing.T) {
	pol, rt := parse(t, fourSources), routeTo("192.0.2.99")
	for protocol, want := range map[string]bool{"ESMTPS": true, envelope.LocalProtocol: false} {
		d := pol.Demand(&envelope.Message{RequireTLS: true, Protocol: protocol}, rt)
		if d.RequireTLS != want {
			t.Errorf("by %s: %+v, want %v", protocol, d, want)
		}
	}
}

// A message leaves from the pool that its sender named, as long as its tenant may use that.
func TestAMessageLeavesFromThePoolThatItNames(t *testing.T) {
	pol := parse(t, `
source "a" { address = "192.0.2.1" }
source "b" { address = "192.0.2.2" }
source "c" { address = "192.0.2.3" }
pool "default" { shared = ["a"] }
pool "theirs" { shared = ["b"] }
pool "bulk" { shared = ["c"] }
pool "warm" {
  shared = ["a"]
  dedicated "c" {}
}
tenant "acme" {}
tenant "other" { pool = "theirs" }
`)
	for _, x := range []struct {
		tenant, pool string
		may          bool
		want         string
	}{
		{"acme", "", false, "a"}, {"acme", "default", true, "a"}, {"acme", "bulk", true, "c"}, {"", "bulk", true, "c"},
		{"acme", "theirs", false, "a"}, {"acme", "gone", false, "a"},
		{"other", "", false, "b"}, {"other", "theirs", true, "b"}, {"other", "default", true, "a"}, {"other", "bulk", true, "c"},
	} {
		m := &envelope.Message{ID: 1, Tenant: x.tenant, Pool: x.pool}
		if may := pol.Config.MayUse(x.tenant, x.pool); may != x.may {
			t.Errorf("%q may name %q: %v", x.tenant, x.pool, may)
		}
		if got, ok := pol.SourceFor(m, routeTo("192.0.2.99"), "", func(string) bool { return false }); got != x.want || !ok {
			t.Errorf("mail of %q that names %q leaves from %s, want %s", x.tenant, x.pool, got, x.want)
		}
	}
	if p := pol.Divided(&envelope.Message{Tenant: "acme", Pool: "warm"}, nil); p == nil || p.Name != "warm" {
		t.Errorf("the dedicated sources of the pool that was named are those of %v", p)
	}
}

// TestOtherWays: by which changes of the configuration mail may go another way than before.
func TestOtherWays(t *testing.T) {
	const conf = `
		hostname = "relay.example"
		source "a" {
			address = "192.0.2.1"
		}
		source "b" { address = "192.0.2.2" }
		source "c" { address = "192.0.2.3" }
		plan "p" { preset = "standard" }
		pool "x" {
			shared = ["a"]
			dedicated "b" { plan = "p" }
			provider "big" { connection_limit = 5 }
		}
		pool "y" { shared = ["c"] }
		tenant "t" {
			pool = "x"
		}
		provider "big" {
			mx = ["*.big.example"]
		}
		domain "d.example" {
			route    = ["smtp://192.0.2.9"]
			username = "u"
			password = "one"
		}
		sender_domain "s.example" {
			pool = "x"
		}
		`
	before := parse(t, conf)
	for _, x := range []struct {
		old, new     string
		routes, ways bool // are the same
	}{
		{"hostname", "postmaster = \"p@relay.example\"\n hostname", true, true},
		{`connection_limit = 5`, `connection_limit = 6`, true, true},
		{`mx = ["*.big.example"]`, "mx = [\"*.big.example\"]\n max_message_rate = \"1/s\"", true, true},
		{`tenant "t" {`, "tenant \"t\" {\n weight = 3\n", true, true},
		{"hostname", "\n\n\nhostname", true, true},
		{`192.0.2.9`, `192.0.2.10`, false, false},
		{`"one"`, `"two"`, false, false},
		{`*.big.example`, `*.bigger.example`, false, false},
		{"hostname", "presets = false\n hostname", false, false},
		{"hostname", "router { ipv6 = false }\n hostname", false, false},
		{"hostname", "provider \"new\" { mx = [\"mx.new.example\"] }\n hostname", false, false},
		{"hostname", "domain \"new.example\" { route = [] }\n hostname", false, false},
		{`192.0.2.1"`, `192.0.2.11"`, true, false},
		{"hostname", "source \"d\" { address = \"192.0.2.4\" }\n hostname", true, false},
		{`source "a" {`, "source \"a\" {\n ehlo = \"a.example\"\n", true, false},
		{`source "a" {`, "source \"a\" {\n proxy = \"haproxy://192.0.2.77:1080\"\n", true, false},
		{`source "a" {`, "source \"a\" {\n connection_limit = 5\n", true, true},
		{`shared = ["a"]`, `shared = ["a", "c"]`, true, false},
		{`{ plan = "p" }`, `{ }`, true, false},
		{`dedicated "b" { plan = "p" }`, ``, true, false},
		{"\"t\" {\n\t\t\tpool = \"x\"", "\"t\" {\n pool = \"y\"", true, false},
		{"s.example\" {\n\t\t\tpool = \"x\"", "s.example\" {\n pool = \"y\"", true, false},
		{`username`, "pool = \"y\"\n username", true, false},
		{`username`, "tls = \"required\"\n username", true, false},
		{"hostname", "defaults { dane = false }\n hostname", true, false},
		{"hostname", "defaults { mta_sts = false }\n hostname", false, false},
	} {
		if !strings.Contains(conf, x.old) {
			t.Fatalf("no %q", x.old)
		}
		after := parse(t, strings.Replace(conf, x.old, x.new, 1))
		if r, w := after.SameRoutes(before), after.SameWays(before); r != x.routes || w != x.ways {
			t.Errorf("with %s in place of %s: the same routes %v, ways %v, want %v and %v", x.new, x.old, r, w, x.routes, x.ways)
		}
	}
}

// TestOtherContent: a job is made anew when its message would be signed, or could be unsubscribed from, in another way.
func TestOtherContent(t *testing.T) {
	const conf = `
		source "a" { address = "192.0.2.1" }
		tenant "t" {
			senders     = ["t.example"]
			return_path = "b.t.example"
		}
		dkim "d" {
			domain = "t.example"
			key "s" { private_key = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=" }
		}
		`
	before := parse(t, conf)
	for old, next := range map[string]string{
		"nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=": "TM0Imyj/ltqdtsNG7BFOD1uKMZ81q6Yk2oz27U+4pvs=",
		`key "s"`:              `key "other"`,
		`domain = "t`:          "on_failure = \"send\"\n domain = \"t",
		`senders     = ["t.ex`: `senders     = ["x.ex`,
		`return_path`:          "unsubscribe_mail = false\n return_path",
	} {
		if !strings.Contains(conf, old) {
			t.Fatalf("no %q", old)
		}
		rt, m := routeTo("192.0.2.99"), &envelope.Message{ID: 1, Tenant: "t", Sender: "a@t.example"}
		job := &delivery.Job{Message: m, Route: rt, Source: "a", Demand: before.Demand(m, rt)}
		if !parse(t, "\n"+conf).Stays(before)(job) {
			t.Fatal("it does not stay though nothing has changed")
		}
		stays := parse(t, strings.Replace(conf, old, next, 1)).Stays(before)(job)
		if want := next == "unsubscribe_mail = false\n return_path"; stays != want {
			t.Errorf("with %s in place of %s it stays: %v", next, old, stays)
		}
	}
}
