package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"example.org/mta/internal/bubble"
)

// cheap is a hash of a password that takes a millisecond.
func cheap(t testing.TB, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

func file(t testing.TB, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func from(addr string) Client {
	a := netip.MustParseAddr(addr)
	return Client{Session: "s", Peer: netip.AddrPortFrom(a, 40000), Network: netip.PrefixFrom(a, a.BitLen())}
}

// try logs in by PLAIN.
func try(s *Service, c Client, name, password string) (*Login, error) {
	e := s.Begin(context.Background(), c, Plain, nil)
	_, _, err := e.Next([]byte("\x00" + name + "\x00" + password))
	return e.Login(), err
}

// Guesses come ever more slowly, from a network and at a user; a user who is known somewhere is not
// held up by them.
func TestGuessesAreSlowed(t *testing.T) {
	path := file(t, "ann:"+cheap(t, "secret"))
	bubble.Test(t, func(t *testing.T) {
		s := New(Config{File: path})
		defer s.Close()
		if _, err := try(s, from("192.0.2.1"), "ann", "secret"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var took []time.Duration
		for i := range 20 {
			at := time.Now()
			if _, err := try(s, from("198.51.100.7"), fmt.Sprintf("user%d", i), "guess"); !errors.Is(err, ErrDenied) {
				t.Fatal(err)
			}
			took = append(took, time.Since(at).Round(time.Second))
		}
		// The tenth failure is the last that costs nothing; the last waits are the longest.
		if took[9] != time.Second || took[19] < longestByNet || time.Since(began) < 60*time.Second {
			t.Errorf("attempts took %v", took)
		}
		if got := s.Problem(); !strings.Contains(got, "20 logins from 198.51.100.7/32 have failed") {
			t.Errorf("trouble %q", got)
		}
		for range 12 { // a net of machines guesses at one user
			_, _ = try(s, from(fmt.Sprintf("198.51.100.%d", 100+rand.IntN(100))), "ann", "guess")
		}
		at := time.Now()
		if _, err := try(s, from("203.0.113.9"), "ann", "secret"); err != nil || time.Since(at) > time.Millisecond {
			t.Errorf("from elsewhere: %v after %v", err, time.Since(at))
		}
		at = time.Now()
		if _, err := try(s, from("198.51.100.99"), "ann", "guess"); !errors.Is(err, ErrDenied) || time.Since(at) < 10*time.Second {
			t.Errorf("the next guess, after a right password: %v after %v", err, time.Since(at))
		}
		at = time.Now()
		if _, err := try(s, from("192.0.2.1"), "ann", "secret"); err != nil || time.Since(at) > time.Millisecond {
			t.Errorf("from where it is known: %v after %v", err, time.Since(at))
		}
		time.Sleep(ForgetAfter + time.Minute)
		at = time.Now()
		if _, err := try(s, from("198.51.100.7"), "ann", "secret"); err != nil || time.Since(at) > time.Second {
			t.Errorf("after %v without a failure: %v after %v", ForgetAfter, err, time.Since(at))
		}
		if got := s.Problem(); got != "" {
			t.Errorf("trouble goes on: %q", got)
		}
	})
}

// Guesses in parallel wait for one another, and for no longer than patience.
func TestGuessesInParallelWait(t *testing.T) {
	path := file(t, "ann:"+cheap(t, "secret"))
	bubble.Test(t, func(t *testing.T) {
		s := New(Config{File: path})
		defer s.Close()
		var denied, put atomic.Int64
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				switch _, err := try(s, from("198.51.100.7"), "ann", fmt.Sprint(i)); {
				case errors.Is(err, ErrDenied):
					denied.Add(1)
				case errors.Is(err, ErrTooMany):
					put.Add(1)
				}
			})
		}
		wg.Wait()
		if n := denied.Load(); n > 15 || n+put.Load() != 200 {
			t.Errorf("%d of 200 guesses were looked at, %d put off", n, put.Load())
		}
	})
}

