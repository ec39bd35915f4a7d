package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
)

var (
	here      = netip.MustParseAddr("192.0.2.1")
	elsewhere = netip.MustParseAddr("198.51.100.7")
	start     = time.Date(2026, 11, 22, 16, 0, 0, 0, time.UTC)
)

// add puts a key of tenant acme into a file.
func add(t testing.TB, path string, k Key, now time.Time) (token string) {
	t.Helper()
	if k.Tenant == "" {
		k.Tenant = "acme"
	}
	if k.Scopes == 0 {
		k.Scopes = MayAll
	}
	token, _, err := AddKey(path, k, now)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A key is good at once in a book that is open, and refused 10 ms after its removal, or once the book has read the
// file again; a token is nowhere in the file.
func TestKeyInForceAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	bubble.Test(t, func(t *testing.T) {
		b := OpenKeys(KeyConfig{File: path, Tenant: func(name string) bool { return name == "acme" }})
		defer b.Close()
		if _, err := b.Check(t.Context(), "mta_x", here); !errors.Is(err, ErrNoKeys) {
			t.Errorf("without a file: %v", err)
		}
		token := add(t, path, Key{Name: "shop", Scopes: MaySend | MayRead}, time.Now())
		id, err := b.Check(t.Context(), token, here)
		if err != nil || id.Tenant != "acme" || id.Name != "shop" || id.Scopes != MaySend|MayRead || id.ID != KeySumOf(token).ID() {
			t.Errorf("%+v, %v", id, err)
		}
		text, _ := os.ReadFile(path)
		if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 || bytes.Contains(text, []byte(token[len(KeyPrefix):])) || len(token) != tokenSize || !wellFormed(token) {
			t.Errorf("mode %v, token %d octets, file\n%s", info.Mode(), len(token), text)
		}
		orphan := add(t, path, Key{Name: "shop", Tenant: "other"}, time.Now())
		if _, err := b.Check(t.Context(), orphan, here); !errors.Is(err, ErrNoTenant) {
			t.Errorf("without a tenant: %v", err)
		}
		if _, err := (File{Path: path}).RemoveKeys(WhichKey{Tenant: "acme", Name: "shop"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(fresh)
		if _, err := b.Check(t.Context(), token, here); !errors.Is(err, ErrRefused) {
			t.Errorf("removed: %v", err)
		}
		token = add(t, path, Key{Name: "shop"}, time.Now())
		if _, err := b.Check(t.Context(), token, here); err != nil {
			t.Error(err)
		}
		(File{Path: path}).RemoveKeys(WhichKey{Tenant: "acme", Name: "shop"})
		b.Reread()
		if _, err := b.Check(t.Context(), token, here); !errors.Is(err, ErrRefused) {
			t.Errorf("removed, and the file was read again: %v", err)
		}
	})
}

// Whatever is wrong with a token, the error and its time are the same, before guesses are slowed and after,
// and the log has the reason but no token.
func TestRefusalsLookAlike(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		add(t, path, Key{Name: "good"}, time.Now())
		expired := add(t, path, Key{Name: "expired", Expires: time.Now().Add(time.Minute)}, time.Now())
		bound := add(t, path, Key{Name: "bound", From: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, time.Now())
		time.Sleep(time.Hour)
		unknown, _ := newToken()
		cases := map[string]string{"unknown": unknown, "expired": expired, "elsewhere": bound, "empty": "", "malformed": "secret password", "long": strings.Repeat("x", 10000)}
		took := make(map[string][]time.Duration)
		for what, token := range cases {
			b := OpenKeys(KeyConfig{File: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
			for range 20 {
				began := time.Now()
				if _, err := b.Check(t.Context(), token, elsewhere); !errors.Is(err, ErrRefused) || errors.Is(err, ErrExpired) != (what == "expired") {
					t.Errorf("%s: %v", what, err)
				}
				took[what] = append(took[what], time.Since(began))
			}
			if problem := b.Problem(); !strings.Contains(problem, "20 requests from 198.51.100.7/32") {
				t.Errorf("%s: the alarm says %q", what, problem)
			}
			b.Close()
		}
		for what, some := range took {
			if fmt.Sprint(some) != fmt.Sprint(took["unknown"]) || some[0] != time.Second || some[19] != longestWait {
				t.Errorf("%s took %v, unknown %v", what, some, took["unknown"])
			}
		}
		for what, token := range cases {
			if token != "" && strings.Contains(log.String(), token) {
				t.Errorf("%s: the log has the token", what)
			}
		}
		for _, want := range []string{`reason="unknown key"`, `reason="expired key"`, `reason="key not allowed from this address" key=` + KeySumOf(bound).ID() + ` name=bound tenant=acme`} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %s", want)
			}
		}
	})
}

// A good key never waits for those who guess beside it, and a flood of guesses holds few of them.
func TestGuessesDoNotDelayGoodKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	bubble.Test(t, func(t *testing.T) {
		token := add(t, path, Key{Name: "shop"}, time.Now())
		b := OpenKeys(KeyConfig{File: path})
		defer b.Close()
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				if _, err := b.Check(t.Context(), "mta_guess", here); !KeyRefused(err) {
					t.Error(err)
				}
			})
		}
		time.Sleep(5 * time.Second)
		began := time.Now()
		if _, err := b.Check(t.Context(), token, here); err != nil || time.Since(began) != 0 {
			t.Errorf("a good key: %v after %v", err, time.Since(began))
		}
		all.Wait()
		if s := b.Stats(); s.Accepted != 1 || s.Refused+s.TooMany != 500 || s.TooMany < 400 {
			t.Errorf("%+v", s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.Check(ctx, "mta_guess", here); !KeyRefused(err) {
			t.Errorf("a client that has gone: %v", err)
		}
	})
}

