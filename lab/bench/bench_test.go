package bench

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/mta/lab/sink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// direct loads the first host of g in place of a relay: it takes the mail and keeps it.
func direct(g *Ground) Server {
	return Server{Name: "sink", Address: net.JoinHostPort(g.Hosts[0].Address, g.Port), PID: os.Getpid()}
}

func scenario(change func(*Scenario)) Scenario {
	s := DefaultScenario()
	s.Messages, s.Connections, s.Patience = 200, 4, 10*time.Second
	change(&s)
	return s
}

func measured(t *testing.T, s Scenario) (*Report, error) {
	t.Helper()
	g, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	return Measure(t.Context(), s, g, direct(g), nil)
}

func TestMeasureCountsWhatCame(t *testing.T) {
	r, err := measured(t, scenario(func(s *Scenario) { s.Recipients, s.BigEvery, s.Domains = 5, 10, 3 }))
	if err != nil {
		t.Fatal(err)
	}
	if r.Accepted != 200 || r.Delivered != 180+20*5 || r.Recipients != r.Delivered || !r.Right() {
		t.Errorf("%d accepted, %d of %d delivered, %v; want 200, 280 of 280", r.Accepted, r.Delivered, r.Recipients, &r.Account)
	}
	if r.MessagesPerSecond <= 0 || r.SteadyMessagesPerSecond <= 0 || r.Acceptance.P50 <= 0 || r.Delivery.Max < r.Delivery.P50 || r.Small == nil || r.PeakMemory <= 0 {
		t.Errorf("figures are missing: %+v", r)
	}
	if ratio := r.RecipientsPerSecond / r.MessagesPerSecond; ratio < 1.39 || ratio > 1.41 {
		t.Errorf("%.2f recipients for a message, want 1.4", ratio)
	}
}

func TestClientsResumeTLS(t *testing.T) {
	s := scenario(func(s *Scenario) { s.TLS, s.ClientMessages = true, 10 })
	g, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	r, err := Measure(t.Context(), s, g, direct(g), nil)
	if err != nil || !r.Right() {
		t.Fatalf("%v: %v", err, &r.Account)
	}
	resumed := 0
	all := g.Hosts[0].Server.Connections()
	for _, c := range all {
		if !c.TLS || c.Messages > 10 {
			t.Errorf("a connection with %d messages, by TLS: %v", c.Messages, c.TLS)
		}
		if c.Resumed {
			resumed++
		}
	}
	if len(all) < 19 || resumed < len(all)-4 {
		t.Errorf("%d connections, %d resumed; want 20, of which the 4 first ones were not", len(all), resumed)
	}
}

func TestMeasureSubmitsAgainWhatIsRefusedForNow(t *testing.T) {
	r, err := measured(t, scenario(func(s *Scenario) { s.Temporary, s.HostMessages = 0.1, 20 }))
	if err != nil {
		t.Fatal(err)
	}
	if r.Later == 0 || r.Accepted != 200 || !r.Right() {
		t.Errorf("%d accepted, %v; want all of them, and some twice tried", r.Accepted, &r.Account)
	}
}

