package config

import (
	"cmp"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/settings"
)

// ownSettings are those that each node of a cluster may have otherwise, with their blocks.
const ownSettings = `: hostname, data_dir, nodeid, user
accounting: path, rotate_size, rotate_every, keep_size
acme: names, http_address, tls_address
admission: memory_limit
api: address, tls.certificate, tls.key, max_connections
cluster: address, certificate, key, ca, secrets_key, on_loss, replicate, zone
console: address, tls.certificate, tls.key, users, hosts
control: socket, mode
delivery: max_connections
http: address
keys: file
listener: address, banner, tls.certificate, tls.key, max_connections
log: level, format, file
plan: node
pool: shared, weights
queue: segment_size, incoming_memory, min_free, idempotency_keys
resolver: servers, trusted, negative_ttl
router: ipv4, ipv6
source: address, ehlo, public_address
templates: path
users: file`

// TestEachSettingIsInASum but for a node's own ones: it is changed, in a file that has all.
func TestEachSettingIsInASum(t *testing.T) {
	src, err := os.ReadFile("../../mta.conf.example")
	if err != nil {
		t.Fatal(err)
	}
	src = regexp.MustCompile(`(?m)^( *)#(\w|  |})`).ReplaceAll(src, []byte("$1$2"))
	const file = "mta.conf.example with its samples"
	c, err := Parse(src, file, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	before, own := c.Sums(), make(map[string][]string)
	if text := strings.Join(slices.Collect(maps.Keys(before)), ""); len(before) > 100 || len(text) > 3000 {
		t.Errorf("%d sums, with names of %d octets", len(before), len(text))
	}
	var walk func(v reflect.Value, in, kind string, b *settings.Block, prefix string)
	walk = func(v reflect.Value, in, kind string, b *settings.Block, prefix string) {
		for f := range settings.Fields(v) {
			name := prefix + f.Name
			switch {
			case f.Kind == settings.Setting && b.Set(name):
				undo := alter(t, name, f.Value)
				changed := differing(before, c.Sums())
				undo()
				secret := strings.HasSuffix(f.Value.Type().String(), "settings.Secret")
				if len(changed) == 0 && !secret && !slices.Contains(own[kind], name) {
					own[kind] = append(own[kind], name)
				}
				if len(changed) > 1 || len(changed) == 1 && !strings.HasPrefix(changed[0], in) {
					t.Errorf("%s of %s changes the sums of %q", name, in, changed)
				}
			case f.Kind == settings.Single && settings.BlockOf(f.Value) != nil:
				walk(f.Value, cmp.Or(in, f.Name), cmp.Or(kind, f.Name), settings.BlockOf(f.Value), "")
			case f.Kind == settings.Single:
				walk(f.Value, in, kind, b, name+".")
			case f.Kind == settings.Many:
				for i := range f.Value.Len() {
					e := f.Value.Index(i).Elem()
					if b := settings.BlockOf(e); b.Where("").Filename == file {
						walk(e, cmp.Or(in, f.Name), cmp.Or(kind, f.Name), b, "")
					}
				}
			}
		}
	}
	walk(reflect.ValueOf(c).Elem(), "", "", &c.block, "")
	var lines []string
	for _, kind := range slices.Sorted(maps.Keys(own)) {
		lines = append(lines, kind+": "+strings.Join(own[kind], ", "))
	}
	if got := strings.Join(lines, "\n"); got != ownSettings {
		t.Errorf("own settings are\n%s", got)
	}
}

// TestWhatSumsDifferIn names the blocks in which two nodes' files differ.
func TestWhatSumsDifferIn(t *testing.T) {
	const base = `
		hostname = "mx1.example"
		source "out-1" {
			address = "192.0.2.1"
		}
		pool "acme" {
			shared = ["out-1"]
			dedicated "own-1" { plan = "standard" }
		}
		source "own-1" { address = "192.0.2.2" }
		tenant "acme" { pool = "acme" }
		provider "google" { connection_limit = 7 }
		domain "a.example" {
			route    = ["smtp://mx.a.example"]
			username = "ann"
			password = "one"
		}
		mail "x" {
			match { tier = [1] }
			max_age = "1h"
		}
		mail "y" {
			match { tier = [2] }
			max_age = "2h"
		}
		listener "smtp" { address = "127.0.0.1:2525" }`
	read := func(text string) map[string]string {
		t.Helper()
		c, err := Parse([]byte(text), "test.conf", noEnv)
		if err != nil {
			t.Fatal(err)
		}
		return c.Sums()
	}
	mails := base[strings.Index(base, "mail \"x\""):strings.Index(base, "listener")]
	x, y, _ := strings.Cut(mails, "mail \"y\"")
	for _, c := range []struct{ old, new, want string }{
		{"mx1.example", "mx2.example", ""}, // and what follows from it
		{"192.0.2.1", "192.0.2.9", ""},
		{"127.0.0.1:2525", "127.0.0.1:2526", ""},
		{`"one"`, `"two"`, ""}, // nobody guesses it
		{`"ann"`, `"bob"`, `domain "a.example"`},
		{`hostname`, "upgrade = \"auto\"\n hostname", "the settings outside of blocks"},
		{`= 7`, `= 8`, `provider "google"`},
		{`provider "google" { connection_limit = 7 }`, "", `provider "google"`},
		{`tenant "acme" { pool = "acme" }`, "defaults { max_age = \"1h\" }", `defaults, tenant "acme"`},
		{`shared = ["out-1"]`, "overflow = \"hold\"\n shared = [\"out-1\"]", `pool "acme"`},
		{`"standard"`, `"ses45"`, `pool "acme": dedicated "own-1"`},
		{`source "out-1" {`, "source \"out-1\" {\n connection_limit = 5\n", `source "out-1"`},
		{`["out-1"]`, `["out-1", "out-2"]`, ""}, // it has one more
		{`shared = ["out-1"]`, "", ""},          // it has none for it, so that mail waits for the dedicated one
		{mails, "mail \"y\"" + y + x, "the order of blocks"},
		{`max_age = "2h"`, `max_age = "3h"`, `mail "y"`},
	} {
		text := strings.Replace(base, c.old, c.new, 1)
		if strings.Contains(text, "out-2") {
			text += "\n source \"out-2\" { address = \"192.0.2.3\" }"
		}
		names, known := settings.Differing(read(base), read(text))
		if got := strings.Join(names, ", "); !known || got != c.want {
			t.Errorf("%s in place of %s: %s; want %s", c.new, c.old, got, c.want)
		}
	}
	const all = `
		source "own" { address = "192.0.2.2" }
		pool "acme" {
			dedicated "own" { plan = "standard" }
		}
		tenant "acme" { pool = "acme" }
		listener "smtp" {
			address = "127.0.0.1:2525"
			tenant  = "acme"
		}`
	names, known := settings.Differing(read(all), read(all+"\nsource \"more\" { address = \"192.0.2.1\" }"))
	if !known || len(names) > 0 { // the default pool is of those that are not dedicated
		t.Errorf("one node has a source that is not dedicated: %q", names)
	}
	if c, _ := Parse([]byte(base), "test.conf", noEnv); c.Sums()[`provider "yahoo"`] != "" {
		t.Error("a preset has a sum")
	}
}

// alter gives a setting another value, until undo.
func alter(t *testing.T, name string, v reflect.Value) (undo func()) {
	t.Helper()
	was := reflect.New(v.Type()).Elem()
	was.Set(v)
	switch {
	case v.Kind() == reflect.Slice && v.Len() == 0:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	case !v.IsZero():
		v.SetZero()
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(int64(time.Second))
	case v.Type() == reflect.TypeFor[settings.Rate]():
		v.Set(reflect.ValueOf(settings.Rate{Count: 1, Per: time.Second}))
	case v.Kind() == reflect.String:
		v.SetString("x")
	default:
		t.Errorf("%s has no value in the example", name)
	}
	return func() { v.Set(was) }
}

// differing names the sums that differ.
func differing(a, b map[string]string) (names []string) {
	for name := range b {
		if a[name] != b[name] {
			names = append(names, name)
		}
	}
	for name := range a {
		if b[name] == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