// Both keys are good during the overlap of a rotation; then only the new one is.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	bubble.Test(t, func(t *testing.T) {
		old := add(t, path, Key{Name: "shop", Scopes: MaySend, From: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, time.Now())
		b := OpenKeys(KeyConfig{File: path})
		defer b.Close()
		token, added, was, err := (File{Path: path}).RotateKey(WhichKey{Name: "shop"}, time.Hour, time.Time{}, time.Now())
		if err != nil || added.Scopes != MaySend || len(added.From) != 1 || was.ID() != KeySumOf(old).ID() {
			t.Fatalf("%+v, %+v, %v", added, was, err)
		}
		good := func(token string) bool { _, err := b.Check(t.Context(), token, here); return err == nil }
		if !good(old) || !good(token) {
			t.Error("both are not good during the overlap")
		}
		time.Sleep(time.Hour)
		if good(old) || !good(token) {
			t.Error("after the overlap the old key is good, or the new one is not")
		}
		limited := add(t, path, Key{Name: "limited", Expires: time.Now().Add(10 * time.Hour)}, time.Now())
		time.Sleep(time.Hour)
		if _, next, _, err := (File{Path: path}).RotateKey(WhichKey{Name: "limited"}, time.Hour, time.Time{}, time.Now()); err != nil || !next.Expires.Equal(time.Now().Add(10*time.Hour)) {
			t.Errorf("the new key of one made for 10 hours: %+v, %v", next, err)
		}
		if table, _ := LoadKeys(path); table.Of(limited).Name != "limited" || table.Of("mta_x") != nil {
			t.Error("a key is not found by its token")
		}
		if _, err := (File{Path: path}).RemoveKeys(WhichKey{Name: "limited"}); err != nil {
			t.Fatal(err)
		}
		last, _, _, err := (File{Path: path}).RotateKey(WhichKey{Tenant: "acme", Name: "shop"}, 0, time.Now().Add(time.Hour), time.Now())
		if err != nil || good(token) || !good(last) {
			t.Errorf("without overlap: %v", err)
		}
		table, err := LoadKeys(path)
		if err != nil || len(table.Keys()) != 2 {
			t.Fatalf("%v, %d keys", err, len(table.Keys()))
		}
		if gone, err := (File{Path: path}).RemoveExpiredKeys(time.Now()); err != nil || len(gone) != 1 || gone[0].ID() != KeySumOf(old).ID() {
			t.Errorf("%v, %v", gone, err)
		}
		if _, err := (File{Path: path}).RemoveKeys(WhichKey{Name: KeySumOf(last).ID()}); err != nil {
			t.Fatal(err)
		}
		if b.Reread(); good(last) {
			t.Error("a key that was removed by its id is good")
		}
	})
}

func TestChangesRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	add(t, path, Key{Name: "shop"}, start)
	add(t, path, Key{Name: "shop", Tenant: "other & co"}, start)
	if _, err := (File{Path: path}).RemoveKeys(WhichKey{Name: "shop"}); !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), "acme, other & co") {
		t.Errorf("a name of two tenants: %v", err)
	}
	for _, c := range []struct {
		k    Key
		want string
	}{
		{Key{Tenant: "acme", Name: "shop", Scopes: MaySend}, "already has a key"},
		{Key{Tenant: "", Name: "x", Scopes: MaySend}, "needs a tenant"},
		{Key{Tenant: "acme", Name: "two words", Scopes: MaySend}, "letters, digits"},
		{Key{Tenant: "acme", Name: "mta_abc", Scopes: MaySend}, "does not begin with mta_"},
		{Key{Tenant: "acme", Name: "x"}, "needs a scope"},
		{Key{Tenant: "acme", Name: "x", Scopes: MaySend, Expires: start.Add(-time.Hour)}, "would have expired"},
		{Key{Tenant: "a\nb", Name: "x", Scopes: MaySend}, "control characters"},
	} {
		if _, _, err := AddKey(path, c.k, start); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.k, err, c.want)
		}
	}
	if _, err := (File{Path: path}).RemoveKeys(WhichKey{Tenant: "other & co", Name: "shop"}, WhichKey{Name: "none"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown name: %v", err)
	}
	if table, err := LoadKeys(path); err != nil || len(table.Keys()) != 2 {
		t.Errorf("a change that was refused has changed the file: %v", err)
	}
}

func TestBadFiles(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	good := sum + " tenant=acme name=shop scope=send created=2026-11-22T16:00:00Z"
	for _, c := range []struct{ text, want string }{
		{"mta-keys 2\nwhatever", "f:1: a newer mta wrote this file: its format is version 2, and this mta reads version 1; use the newer mta"},
		{"mta-keys", `f:1: the version of the format is missing; write "mta-keys 1"`},
		{"ann:$6$x", `f:1: the first line must be "mta-keys 1": is it the right file?`},
		{"# mine\n\nmta-keys 1\nzz tenant=acme", "f:4: a key's line begins with the SHA-256 of its token"},
		{"mta-keys 1\n" + good + "\n" + good, "f:3: the same key is in line 2 already"},
		{"mta-keys 1\n" + good + "\n" + strings.Replace(good, "ab", "cd", 1), `f:3: tenant "acme" has a key "shop" in line 2 already`},
		{"mta-keys 1\n" + strings.Replace(good, "send", "sned", 1), `f:2: scope: unknown scope "sned": there are send, read, cancel, events, suppress; correct the line`},
		{"mta-keys 1\n" + good + " scope=read", "f:2: scope is there twice"},
		{"mta-keys 1\n" + good + " colour=red", `f:2: unknown attribute "colour"`},
		{"mta-keys 1\n" + good + " from=192.0.2.1/24", "f:2: from: 192.0.2.1/24 has bits set behind its length: write 192.0.2.0/24"},
		{"mta-keys 1\n" + good + " expires=tomorrow", "f:2: expires: \"tomorrow\" is not a valid time"},
		{"mta-keys 1\n" + good + " replaced=2026-11-22T16:00:00Z", "f:2: a replaced key must expire"},
		{"mta-keys 1\n" + strings.Replace(good, "name=shop ", "", 1), "f:2: name is missing"},
		{"mta-keys 1\n" + strings.Repeat("x", maxKeyLine+1), "f:2: a line has more than"},
	} {
		if _, err := ParseKeys([]byte(c.text), "f"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	path := filepath.Join(t.TempDir(), "keys")
	os.WriteFile(path, []byte("mta-keys 2\n"), 0o600)
	if _, _, err := AddKey(path, Key{Tenant: "acme", Name: "x", Scopes: MaySend}, start); err == nil || !strings.Contains(err.Error(), "newer mta") {
		t.Errorf("a newer file was changed: %v", err)
	}
}

// Comments survive a change.
func TestCommentsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	os.WriteFile(path, []byte("# keys of the shop\n"), 0o640)
	add(t, path, Key{Name: "a"}, start)
	add(t, path, Key{Name: "b"}, start)
	(File{Path: path}).RemoveKeys(WhichKey{Name: "a"})
	text, _ := os.ReadFile(path)
	if lines := strings.Split(string(text), "\n"); lines[0] != "mta-keys 1" || lines[1] != "# keys of the shop" || !strings.Contains(lines[2], " name=b ") || len(lines) != 4 {
		t.Errorf("the file is\n%s", text)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v", info.Mode())
	}
}

// The last use is known to the minute, is written at most once a minute and at the end, and outlives the relay.
func TestLastUse(t *testing.T) {
	dir := t.TempDir()
	path, use := filepath.Join(dir, "keys"), filepath.Join(dir, "used.json")
	bubble.Test(t, func(t *testing.T) {
		token := add(t, path, Key{Name: "shop"}, time.Now())
		idle := add(t, path, Key{Name: "idle"}, time.Now())
		b := OpenKeys(KeyConfig{File: path, Use: use})
		began := time.Now()
		for range 100 {
			if _, err := b.Check(t.Context(), token, here); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		id := KeySumOf(token).ID()
		if at := b.LastUse(id); !at.Equal(began.Add(time.Minute)) {
			t.Errorf("last used at %v, want a minute after %v", at, began)
		}
		written, err := ReadKeyUse(use)
		if err != nil || !written[id].Equal(began.Add(time.Minute)) && !written[id].Equal(began) {
			t.Errorf("written: %v, %v", written, err)
		}
		b.Close()
		b = OpenKeys(KeyConfig{File: path, Use: use})
		if at := b.LastUse(id); !at.Equal(began.Add(time.Minute)) || !b.LastUse(KeySumOf(idle).ID()).IsZero() {
			t.Errorf("after a restart: %v", at)
		}
		(File{Path: path}).RemoveKeys(WhichKey{Name: "shop"})
		b.Reread()
		b.Check(t.Context(), idle, here)
		b.Close()
		if written, _ := ReadKeyUse(use); len(written) != 1 || !written[KeySumOf(idle).ID()].Equal(time.Now()) {
			t.Errorf("the uses of a removed key are kept: %v", written)
		}
	})
	os.WriteFile(use, []byte(`{"version":9}`), 0o600)
	b := OpenKeys(KeyConfig{File: path, Use: use})
	b.Close()
	if text, _ := os.ReadFile(use); string(text) != `{"version":9}` {
		t.Errorf("a newer file was written over: %s", text)
	}
}

// FuzzParse: what is read is written so that it reads the same, and a bad file is an error with its line.
func FuzzParseKeys(f *testing.F) {
	sum := strings.Repeat("ab", 32)
	f.Add("mta-keys 1\n" + sum + " tenant=acme name=shop scope=send,read from=192.0.2.0/24,2001:db8::/32 created=2026-11-22T16:00:00Z\n")
	f.Add("# x\nmta-keys 1\n" + sum + " tenant=a%20b name=a@b scope=send created=2026-11-22T16:00:00+01:00 expires=2027-01-01T00:00:00Z replaced=2026-12-01T00:00:00Z\n")
	f.Add("mta-keys 2\n")
	f.Add("mta-keys 1\r\n" + sum + "\t tenant==\n")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := ParseKeys([]byte(text), "f")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Errorf("the error has no line: %v", err)
			}
			return
		}
		for _, k := range table.Keys() {
			again, err := parseKey(k.String())
			if err != nil || again.String() != k.String() {
				t.Errorf("%s: %v", k, err)
			}
		}
		next, err := table.change(nil)
		if err != nil || len(next.Keys()) != len(table.Keys()) {
			t.Errorf("written again: %v", err)
		}
	})
}

