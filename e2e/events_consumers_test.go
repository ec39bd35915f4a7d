package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/reply"
	"example.org/mta/internal/testca"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/events"
	"example.org/mta/mta/events/sinks"
)

// heard is what a consumer made of a request.
type heard struct {
	Path, ID, Type, Error string
	Status                int
	Events                []map[string]any
}

// TestConsumersReadEvents sends an event of each type in each format, over TLS through nginx, to the libraries that
// receivers have: they verify the signatures and read all of it. What they refuse at first keeps its webhook-id.
func TestConsumersReadEvents(t *testing.T) {
	parallel(t)
	python, path := pythonOf(t, "standardwebhooks", "cloudevents", "anymail", "sendgrid")
	shared, private := key(t, events.NewShared()), key(t, events.NewPrivate())
	ecdsa, err := events.NewSendGridKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := events.ParseSendGridKey(ecdsa)
	if err != nil {
		t.Fatal(err)
	}
	upstream, front := freeAddress(t), freeAddress(t)
	job, err := json.Marshal(map[string]any{"port": json.Number(portOf(upstream)), "shared": shared.text, "public": private.key.Public(), "sendgrid": signer.Public()})
	if err != nil {
		t.Fatal(err)
	}
	consumer := start(t, "consumer", need(t, "env")[0], "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1", python, "sdk/events_consumer.py", string(job))
	connects(t, upstream)
	ca := testca.New(t)
	certificate, keyFile := testca.Files(t, ca.Issue(t, []string{"127.0.0.1"}))
	nginx(t, front, upstream, certificate, keyFile)

	all := everyEvent(t)
	standard := events.NewStandardWebhooks(key(t, events.NewShared()).key, private.key, shared.key) // the first is one that the receiver doesn't know yet
	for path, o := range map[string]sinks.HookOptions{
		"/standard":    {Format: events.Records{}, Signer: standard, Gzip: true},
		"/asymmetric":  {Format: events.Records{}, Signer: standard},
		"/cloudevents": {Format: events.NewCloudEvents("node1"), Signer: standard, Gzip: true},
		"/sendgrid":    {Format: events.SendGrid{}, Signer: signer},
		"/anymail":     {Format: events.SendGrid{}, Signer: signer},
	} {
		o.URL, o.Timeout, o.Now, o.Transport = "https://"+front+path, 30*time.Second, time.Now, sinks.NewTransport(ca.Pool(), nil)
		hook := sinks.NewHook(o)
		batch := &events.Batch{ID: "batch" + path[1:], Stream: "test", Events: all}
		if err := hook.Send(context.Background(), batch); err == nil {
			t.Errorf("%s: the first request is answered 503, and counts as delivered", path)
		}
		if err := hook.Send(context.Background(), batch); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		hook.Close()
	}
	checkHeard(t, consumer, all)
}

// checkHeard looks at what the libraries read.
func checkHeard(t *testing.T, consumer *process, all []events.Event) {
	t.Helper()
	got, ids := make(map[string][]map[string]any), make(map[string][]string)
	text, err := os.ReadFile(consumer.log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var h heard
		if err := json.Unmarshal([]byte(line), &h); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if h.Error != "" {
			t.Errorf("%s: %s", h.Path, h.Error)
		}
		got[h.Path] = append(got[h.Path], h.Events...)
		ids[h.Path] = append(ids[h.Path], h.ID)
	}
	for _, path := range []string{"/standard", "/asymmetric", "/cloudevents"} {
		if len(ids[path]) != 2 || ids[path][0] == "" || ids[path][0] != ids[path][1] {
			t.Errorf("%s: the ids of the attempts are %q", path, ids[path])
		}
		if len(got[path]) != len(all) {
			t.Errorf("%s: %d events were read, want %d", path, len(got[path]), len(all))
			continue
		}
		for i, e := range got[path] {
			record := e
			if path == "/cloudevents" {
				record = e["data"].(map[string]any)
				if e["type"] != "mta."+all[i].Type || e["id"] != all[i].ID || e["source"] != "/mta/node1" {
					t.Errorf("a CloudEvent of a %s is %v", all[i].Type, e)
				}
			}
			if record["type"] != all[i].Type || record["event_id"] != all[i].ID {
				t.Errorf("%s: a %s was read as %v", path, all[i].Type, record)
			}
		}
	}
	count := func(path, name string) map[string]int {
		n := make(map[string]int)
		for _, e := range got[path] {
			n[fmt.Sprint(e[name])]++
		}
		return n
	}
	want := map[string]int{"processed": 1, "delivered": 1, "deferred": 1, "bounce": 4, "dropped": 3, "spamreport": 1, "unsubscribe": 1}
	if n := count("/sendgrid", "event"); !maps.Equal(n, want) {
		t.Errorf("SendGrid's library reads %v, want %v", n, want)
	}
	want = map[string]int{"queued": 1, "delivered": 1, "deferred": 1, "bounced": 4, "rejected": 3, "complained": 1, "unsubscribed": 1}
	if n := count("/anymail", "type"); !maps.Equal(n, want) {
		t.Errorf("Anymail reads %v, want %v", n, want)
	}
	for _, e := range got["/anymail"] {
		if e["message"] != "anymail-7" || e["recipient"] != "joe@box.example" || !strings.HasPrefix(e["timestamp"].(string), "2026-03-01T12:00:01") {
			t.Errorf("Anymail reads %v", e)
		}
		if metadata, _ := e["metadata"].(map[string]any); metadata["order"] != "77" {
			t.Errorf("Anymail reads the metadata of %v", e)
		}
	}
	if n := count("/anymail", "reject_reason"); n["unsubscribed"] != 1 {
		t.Errorf("Anymail's reasons are %v, want one unsubscribed", n)
	}
}

