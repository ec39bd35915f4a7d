package mta

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/mta/bounce/returnpath"
	"example.org/mta/cluster/secrets"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/smallfile"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/suppression"
)

// TestTokensOfOtherNodes: a relay that knows another's secrets accepts its tokens, over restarts and without the
// cluster; it makes its own by its own. TestAClusterKnows in e2e has secrets come from the other node.
func TestTokensOfOtherNodes(t *testing.T) {
	blocks := strings.ReplaceAll(inboundConfig, "FORWARD", "") + apiKeysFile(t) + `api "web" { address = "127.0.0.1:0" }` + "\n"
	a, b := newWorld(t, sink.Config{}, blocks), newWorld(t, sink.Config{}, blocks)
	sub := suppression.Subscription{Tenant: "acme", Address: "joe@box.example", Sent: time.Now()}
	link := a.unsubscribes.Links.Token(&sub)
	path := a.token(returnpath.Bounce, &envelope.Message{ID: 7, Received: time.Now()}, 0)
	ask := func(of, at string, status int) {
		t.Helper()
		resp, err := http.Get("http://" + b.Status().HTTP[0] + "/unsubscribe/" + of)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s the link is answered %d; want %d", at, resp.StatusCode, status)
		}
		if err := b.bring("b-"+path+"@b.acme.example", "From: x@y.example\r\n\r\n"); (err == nil) != (status == 200) {
			t.Errorf("%s a report is answered %v", at, err)
		}
	}
	ask(link, "at another relay", http.StatusNotFound)
	key := b.cfg.DataDir + "/key"
	if err := secrets.WriteKeys(key); err != nil {
		t.Fatal(err)
	}
	keys, err := secrets.ReadKeys(key)
	if err != nil {
		t.Fatal(err)
	}
	store, err := secrets.Open(secrets.Config{Path: b.cfg.Cluster.SecretsPath(), Keys: keys, Now: time.Now,
		Note: func([]string) (func(), error) { return func() {}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	none := func([][]byte) error { return nil }
	for name, secret := range secretsOf(t, a.cfg) {
		if err := store.Join(name, none, secret...); err != nil {
			t.Fatal(err)
		}
	}
	b.restart(Options{})
	ask(link, "with its secrets", http.StatusOK)
	own := b.unsubscribes.Links.Token(&sub)
	if _, ok := a.unsubscribes.Links.Read(own); ok {
		t.Error("a link is made by another relay's secret")
	}
	ask(own, "of its own,", http.StatusOK)
	k, err := wiring.ReturnPathKeys(b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := k.Read(returnpath.Bounce, path, time.Now()); err != nil || got.Message != 7 {
		t.Errorf("mta bounce token: %+v, %v", got, err)
	}
}

// secretsOf reads the secrets of tokens in a data directory.
func secretsOf(t *testing.T, cfg *config.Config) map[string][][]byte {
	t.Helper()
	link, err := os.ReadFile(cfg.DataDir + "/unsubscribe-secret")
	if err != nil {
		t.Fatal(err)
	}
	paths, err := smallfile.ExistingSecrets(cfg.DataDir+"/"+wiring.ReturnPathSecret, 1)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][][]byte{"unsubscribe-secret": {link}, wiring.ReturnPathSecret: paths}
}
