package mta

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/mta/config"
	"example.org/mta/submission/keys"
)

// The keys of the file are in force in a running relay; a reload takes them away, brings others, and keeps
// what does not change. mta check warns of a key whose tenant has no block.
func TestKeysOfARelay(t *testing.T) {
	dir := t.TempDir()
	path, file := filepath.Join(dir, "keys"), filepath.Join(dir, "mta.conf")
	add := func(tenant string) string {
		token, _, err := keys.Add(path, keys.Key{Tenant: tenant, Name: "shop", Scopes: keys.Send}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	token := add("acme")
	write := func(text string) {
		text = `hostname = "relay.example"
data_dir = "` + filepath.Join(dir, "data") + `"
http { address = "" }
listener "smtp" { address = "127.0.0.1:0" }
tenant "acme" { }
` + text
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	with := `keys { file = "` + path + `" }`
	write(with)
	cfg, err := config.Load(file, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(cfg, Options{ConfigFile: file, Env: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	from := netip.MustParseAddr("192.0.2.1")
	book := r.keys.Load()
	if id, err := book.Check(ctx, token, from); err != nil || id.Tenant != "acme" {
		t.Errorf("%+v, %v", id, err)
	}
	stranger := add("stranger")
	if _, err := book.Check(ctx, stranger, from); err != keys.ErrNoTenant {
		t.Errorf("a tenant without a block: %v", err)
	}
	if w := strings.Join(Warnings(cfg, time.Now()), "\n"); !strings.Contains(w, `API key "shop" of `+path+` is of the tenant "stranger", which has no block`) {
		t.Errorf("the warnings are %s", w)
	}
	reload := func(text string) {
		t.Helper()
		write(text)
		if _, err := r.Reload(ctx); err != nil {
			t.Fatal(err)
		}
	}
	reload(with + "\ntenant \"stranger\" { }")
	if r.keys.Load() != book {
		t.Error("a reload has replaced the keys")
	}
	if _, err := book.Check(ctx, stranger, from); err != nil {
		t.Errorf("a tenant that a reload brings: %v", err)
	}
	reload("")
	if r.keys.Load() != nil {
		t.Error("there are keys without a file")
	}
}
