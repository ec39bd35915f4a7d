package dispatch

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/dsn"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs/vfstest"
)

// TestDelayReportSaysHowLongItsProviderIsTried: a provider can have a max_age of its own.
func TestDelayReportSaysHowLongItsProviderIsTried(t *testing.T) {
	cfg, err := config.Parse([]byte(`
		defaults { max_age = "5d" }
		provider "big" {
			mx = ["mx.big.example"]
			max_age = "1d"
		}`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.Open(queue.Config{Dir: "/queue", FS: vfstest.Memory()})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	sites := new(Sites)
	sites.remember(&route.Route{Domain: "first.example", Site: "mx.big.example", Provider: "big"})
	pol := wiring.New(cfg)
	w := &ReportWriter{
		Queue: q, Policy: func() *wiring.Policy { return pol }, Sites: sites, Ids: new(envelope.IDs),
		Now: func() time.Time { return start.Add(4 * time.Hour) }, Log: slog.New(slog.DiscardHandler),
	}
	m := &envelope.Message{Sender: "ann@client.example", Received: start, Recipients: []envelope.Recipient{
		{Address: "a@some.example"}, {Address: "b@other.example"},
	}}
	late := asFailed([]queue.Pending{{Index: 0, Key: parking.Key{Name: "mx.big.example"}}, {Index: 1, Key: parking.Key{Name: "mx.other.example"}}}, func(reply.Reply) reply.Reply {
		return reply.Reply{Code: 451}
	})
	built, err := w.build(Notification{Kind: dsn.Delayed, Message: m, Attempts: late}, late, nil)
	if err != nil {
		t.Fatal(err)
	}
	var until []string
	for line := range strings.Lines(string(built.Content)) {
		if at, ok := strings.CutPrefix(line, "Will-Retry-Until: "); ok {
			until = append(until, strings.Fields(at)[1])
		}
	}
	if got := strings.Join(until, " "); got != "2 6" {
		t.Errorf("tried until January %s, want 2 and 6", got)
	}
}