// All clients of a user can come back at once: one of them has the password hashed, or as many as have a chance.
func TestClientsOfAUserComeBackAtOnce(t *testing.T) {
	path := file(t, "ann:"+cheap(t, "secret"))
	bubble.Test(t, func(t *testing.T) {
		s := New(Config{File: path})
		defer s.Close()
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				if _, err := try(s, from("198.51.100.7"), "ann", "secret"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := s.Stats(); got.Succeeded != 500 || got.Remembered < 500-int64(chancesOfRegion.Burst) {
			t.Errorf("%+v", got)
		}
	})
}

// What is known of a user ends after wrong passwords from its own network, and with time.
func TestKnownUsersAreForgotten(t *testing.T) {
	path := file(t, "ann:"+cheap(t, "secret"))
	bubble.Test(t, func(t *testing.T) {
		s := New(Config{File: path})
		defer s.Close()
		here := from("192.0.2.1")
		remembered := func() bool {
			before := s.Stats().Remembered
			if _, err := try(s, here, "ann", "secret"); err != nil {
				t.Fatal(err)
			}
			return s.Stats().Remembered > before
		}
		remembered()
		time.Sleep(2 * renewEvery) // its hash was made anew
		if remembered() || !remembered() {
			t.Error("the password is not remembered")
		}
		time.Sleep(verifiedFor + time.Second)
		if remembered() {
			t.Error("the password is remembered for too long")
		}
		for range wrongWhenKnown {
			if _, err := try(s, here, "ann", "guess"); !errors.Is(err, ErrDenied) {
				t.Fatal(err)
			}
		}
		if remembered() {
			t.Error("guesses from the user's network did not end the memory")
		}
	})
}

// Nobody is let in who has no password, no name, or the password of another.
func TestNobodyElseLogsIn(t *testing.T) {
	path := file(t, "ann:"+cheap(t, "secret"), "cert::certificate=app.example", "bob:"+cheap(t, "other"))
	for _, c := range []struct{ name, password string }{
		{"ann", ""}, {"ann", "secre"}, {"ann", "secret "}, {"", ""}, {"", "secret"}, {"cert", ""}, {"cert", "secret"},
		{"nobody", ""}, {"nobody", "secret"}, {"nobody", "other"}, {"bob", "secret"}, {"\x01", "secret"}, {"ann", strings.Repeat("x", 1025)},
	} {
		bubble.Test(t, func(t *testing.T) {
			s := New(Config{File: path})
			defer s.Close()
			if l, err := try(s, from("192.0.2.1"), c.name, c.password); l != nil || err == nil {
				t.Errorf("%q with %q: %+v, %v", c.name, c.password, l, err)
			}
			e := s.Begin(context.Background(), from("192.0.2.1"), Plain, nil)
			if _, _, err := e.Next([]byte("bob\x00ann\x00secret")); !errors.Is(err, ErrDenied) || e.Login() != nil {
				t.Errorf("ann as bob: %v", err)
			}
		})
	}
}

// Who is vouched for is meant exactly: to whoever vouches, ADM may be another than adm.
func TestVouchedNamesAreNotFolded(t *testing.T) {
	s := New(Config{File: file(t, "adm::role=admin", "Zoë::role=viewer")})
	defer s.Close()
	for name, want := range map[string]string{
		"adm": "adm", "zoë": "zoë", "ADM": "", "Adm": "", "ａｄｍ": "", "adⅿ": "", "adm\u00ad": "", " adm": "", "zoe\u0308": "", "": "",
	} {
		got := ""
		if l := s.Vouched(name); l != nil {
			got = l.User
		}
		if got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

// Hashes from elsewhere are renewed by the first login, in the file; comments and what was changed
// meanwhile stay.
func TestHashesAreRenewed(t *testing.T) {
	path := file(t, "# ours", "ann:"+cheap(t, "secret")+":tenant=acme", "bob:"+cheap(t, "other"))
	bubble.Test(t, func(t *testing.T) {
		s := New(Config{File: path})
		defer s.Close()
		l, err := try(s, from("192.0.2.1"), "Ann", "secret")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * renewEvery)
		synctest.Wait()
		text, _ := os.ReadFile(path)
		lines := strings.Split(string(text), "\n")
		if lines[0] != "# ours" || !strings.HasPrefix(lines[1], "ann:$argon2id$") || !strings.HasSuffix(lines[1], ":tenant=acme") || !strings.HasPrefix(lines[2], "bob:$2a$") {
			t.Errorf("the file is\n%s", text)
		}
		if !s.Still(l) {
			t.Error("the session that was there is logged out")
		}
		if _, err := try(s, from("192.0.2.1"), "ann", "secret"); err != nil {
			t.Error(err)
		}
		if err := UpdateUsers(path, func(t *UserTable) error {
			hash, err := NewHash(Argon2id, "new")
			t.SetHash("ann", hash)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := try(s, from("192.0.2.1"), "ann", "secret"); !errors.Is(err, ErrDenied) {
			t.Errorf("the old password: %v", err)
		}
		if _, err := try(s, from("192.0.2.1"), "ann", "new"); err != nil {
			t.Errorf("the new password: %v", err)
		}
		time.Sleep(2 * checkEvery)
		if s.Still(l) {
			t.Error("a session with the old password goes on")
		}
	})
}

// A users file that becomes unreadable keeps the users before it, and somebody hears of it.
func TestBrokenFilesKeepTheUsers(t *testing.T) {
	path := file(t, "ann:"+cheap(t, "secret"))
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := New(Config{File: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
		defer s.Close()
		time.Sleep(time.Second)
		for _, bad := range []string{"ann", "ann:$9$abc", "ann:" + cheap(t, "x") + "\nann:" + cheap(t, "y")} {
			if err := os.WriteFile(path, []byte(bad+strings.Repeat("\n", len(bad))), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := try(s, from("192.0.2.1"), "ann", "secret"); err != nil {
				t.Errorf("%q: %v", bad, err)
			}
			if got := s.Problem(); !strings.Contains(got, "users:") {
				t.Errorf("%q: trouble %q", bad, got)
			}
		}
		if strings.Contains(log.String(), "$2a$") || strings.Contains(s.Problem(), "$") {
			t.Errorf("a hash is in the log:\n%s", log.String())
		}
	})
	none := New(Config{File: filepath.Join(t.TempDir(), "none")})
	if _, err := try(none, from("192.0.2.1"), "ann", "secret"); !errors.Is(err, ErrNoUsers) {
		t.Errorf("without a file: %v", err)
	}
}

// The log has a line for each failure, with what fail2ban's filter wants, and no secrets.
func TestFailuresAreLogged(t *testing.T) {
	path := file(t, "ann:"+cheap(t, "secret"))
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := New(Config{File: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
		defer s.Close()
		_, _ = try(s, from("192.0.2.1"), "ann", "hunter2")
		_, _ = try(s, from("2001:db8::1"), "hunter3", "hunter2") // a password where the name should be
		got := log.String()
		for _, want := range []string{
			`level=WARN msg="login failed" peer=192.0.2.1:40000 session=s mechanism=PLAIN user=ann reason="wrong password"`,
			`level=WARN msg="login failed" peer=[2001:db8::1]:40000 session=s mechanism=PLAIN user="" reason="unknown user"`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no line %s in\n%s", want, got)
			}
		}
		if strings.Contains(got, "hunter") {
			t.Errorf("a secret is in the log:\n%s", got)
		}
	})
}

// Unknown users and wrong passwords take the same time: both are drawn from one distribution. Without
// the hash that is checked for nobody, one of them would be above all of the other. The wait that
// rounds failures up to whole seconds is left out here.
func TestUnknownUsersTakeTheSameTime(t *testing.T) {
	argon, err := NewHash(Argon2id, "secret")
	if err != nil {
		t.Fatal(err)
	}
	path := file(t, "ann:"+argon.String(), "bob:"+argon.String(), "dan::certificate=app.example")
	s := New(Config{File: path})
	defer s.Close()
	names := map[string]*[]time.Duration{"ann": {}, "nobody": {}, "dan": {}}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // ends every wait
	for range 30 {
		for name, times := range names {
			a := &attempt{s: s, ctx: ctx, client: from("192.0.2.1"), mechanism: Plain, began: time.Now()}
			if err := a.find(name); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if a.hash().Verify("wrong") {
				t.Fatal("a wrong password is right")
			}
			*times = append(*times, time.Since(began))
		}
	}
	for _, name := range []string{"nobody", "dan"} {
		if above := share(*names["ann"], *names[name]); above < 0.1 || above > 0.9 {
			t.Errorf("a wrong password takes longer than %s's in %.0f %% of pairs", name, 100*above)
		}
	}
}

// share is that of pairs in which the first takes longer (Mann and Whitney's U).
func share(a, b []time.Duration) float64 {
	n := 0
	for _, x := range a {
		for _, y := range b {
			if x > y {
				n++
			}
		}
	}
	return float64(n) / float64(len(a)*len(b))
}

// In virtual time, where computing takes none, all failures take the same, whatever was wrong: by PLAIN
// and by SCRAM, before and after guesses are slowed, at a user who is known there and at one who is not.
func TestFailuresAreAnsweredAlike(t *testing.T) {
	scramHash, err := NewHash(SchemeSCRAM, "secret")
	if err != nil {
		t.Fatal(err)
	}
	path := file(t, "ann:"+cheap(t, "secret"), "bob:"+scramHash.String())
	var all [][]time.Duration
	for _, name := range []string{"ann", "bob", "nobody", "ann, who is known"} {
		bubble.Test(t, func(t *testing.T) {
			s := New(Config{File: path, Scheme: SchemeSCRAM})
			defer s.Close()
			who, isKnown := strings.CutSuffix(name, ", who is known")
			if isKnown {
				if _, err := try(s, from("192.0.2.1"), who, "secret"); err != nil {
					t.Fatal(err)
				}
			}
			var took []time.Duration
			for range 14 {
				at := time.Now()
				if _, err := try(s, from("192.0.2.1"), who, "wrong"); !errors.Is(err, ErrDenied) {
					t.Fatal(err)
				}
				took = append(took, time.Since(at))
			}
			all = append(all, took)
		})
	}
	for _, took := range all[1:] {
		if !slices.Equal(took, all[0]) {
			t.Errorf("failures took\n%v\n%v", all[0], took)
		}
	}
}

// A user who does not exist, or has no hash for SCRAM, has a salt like others, which stays the same.
func TestScramDoesNotTellUsers(t *testing.T) {
	path := file(t, "ann:"+cheap(t, "secret"))
	first := func(s *Service, name string) string {
		e := s.Begin(context.Background(), from("192.0.2.1"), SCRAM, nil)
		challenge, done, err := e.Next([]byte("n,,n=" + name + ",r=nonce"))
		if err != nil || done {
			t.Fatal(err)
		}
		_, salt, _ := strings.Cut(string(challenge), ",")
		return salt
	}
	secret := bytes.Repeat([]byte{1}, 32)
	of := func() []byte { return secret }
	a, b := New(Config{File: path, Secret: of}), New(Config{File: path, Secret: of})
	for _, name := range []string{"ann", "nobody"} {
		salt := first(a, name)
		text, count, _ := strings.Cut(strings.TrimPrefix(salt, "s="), ",")
		if raw, err := base64.StdEncoding.DecodeString(text); err != nil || len(raw) != 16 || count != fmt.Sprintf("i=%d", iterations) {
			t.Errorf("%s: %s", name, salt)
		}
		if again := first(b, name); again != salt {
			t.Errorf("%s has another salt after a restart: %s, %s", name, salt, again)
		}
	}
	if first(a, "ann") == first(a, "nobody") {
		t.Error("two users have one salt")
	}
}

// The users file is replaced under load, and no login is lost.
func TestReplacingTheFileLosesNoLogin(t *testing.T) {
	line := "ann:" + cheap(t, "secret")
	path := file(t, line)
	s := New(Config{File: path})
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var logins atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := try(s, from(fmt.Sprintf("192.0.2.%d", i)), "ann", "secret"); err != nil {
					t.Error(err)
					return
				}
				logins.Add(1)
			}
		})
	}
	const replaced = 50
	for i := range replaced {
		err := UpdateUsers(path, func(t *UserTable) error {
			return t.Put(&User{Name: fmt.Sprintf("user%d", i)})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	wg.Wait()
	table, err := LoadUsers(path)
	if err != nil || len(table.Users()) != replaced+1 {
		t.Errorf("%v, %d users", err, len(table.Users()))
	}
	t.Logf("%d logins while the file was replaced %d times", logins.Load(), replaced)
}

// BenchmarkCachedLogin is a login of a user who is known, by PLAIN.
func BenchmarkCachedLogin(b *testing.B) {
	s := New(Config{File: file(b, "ann:"+cheap(b, "secret"))})
	defer s.Close()
	c := from("192.0.2.1")
	if _, err := try(s, c, "ann", "secret"); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := try(s, c, "ann", "secret"); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzExchange looks for responses that log somebody in without the password, or break the server.
func FuzzExchange(f *testing.F) {
	f.Add(uint8(0), []byte("\x00ann\x00secret"), []byte(""))
	f.Add(uint8(1), []byte("ann"), []byte("guess"))
	f.Add(uint8(2), []byte("n,,n=bob,r=abc"), []byte("c=biws,r=abc,p=AAAA"))
	f.Add(uint8(2), []byte("y,a=x,n=bo=2Cb,r=abc"), []byte("c=eSws,r=,p="))
	f.Add(uint8(3), []byte("p=tls-exporter,,n=bob,r=abc"), []byte("="))
	f.Add(uint8(4), []byte(""), []byte(""))
	hash, err := NewHash(SchemeSCRAM, "correct horse")
	if err != nil {
		f.Fatal(err)
	}
	path := file(f, "ann:"+cheap(f, "battery staple"), "bob:"+hash.String())
	f.Fuzz(func(t *testing.T, which uint8, first, second []byte) {
		mechanism := []string{Plain, LoginName, SCRAM, SCRAMPlus, External}[which%5]
		bubble.Test(t, func(t *testing.T) { // so that the password is looked at, and its answer costs no time
			s := New(Config{File: path})
			defer s.Close()
			e := s.Begin(t.Context(), from("192.0.2.1"), mechanism, []string{External, SCRAMPlus, SCRAM, Plain, LoginName})
			for _, response := range [][]byte{nil, first, second, {}, second} {
				challenge, done, err := e.Next(response)
				if done || e.Login() != nil {
					t.Fatalf("%s: %q, %q logged in", mechanism, first, second)
				}
				if len(challenge) > 9000 {
					t.Fatalf("a challenge of %d octets", len(challenge))
				}
				if err != nil {
					return
				}
			}
		})
	})
}
