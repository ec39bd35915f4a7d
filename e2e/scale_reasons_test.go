package e2e

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"example.org/mta/internal/parking"
	"example.org/mta/lab/bench"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
	"example.org/mta/operator/web"
)

// hardship is why the mail for some domains can't leave.
type hardship struct {
	name     string
	reasons  []parking.Reason // of which one is that of most of its mail
	weight   int              // its part of the mail, of the sum of all
	reply    string           // to RCPT
	settings string           // of a domain block
	rule     string           // an operator's
}

// hardships are eleven kinds. Three of them have two thirds of the mail.
var hardships = []hardship{
	{name: "dead", reasons: []parking.Reason{parking.Unreachable}, weight: 30},
	{name: "limited", reasons: []parking.Reason{parking.Limit}, weight: 22, settings: `max_message_rate = "1/h"`},
	{name: "grey", reasons: []parking.Reason{parking.Greylisted}, weight: 14, reply: "451 4.7.1 Greylisted, please come again"},
	{name: "nameless", reasons: []parking.Reason{parking.DNS}, weight: 5},
	{name: "fast", reasons: []parking.Reason{parking.Rate}, weight: 5, reply: "450 4.7.1 too many messages, rate limited"},
	{name: "listed", reasons: []parking.Reason{parking.Blocked}, weight: 5, reply: "450 4.7.1 Client host blocked using zen.spamhaus.org"},
	{name: "full", reasons: []parking.Reason{parking.Mailbox}, weight: 4, reply: "452 4.2.2 The mailbox is over its quota"},
	{name: "broken", reasons: []parking.Reason{parking.Refused}, weight: 4, reply: "451 4.3.0 Local error"},
	{name: "clear", reasons: []parking.Reason{parking.TLS}, weight: 4, settings: `tls = "required"`},
	{name: "stopped", reasons: []parking.Reason{parking.Paused, parking.Suspended}, weight: 4, rule: "suspend"},
	{name: "kept", reasons: []parking.Reason{parking.Held}, weight: 3, rule: "hold"},
}

// TestScaleReasons: mail for 300 domains waits for eleven kinds of reasons. Each recipient counts once, as a listing of
// the whole queue has it, also after a kill; status, top and the console name the three largest.
func TestScaleReasons(t *testing.T) {
	besideOthers(t, fullScale())
	const domains = 300
	n := scaled(t, "REASONS", 200_000, 3000)
	port, dnsAddr := hardSites(t, domains)
	extra := takingAll
	for i := range domains {
		if h := hardshipOf(i); h.settings != "" {
			extra += fmt.Sprintf("domain %q { %s }\n", hardDomain(i), h.settings)
		}
	}
	r := newRelay(t, dnsAddr, port, extra)
	writeFile(t, r.config, strings.NewReplacer(`retry_interval     = "1s"`, `retry_interval     = "3h"`,
		`max_retry_interval = "2s"`, `max_retry_interval = "4h"`).Replace(readFile(t, r.config)))
	r.start(t)
	for i := range domains {
		if h := hardshipOf(i); h.rule != "" {
			r.mta(t, "rule", "add", h.rule, "--domain", hardDomain(i), "--reason", "test")
		}
	}
	order := byWeight()
	load := &bench.Load{Messages: n, Connections: 20, Size: 2048, To: func(i int) []string {
		h := order[i%len(order)]
		turn := i / len(order) % (domains / len(hardships))
		return []string{fmt.Sprintf("u%d@%s", i, hardDomain(turn*len(hardships)+h))}
	}}
	if err := load.Run(t.Context(), r.addr); err != nil {
		t.Fatal(err)
	}

	var f figures
	r.reasonsAgree(t, n, &f)
	r.firstLines(t, &f)
	r.kill()
	r.start(t)
	r.reasonsAgree(t, n, &f)
	f.print(t, fmt.Sprintf("%s recipients that wait for eleven reasons:", count(n)))
}

func hardshipOf(domain int) hardship { return hardships[domain%len(hardships)] }

func hardDomain(i int) string { return fmt.Sprintf("d%d-%s.example", i, hardshipOf(i).name) }

// byWeight has each hardship as often as its weight.
func byWeight() (order []int) {
	for i, h := range hardships {
		order = append(order, slices.Repeat([]int{i}, h.weight)...)
	}
	return order
}