func TestMeasureGivesUpOnWhatIsRefusedForGood(t *testing.T) {
	s := scenario(func(*Scenario) {})
	g, err := OpenGround(GroundOptions{}, &Domain{Name: "site0.example", Hosts: []*Host{{Sink: sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("user")}}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	_, err = Measure(t.Context(), s, g, direct(g), nil)
	if err == nil || !strings.Contains(err.Error(), "550 5.1.1") {
		t.Errorf("Measure says %v, want the server's reply", err)
	}
}

func TestMeasureSaysWhatNeverCame(t *testing.T) {
	s := scenario(func(s *Scenario) { s.Patience = 200 * time.Millisecond })
	g, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	hole, err := s.Open() // takes the mail, and is not the ground that is looked at
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	r, err := Measure(t.Context(), s, g, direct(hole), nil)
	if !errors.Is(err, ErrStalled) || r == nil || r.Lost != 200 || r.Delivered != 0 || r.Right() {
		t.Errorf("Measure says %v and %+v, want 200 lost", err, r)
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "WRONG: 200 lost") {
		t.Errorf("the report says %v:\n%s", err, &text)
	}
}

func TestMeasureGivesUpOnAServerThatIsSilent(t *testing.T) {
	s := scenario(func(s *Scenario) { s.Patience = 200 * time.Millisecond })
	g, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	hole, err := OpenGround(GroundOptions{}, &Domain{Name: "hole.example", Hosts: []*Host{{Death: Silent}}})
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	r, err := Measure(t.Context(), s, g, direct(hole), nil)
	if !errors.Is(err, ErrStalled) || r == nil || r.Accepted != 0 || r.Lost != 0 || r.Unsure != 200 {
		t.Errorf("Measure says %v and %+v, want nothing accepted and nothing lost", err, r)
	}
}

func TestMeasureEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := scenario(func(s *Scenario) { s.Messages, s.Rate = 1_000_000, 100 })
	g, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	r, err := Measure(ctx, s, g, direct(g), func(p Progress) {
		if p.Delivered > 0 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || r != nil {
		t.Errorf("Measure says %v and %+v, want that it was canceled", err, r)
	}
}

func TestDomainsAndHosts(t *testing.T) {
	for _, tc := range []struct {
		domains, hosts int
		zone           []string
	}{
		{3, 2, []string{"site0.example. 600 IN MX 10 mx0.example.", "site1.example. 600 IN MX 10 mx1.example.", "site2.example. 600 IN MX 10 mx0.example."}},
		{2, 3, []string{"site0.example. 600 IN MX 10 mx0.example.", "site0.example. 600 IN MX 10 mx1.example.", "site1.example. 600 IN MX 10 mx2.example."}},
	} {
		g, err := new(scenario(func(s *Scenario) { s.Domains, s.Hosts = tc.domains, tc.hosts })).Open()
		if err != nil {
			t.Fatal(err)
		}
		g.Close()
		if zone := g.Zone(); strings.Count(zone, " MX ") != len(tc.zone) || len(g.Hosts) != tc.hosts {
			t.Errorf("%d domains on %d hosts:\n%s", tc.domains, tc.hosts, zone)
		}
		for _, line := range tc.zone {
			if !strings.Contains(g.Zone(), line) {
				t.Errorf("%d domains on %d hosts: want %q in\n%s", tc.domains, tc.hosts, line, g.Zone())
			}
		}
	}
}

func TestDeadHosts(t *testing.T) {
	for _, d := range []Death{Silent, Unreachable, Refusing} {
		g, err := new(scenario(func(s *Scenario) { s.Domains, s.Hosts, s.Dead, s.Death = 2, 2, 1, d })).Open()
		if err != nil {
			t.Fatal(err)
		}
		within := time.Minute
		if d == Unreachable {
			within = 300 * time.Millisecond // nothing answers, however long one waits
		}
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(g.Hosts[1].Address, g.Port), within)
		switch {
		case d == Silent && err == nil:
			_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if n, err := conn.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a silent host says %d octets, %v", n, err)
			}
			conn.Close()
		case d == Silent:
			t.Errorf("a silent host takes no connection: %v", err)
		case err == nil:
			conn.Close()
			t.Errorf("a host that is %s takes a connection", d)
		case (d == Unreachable) != timeout(err):
			t.Errorf("a host that is %s: %v", d, err)
		}
		if g.alive("user0@site1.example") || !g.alive("user0@site0.example") || !g.dead() {
			t.Error("it is not known which of the two lives")
		}
		g.Close()
	}
}

func timeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func TestProcessorTimeOfThisGroupGrows(t *testing.T) {
	before, err := ProcessorTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	after := before
	for end := time.Now().Add(time.Minute); after <= before; { // it counts in ticks, and others may have the processor
		if after, err = ProcessorTime(os.Getpid()); err != nil || time.Now().After(end) {
			t.Fatalf("%v, then %v (%v): want more", before, after, err)
		}
	}
	if m, err := Memory(os.Getpid(), "VmRSS"); err != nil || m < 1<<20 {
		t.Errorf("this process has %d octets, %v", m, err)
	}
}

func TestStandardScenariosCanBeDone(t *testing.T) {
	for _, s := range Standards() {
		if err := s.Scenario.Validate(); err != nil {
			t.Errorf("%s: %v", s.Letter, err)
		}
	}
}