// everyEvent has one of each type that the accounting log knows, two more bounces, and texts that are not easy.
func everyEvent(t *testing.T) (all []events.Event) {
	t.Helper()
	dir := scratch(t)
	w, err := accounting.Open(accounting.Config{Dir: dir, NodeID: "node1"})
	if err != nil {
		t.Fatal(err)
	}
	add := func(kind accounting.Type, r reply.Reply, class string) {
		w.Add(&accounting.Record{
			Type: kind, Message: accounting.Message{ID: 7, Sender: "news@acme.example", Tenant: "acme", Campaign: "März \"1\" \u2028\x00\x1b[31m",
				Tags: []string{"a", "b"}, Meta: `{"anymail_id":"anymail-7","order":"77","event":"forged"}`, Created: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
			}, Recipient: "joe@box.example", Response: r, Class: class, Attempt: accounting.Attempt{Attempts: 2},
			Time: time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC),
		})
	}
	refused := reply.Reply{Code: 550, Enhanced: reply.Enhanced{5, 1, 1}, Text: "no such user\nat all \xff", Command: "RCPT"}
	for _, kind := range accounting.Types {
		if kind != accounting.Gap { // which is in streams only
			add(kind, refused, "InvalidRecipient")
		}
	}
	add(accounting.Bounce, refused, "SpamBlock")
	add(accounting.Bounce, reply.Local(550, reply.Enhanced{5, 1, 1}, "queue", "address is suppressed since 2026-02-01: by unsubscribe"), "Suppressed")
	if err := w.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	synced := w.Synced()
	lines := [][]byte{w.Gap(accounting.Position{}, accounting.Position{File: 1}, 3)}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = accounting.ReadFrom(context.Background(), dir, accounting.Position{}, synced, func(_, _ accounting.Position, line []byte) error {
		lines = append(lines, slices.Clone(line))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		var r struct {
			Type    string
			ID      string
			EventID string    `json:"event_id"`
			Time    time.Time `json:"event_time"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, events.Event{ID: r.EventID, Type: r.Type, Message: r.ID, Tenant: "acme", Time: r.Time, Line: line})
	}
	if len(all) < len(accounting.Types)+2 {
		t.Errorf("%d events of %d types", len(all), len(accounting.Types))
	}
	return all
}

// secret is a key and its text.
type secret struct {
	text string
	key  events.WebhookKey
}

func key(t *testing.T, text string) secret {
	t.Helper()
	k, err := events.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return secret{text, k}
}

// pythonOf returns Python and the folder of its libraries, of which the test needs some.
func pythonOf(t *testing.T, libraries ...string) (python, path string) {
	t.Helper()
	python, path = need(t, "python3")[0], cacheDir()+"/sdk/python"
	for _, l := range libraries {
		if _, err := os.Stat(path + "/" + l); err != nil {
			cannot(t, fmt.Sprintf("Python's %s is not in %s", l, path))
		}
	}
	return python, path
}