// hardSites serves a host for each kind, and the names of all domains.
func hardSites(t *testing.T, domains int) (port, nameServer string) {
	t.Helper()
	zone, addrs := sink.MustZone(""), make([]string, len(hardships))
	for i := range addrs {
		addrs[i] = fmt.Sprintf("127.33.0.%d", i+1)
	}
	port = commonPort(t, addrs...)
	for i, h := range hardships {
		if h.name == "dead" {
			continue
		}
		var cfg sink.Config
		if h.reply != "" {
			cfg.Refusals = []sink.Refusal{{Phase: sink.Rcpt, Reply: h.reply}}
		}
		mailHost(t, net.JoinHostPort(addrs[i], port), cfg)
	}
	for i := range domains {
		name := hardDomain(i)
		if err := zone.Add(fmt.Sprintf("%[1]s. 600 IN MX 10 mx.%[1]s.\nmx.%[1]s. 600 IN A %[2]s\n", name, addrs[i%len(hardships)])); err != nil {
			t.Fatal(err)
		}
		if hardshipOf(i).name == "nameless" {
			zone.Fault(name+".", sink.DNSFault{Rcode: dns.RcodeServerFailure})
		}
	}
	return port, serveNames(t, zone)
}

// reasonsAgree waits until what counts the reasons agrees with a listing of all recipients, and with what the sites do:
// but for the few of a limit that have left, each kind's mail has its reason.
func (r *relay) reasonsAgree(t *testing.T, n int, f *figures) {
	t.Helper()
	c, total := r.control(t), 0
	for _, h := range hardships {
		total += h.weight
	}
	eventually(t, 10*time.Minute, func() error {
		began := time.Now()
		status, err := api.OpStatus.Call(t.Context(), c, api.None{})
		if err != nil {
			return err
		}
		took := time.Since(began)
		counted := make(map[parking.Reason]int)
		for _, w := range status.Waiting.Reasons {
			counted[w.Reason] = w.Recipients
		}
		for _, h := range hardships {
			sum := 0
			for _, reason := range h.reasons {
				sum += counted[reason]
			}
			if want := n * h.weight / total; sum < want*9/10-30 || sum > want*11/10+30 {
				return fmt.Errorf("%d wait for %v, want about %d: %v", sum, h.reasons, want, counted)
			}
		}
		began = time.Now()
		for reason, want := range counted {
			if got := r.listed(t, c, reason); got != want {
				return fmt.Errorf("%d wait for %v by count, %d by list", want, reason, got)
			}
		}
		f.add("time to count all reasons, within status", "", "%s", milliseconds(took))
		f.add("time to list all of them", "", "%s", milliseconds(time.Since(began)))
		return nil
	})
}

// listed counts the recipients of a listing that wait for a reason.
func (r *relay) listed(t *testing.T, c *api.Client, reason parking.Reason) (found int) {
	t.Helper()
	q := api.ListQuery{Filter: api.Filter{WaitsFor: api.Reason(reason.String())}, Page: api.Page{Limit: api.MaxLimit}}
	for {
		list, err := api.OpList.Call(t.Context(), c, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list.Messages {
			found += len(m.Recipients)
		}
		if q.After = list.Next; q.After == "" {
			return found
		}
	}
}

// firstLines looks for the three largest reasons, in words and in order, in what an operator opens first.
func (r *relay) firstLines(t *testing.T, f *figures) {
	t.Helper()
	three := slices.SortedFunc(slices.Values(hardships), func(a, b hardship) int { return cmp.Compare(b.weight, a.weight) })[:3]
	named := func(where, text string) {
		t.Helper()
		for _, h := range three {
			_, after, ok := strings.Cut(text, " for "+h.reasons[0].Phrase())
			if !ok {
				t.Errorf("%s does not name %q as one of the three largest reasons:\n%s", where, h.reasons[0].Phrase(), text)
				return
			}
			text = after
		}
	}
	began := time.Now()
	named("mta status", r.mta(t, "status"))
	f.add("mta status", "10 s", "%s", milliseconds(time.Since(began)))

	began = time.Now()
	screen := inTmux(t, 200, 50, binary, "--config", r.config, "top").shows(" wait: ")
	named("mta top", screen)
	f.add("mta top, first screen", "10 s", "%s", milliseconds(time.Since(began)))

	began = time.Now()
	named("the console", r.overview(t))
	f.add("the console's overview", "10 s", "%s", milliseconds(time.Since(began)))
}

// overview is the text of the console's first page.
func (r *relay) overview(t *testing.T) string {
	t.Helper()
	server, err := web.New(web.Config{Relay: r.control(t)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { _ = server.Serve(l) }()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Jar: jar}
	resp, err := client.Get("http://" + l.Addr().String() + server.Ticket(web.Identity{User: "ada", Role: web.Admin}))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
