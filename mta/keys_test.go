package mta

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/check"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
	"example.org/mta/submission/auth"
)

// The keys of the file are in force in a running relay; a reload takes them away, brings others, and keeps
// what does not change. mta check warns of a key whose tenant has no block.
func TestKeysOfARelay(t *testing.T) {
	dir := t.TempDir()
	path, file := filepath.Join(dir, "keys"), filepath.Join(dir, "mta.conf")
	add := func(tenant string) string {
		token, _, err := auth.AddKey(path, auth.Key{Tenant: tenant, Name: "shop", Scopes: auth.MaySend}, time.Now())
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
	if _, err := book.Check(ctx, stranger, from); err != auth.ErrNoTenant {
		t.Errorf("a tenant without a block: %v", err)
	}
	if w := strings.Join(check.Warnings(cfg, time.Now()), "\n"); !strings.Contains(w, `API key "shop" of `+path+` is of the tenant "stranger", which has no block`) {
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

// Keys are added, listed, rotated and removed through the control API, in force at once; no secret stands in the
// log, in a listing or in the file.
func TestKeysByTheControlAPI(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	w := newWorldWith(t, Options{}, sink.Config{}, `keys { file = "`+path+`" }
		tenant "acme" { }
		tenant "other" { }`)
	c, ctx := api.NewClient(w.cfg.Control.Socket), t.Context()
	if l, err := api.OpAPIKeys.Call(ctx, c, api.None{}); err != nil || l.Keys == nil || len(l.Keys) != 0 {
		t.Errorf("without a file: %+v, %v", l, err)
	}
	done, err := api.OpAddAPIKey.Call(ctx, c, api.AddAPIKey{Tenant: "acme", Name: "shop", Scopes: []string{"send"}, From: []string{"192.0.2.0/24"}, Expires: api.Age(time.Hour)})
	if err != nil || done.Added.State != "valid" || done.Added.Expires.Sub(done.Added.Created) < 59*time.Minute {
		t.Fatalf("%+v, %v", done, err)
	}
	from := netip.MustParseAddr("192.0.2.1")
	check := func(token string) error { _, err := w.keys.Load().Check(ctx, token, from); return err }
	if err := check(done.Key); err != nil {
		t.Errorf("the new key: %v", err)
	}
	next, err := api.OpRotateAPIKey.Call(ctx, c, api.RotateAPIKey{Name: "shop"})
	if err != nil || next.Old == nil || next.Old.ID != done.Added.ID || next.Old.State != "replaced" || check(next.Key) != nil || check(done.Key) != nil {
		t.Errorf("%+v, %v", next, err)
	}
	l, err := api.OpAPIKeys.Call(ctx, c, api.None{})
	if err != nil || len(l.Keys) != 2 || l.Keys[0].LastUsed.IsZero() || strings.Join(l.Keys[1].Scopes, " ") != "send" {
		t.Errorf("%+v, %v", l, err)
	}
	now := api.Age(0)
	last, err := api.OpRotateAPIKey.Call(ctx, c, api.RotateAPIKey{Tenant: "acme", Name: "shop", Overlap: &now})
	if err != nil || last.Old != nil || check(last.Key) != nil {
		t.Errorf("%+v, %v", last, err)
	}
	if _, err := api.OpAddAPIKey.Call(ctx, c, api.AddAPIKey{Tenant: "other", Name: "shop"}); err != nil {
		t.Error(err)
	}
	for want, err := range map[string]error{
		"there is no tenant":        second(api.OpAddAPIKey.Call(ctx, c, api.AddAPIKey{Tenant: "acne", Name: "x"})),
		"already has a key":         second(api.OpAddAPIKey.Call(ctx, c, api.AddAPIKey{Tenant: "acme", Name: "shop"})),
		"unknown scope":             second(api.OpAddAPIKey.Call(ctx, c, api.AddAPIKey{Tenant: "acme", Name: "x", Scopes: []string{"all"}})),
		"is not a valid network":    second(api.OpAddAPIKey.Call(ctx, c, api.AddAPIKey{Tenant: "acme", Name: "x", From: []string{"here"}})),
		"letters, digits":           second(api.OpAddAPIKey.Call(ctx, c, api.AddAPIKey{Tenant: "acme", Name: "a b"})),
		"several tenants":           second(api.OpRotateAPIKey.Call(ctx, c, api.RotateAPIKey{Name: "shop"})),
		"there is no such key: y":   second(api.OpRemoveAPIKeys.Call(ctx, c, api.RemoveAPIKeys{Names: []string{"y"}})),
		"no key is named":           second(api.OpRemoveAPIKeys.Call(ctx, c, api.RemoveAPIKeys{})),
		"there is no such key: app": second(api.OpRotateAPIKey.Call(ctx, c, api.RotateAPIKey{Name: "app"})),
	} {
		refused := (*api.Error)(nil)
		if !errors.As(err, &refused) || refused.Status != 400 && refused.Status != 404 || !strings.Contains(refused.Message, want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if page := w.scrape(); !strings.Contains(page, "mta_api_keys_accepted_total 4\n") || !strings.Contains(page, "mta_api_keys_refused_total 0\n") {
		t.Errorf("the metrics are\n%s", page)
	}
	gone, err := api.OpRemoveAPIKeys.Call(ctx, c, api.RemoveAPIKeys{Tenant: "acme", Names: []string{"shop"}})
	if err != nil || len(gone.Keys) != 2 {
		t.Errorf("%+v, %v", gone, err)
	}
	text, _ := os.ReadFile(path)
	for _, token := range []string{done.Key, next.Key, last.Key} {
		if strings.Contains(w.book.String()+string(text), token[4:]) {
			t.Error("a secret is in the log or the file")
		}
	}
}

func second[T any](_ T, err error) error { return err }
