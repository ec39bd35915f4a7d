package mta

import (
	"context"
	"strings"
	"testing"

	"example.org/mta/lab/sink"
)

func TestARuleSuspendsASite(t *testing.T) {
	refuse := sink.Refusal{Phase: sink.Mail, Reply: "450 4.9.9 acme is full"}
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{refuse}}, `defaults { smtp_port = PORT }`)
	suspensions := func() (reasons []string) {
		for _, s := range w.delivery.Sites("", 10) {
			for _, a := range s.Actions {
				reasons = append(reasons, a.What+": "+a.Reason)
			}
		}
		return reasons
	}
	w.send("ann@client.example", letter, "bob@box.example")
	w.await("bob@box.example", "TransientFailure")
	if got := suspensions(); len(got) > 0 {
		t.Fatalf("no built-in rule is about this answer, and there is %v", got)
	}
	w.rewrite("rule", `
		listener "smtp" { address = "127.0.0.1:0" }
		defaults { smtp_port = `+w.port+` }
		backoff "full" {
			pattern = "ACME is full"
			suspend = "1h"
		}`)
	if _, err := w.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.send("ann@client.example", letter, "eve@box.example")
	w.await("eve@box.example", "TransientFailure")
	got := suspensions()
	if len(got) != 1 || !strings.HasPrefix(got[0], "suspended: full: mx.box.example answered 450 4.9.9 acme is full") {
		t.Errorf("actions: %v", got)
	}
}
