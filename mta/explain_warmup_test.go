package mta

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"mta/internal/sink"
	"mta/mta/control"
)

// TestExplainNamesTheWarmup: of two messages one fits into the warm-up's day, the other is held and
// says so; the domain's explanation and the metrics show where the warm-up stands.
func TestExplainNamesTheWarmup(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "new" { address = "127.0.0.1" }
		plan "tiny" {
			stage {
				hourly = 1
				daily = 1
			}
		}
		pool "default" {
			overflow = "hold"
			dedicated "new" { plan = "tiny" }
		}`)
	w.send("ann@client.example", letter, "bob@box.example")
	if got := w.arrived(1)[0]; got.Client.Addr().String() != "127.0.0.1" {
		t.Errorf("it came from %s", got.Client)
	}
	id := accept(t, w.Relay, "eve@box.example", 1)
	explained(t, w.Relay, id, says(control.StateWaiting,
		"it is held for the warm-up of source new (127.0.0.1): plan tiny, stage 1 of 1, 1 of 1 sent this hour, 1 of 1 today"))
	if s := w.explainDomain("box.example").Sources; len(s) != 1 || !strings.HasPrefix(s[0].Warmup, "plan tiny, stage 1 of 1, 1 of 1 sent this hour") {
		t.Errorf("sources %+v", s)
	}
	res, err := http.Get(fmt.Sprintf("http://%s/metrics", w.http.socket.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`mta_warmup_stage{source="new"} 1`, `mta_warmup_sent_this_hour{source="new"} 1`, `mta_warmup_paused{source="new"} 0`} {
		if !strings.Contains(string(text), line) {
			t.Errorf("metrics lack %s", line)
		}
	}
}
