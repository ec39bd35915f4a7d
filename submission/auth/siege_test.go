package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xdg-go/scram"

	"example.org/mta/internal/bubble"
)

// tryScram logs in by SCRAM.
func tryScram(s *Service, c Client, name, password string) (*Login, error) {
	client, err := scram.SHA256.NewClient(name, password, "")
	if err != nil {
		return nil, err
	}
	conv, e := client.NewConversation(), s.Begin(context.Background(), c, SCRAM, nil)
	said, _ := conv.Step("")
	for {
		challenge, done, err := e.Next([]byte(said))
		if done || err != nil {
			return e.Login(), err
		}
		if said, err = conv.Step(string(challenge)); err != nil {
			return nil, err
		}
	}
}

// guessScram sends a wrong proof, which costs no hashing.
func guessScram(s *Service, c Client, name, _ string) (*Login, error) {
	e := s.Begin(context.Background(), c, SCRAM, nil)
	challenge, _, err := e.Next([]byte("n,,n=" + name + ",r=nonce"))
	if err != nil {
		return nil, err
	}
	nonce, _, _ := strings.Cut(string(challenge), ",")
	_, _, err = e.Next([]byte("c=biws," + nonce + ",p=" + strings.Repeat("A", 43) + "="))
	return nil, err
}

type login func(s *Service, c Client, name, password string) (*Login, error)

// besiege has guessers try a user's password as fast as they are answered, each from a region of its own.
func besiege(s *Service, guessers int, try login, user string) (end func()) {
	ended, done := make(chan struct{}), sync.WaitGroup{}
	for i := range guessers {
		done.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-ended:
					return
				default:
					_, _ = try(s, from(fmt.Sprintf("10.7.%d.1", i)), user, fmt.Sprint("guess", n))
				}
			}
		})
	}
	return func() { close(ended); done.Wait() }
}

// Forty guessers keep the right password out neither from a new network nor from the usual one, and after a
// restart neither.
func TestGuessersKeepNobodyOut(t *testing.T) {
	hash, err := NewHash(SchemeSCRAM, "secret")
	if err != nil {
		t.Fatal(err)
	}
	for what, of := range map[string]struct{ by, guess login }{"PLAIN": {try, try}, "SCRAM": {tryScram, guessScram}} {
		by := of.by
		path := file(t, "ann:"+hash.String())
		cfg := Config{File: path, Scheme: SchemeSCRAM, Known: filepath.Join(t.TempDir(), "known")}
		bubble.Test(t, func(t *testing.T) {
			s := New(cfg)
			usual := from("192.0.2.1")
			if _, err := by(s, usual, "ann", "secret"); err != nil {
				t.Fatal(err)
			}
			for range chancesOfRegion.Burst + 1 { // whoever is in the same region has used up its chances
				_, _ = of.guess(s, from("192.0.2.7"), "ann", "guess")
			}
			s.Close()
			s = New(cfg)
			defer s.Close()
			defer besiege(s, 40, of.guess, "ann")()
			time.Sleep(2 * time.Minute)
			var took []time.Duration
			right := func(c Client) {
				at := time.Now()
				if _, err := by(s, c, "ann", "secret"); err != nil {
					t.Errorf("%s from %v: %v after %v", what, c.Network, err, time.Since(at))
				}
				took = append(took, time.Since(at))
			}
			right(usual)
			for i := range 30 {
				time.Sleep(10 * time.Second)
				right(from(fmt.Sprintf("203.0.%d.9", i)))
			}
			slices.Sort(took)
			t.Logf("%s: p50 %v, at most %v", what, took[15], took[30])
			if took[30] > time.Second {
				t.Errorf("%s: %v at most", what, took[30])
			}
		})
	}
}

// Four guess while their user logs in: the same in small, with the race detector.
func TestFewGuessersKeepNobodyOut(t *testing.T) {
	hash, err := NewHash(SchemeSCRAM, "secret")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{File: file(t, "ann:"+hash.String()), Scheme: SchemeSCRAM, Known: filepath.Join(t.TempDir(), "known")}
	bubble.Test(t, func(t *testing.T) {
		s := New(cfg)
		defer s.Close()
		defer besiege(s, 4, try, "ann")()
		for i := range 2 {
			time.Sleep(time.Second)
			at := time.Now()
			if _, err := try(s, from(fmt.Sprintf("203.0.%d.9", i)), "ann", "secret"); err != nil || time.Since(at) > time.Second {
				t.Errorf("login %d: %v after %v", i, err, time.Since(at))
			}
		}
	})
}

// What guessers can try without waiting is bounded, however many networks and regions they have.
func TestChancesAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newChances(time.Now)
		began, taken := time.Now(), 0
		for i := range 60_000 {
			p := place{"ann", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}), 32)}
			if c.take(p) {
				taken++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if most := chancesAtUser.Burst + int(time.Since(began)/chancesAtUser.Interval()) + 1; taken > most || taken < most-5 {
			t.Errorf("%d chances in %v from 60,000 regions, want %d", taken, time.Since(began), most)
		}
		taken = 0
		for i := range 65_536 {
			a := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 1, byte(i >> 8), byte(i)})
			if c.take(place{fmt.Sprint("user", i), netip.PrefixFrom(a, 64)}) {
				taken++
			}
		}
		if taken != chancesOfRegion.Burst {
			t.Errorf("%d chances from all networks of a /48, want %d", taken, chancesOfRegion.Burst)
		}
	})
}

// The file of known networks has no secrets, and no others may read it. Whatever is flipped in it, the service
// begins with what was written or with nothing, and sets the file aside.
func TestDamagedKnownNetworks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known")
	cfg := Config{File: file(t, "ann:"+cheap(t, "secret")), Known: path}
	var good []byte
	bubble.Test(t, func(t *testing.T) {
		s := New(cfg)
		for _, addr := range []string{"192.0.2.1", "2001:db8::1"} {
			if _, err := try(s, from(addr), "ann", "secret"); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
		var err error
		if good, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		if text := string(good); strings.Contains(text, "secret") || strings.Contains(text, "$") || strings.Count(text, "ann") != 2 {
			t.Errorf("the file is\n%s", text)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		for i := range good {
			bad := slices.Clone(good)
			bad[i] ^= 1 << (i % 8)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			s := New(cfg)
			n := len(s.known.by)
			s.Close()
			aside, _ := filepath.Glob(path + ".damaged-*")
			if _, err := os.Stat(path); n == 2 && (err != nil || len(aside) > 0) || n == 0 && (!errors.Is(err, os.ErrNotExist) || len(aside) != 1) || n == 1 {
				t.Fatalf("octet %d flipped: %d places, %v, set aside: %v", i, n, err, aside)
			}
			for _, x := range aside {
				os.Remove(x)
			}
		}
	})
	for _, bad := range []string{"", "\n", "{}", `{"version":2,"sum":""}` + "\n[]\n"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if s := New(cfg); len(s.known.by) != 0 {
			t.Errorf("%q: %d places", bad, len(s.known.by))
		}
	}
}