// BenchmarkCheck is a request with a good key.
func BenchmarkCheck(b *testing.B) {
	path := filepath.Join(b.TempDir(), "keys")
	tokens := make([]string, 1000)
	lines := []string{"mta-keys 1"}
	for i := range tokens {
		k := Key{Tenant: "acme", Name: fmt.Sprint("key", i), Scopes: MayAll, From: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Created: start}
		tokens[i], k.Sum = newToken()
		lines = append(lines, k.String())
	}
	os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
	book := OpenKeys(KeyConfig{File: path, Use: filepath.Join(b.TempDir(), "used"), Tenant: func(string) bool { return true }})
	defer book.Close()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := book.Check(b.Context(), tokens[i%len(tokens)], here); err != nil {
				b.Error(err)
			}
		}
	})
}

// TestAPreviewWritesNothing: each has the outcome of the change, and the file stays as it was.
func TestAPreviewWritesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	add(t, path, Key{Name: "shop", Scopes: MaySend}, time.Now())
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	later, dry := time.Now().Add(time.Hour), File{Path: path, DryRun: true}
	token, _, err := dry.AddKey(Key{Tenant: "acme", Name: "blog", Scopes: MaySend}, later)
	rotated, _, _, errRotate := dry.RotateKey(WhichKey{Name: "shop"}, time.Hour, time.Time{}, later)
	gone, errRemove := dry.RemoveKeys(WhichKey{Name: "shop"})
	_, errExpired := dry.RemoveExpiredKeys(later)
	if err := errors.Join(err, errRotate, errRemove, errExpired); err != nil || len(gone) != 1 || token+rotated != "" {
		t.Fatalf("%v, %d keys would be removed, tokens %q, %q", err, len(gone), token, rotated)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("%v, the file is %q, and was %q", err, after, before)
	}
}
