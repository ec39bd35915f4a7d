package envelope

import (
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestIDTextFormSortsAsTheNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := ID(rapid.Uint64().Draw(t, "a")), ID(rapid.Uint64().Draw(t, "b"))
		if (a < b) != (a.String() < b.String()) {
			t.Fatalf("%d and %d sort otherwise as %s and %s", a, b, a, b)
		}
		back, err := ParseID(strings.ToUpper(a.String()))
		if err != nil || back != a {
			t.Fatalf("%s read back as %s, %v", a, back, err)
		}
	})
}

func TestIDsOnlyGrow(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	var g IDs
	first := g.Next(now)
	if !first.Time().Equal(now) {
		t.Errorf("id made at %v says %v", now, first.Time())
	}
	if second := g.Next(now.Add(-time.Hour)); second <= first {
		t.Errorf("after the clock was set back, id %d came after %d", second, first)
	}
	g.Observe(FirstID(now.Add(time.Hour)))
	if id := g.Next(now); id <= FirstID(now.Add(time.Hour)) {
		t.Errorf("id %d is not above the observed one", id)
	}
}

func TestIDsAreUniqueAmongGoroutines(t *testing.T) {
	var g IDs
	var mu sync.Mutex
	seen := make(map[ID]bool)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				id := g.Next(time.UnixMilli(1))
				mu.Lock()
				if seen[id] {
					t.Errorf("id %s twice", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestParseAddress(t *testing.T) {
	for _, c := range []struct{ in, want, local, domain string }{
		{"a@example.com", "a@example.com", "a", "example.com"},
		{"a@EXAMPLE.com", "a@EXAMPLE.com", "a", "example.com"},
		{`"a"@example.com`, "a@example.com", "a", "example.com"},
		{`"a b"@example.com`, `"a b"@example.com`, `"a b"`, "example.com"},
		{`"a@b"@example.com`, `"a@b"@example.com`, `"a@b"`, "example.com"},
		{`"a\"b\\"@example.com`, `"a\"b\\"@example.com`, `"a\"b\\"`, "example.com"},
		{"a@[192.0.2.1]", "a@[192.0.2.1]", "a", "[192.0.2.1]"},
		{"a@[IPv6:2001:DB8::1]", "a@[IPv6:2001:DB8::1]", "a", "[ipv6:2001:db8::1]"},
		{"用户@例え.jp", "用户@例え.jp", "用户", "xn--r8jz45g.jp"},
		{"a@bücher.example", "a@bücher.example", "a", "xn--bcher-kva.example"},
		{"a@_under.example", "a@_under.example", "a", "_under.example"},
		{"a@example.com.", "a@example.com", "a", "example.com"},
	} {
		a, err := ParseAddress(c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if string(a) != c.want || a.Local() != c.local || a.Domain() != c.domain {
			t.Errorf("%s: got %s, local %s, domain %s", c.in, a, a.Local(), a.Domain())
		}
	}
	for _, bad := range []string{
		"", "a", "@example.com", "a@", "a b@example.com", "a@exa mple.com", `"a@example.com`, `"a"b"@example.com`,
		".a@example.com", "a..b@example.com", "a.@example.com", "a@.example.com", "a@example..com", "a@example.com..", "a\r\nb@example.com",
		"a@example.com\r\nRCPT TO:<b@example.com>", "a<b@example.com", "\"a\r\nb\"@example.com", "a\x00@example.com",
		"a@\xff.com", "\xff@example.com", strings.Repeat("a", 65) + "@example.com", "a@" + strings.Repeat("a", 64) + ".com",
		"a@" + strings.Repeat("a.", 128) + "com", "a@[192.0.2.1", "a@[1 2]", "a@[1\r\n2]", "a@[\x00]", "a@[]", "a@[1]2]", "a@[é]",
	} {
		if a, err := ParseAddress(bad); err == nil {
			t.Errorf("%q was taken as %q", bad, a)
		}
	}
}

func TestDowngradeLeavesOnlyTheLocalPart(t *testing.T) {
	if got := Address("a@bücher.example").Downgrade(); got != "a@xn--bcher-kva.example" || !got.ASCII() {
		t.Errorf("got %s", got)
	}
	if got := Address("用户@bücher.example").Downgrade(); got.ASCII() {
		t.Errorf("%s claims to be ASCII", got)
	}
}

// FuzzParseAddress: what is taken can stand between < and > on the wire and reads back the same.
func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"a@b.c", `"a b"@c.d`, "用户@例え.jp", "a@[1.2.3.4]", `"\"@"@x.y`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		if strings.ContainsAny(string(a), "\r\n\x00") {
			t.Fatalf("%q was taken as %q, which breaks a command line", s, a)
		}
		again, err := ParseAddress(string(a))
		if err != nil || again != a {
			t.Fatalf("%q was taken as %q, which reads back as %q, %v", s, a, again, err)
		}
		if d := a.Domain(); !a[strings.LastIndexByte(string(a), '@'):].ASCII() && !Address(d).ASCII() {
			t.Fatalf("domain of %q is %q, not ASCII", a, d)
		}
	})
}

func TestNotify(t *testing.T) {
	if n := Notify(0); n.Wants(NotifySuccess) || !n.Wants(NotifyFailure) || !n.Wants(NotifyDelay) {
		t.Error("the default is failure and delay")
	}
	if n := NotifyNever; n.Wants(NotifyFailure) || n.String() != "NEVER" {
		t.Error("NEVER means never")
	}
	if s := (NotifySuccess | NotifyDelay).String(); s != "SUCCESS,DELAY" {
		t.Errorf("got %s", s)
	}
}

// A recipient's place in the window of release is its own, stays the same, and is a whole second.
func TestReleaseOf(t *testing.T) {
	received := time.Date(2026, 11, 21, 12, 0, 0, 500, time.UTC)
	m := Message{ID: FirstID(received), Received: received}
	if !m.ReleaseOf(0).IsZero() || m.Start() != received {
		t.Errorf("without a release: %v, age from %v", m.ReleaseOf(0), m.Start())
	}
	m.Release = received.Truncate(time.Second).Add(time.Hour)
	if m.ReleaseOf(7) != m.Release || m.Start() != m.Release {
		t.Errorf("without a window: %v, age from %v, want %v", m.ReleaseOf(7), m.Start(), m.Release)
	}
	m.Spread = 10 * time.Second
	var seen [10]int
	for i := range 1000 {
		at := m.ReleaseOf(i).Sub(m.Release)
		if at != m.ReleaseOf(i).Sub(m.Release) || at%time.Second != 0 || at < 0 || at >= m.Spread {
			t.Fatalf("recipient %d is released %v into a window of %v", i, at, m.Spread)
		}
		seen[at/time.Second]++
	}
	for s, n := range seen {
		if n < 60 || n > 140 {
			t.Errorf("second %d has %d of 1000 recipients", s, n)
		}
	}
	if want := m.Release.Add(m.Spread); m.Start() != want {
		t.Errorf("age counts from %v, want %v", m.Start(), want)
	}
}

// TestIDsOfNodes: ids of two nodes differ, however many are made in a millisecond and wherever they go on, and grow.
func TestIDsOfNodes(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	seen := make(map[ID]bool)
	for _, node := range []uint16{1, 2, 1023} {
		var ids IDs
		ids.Observe(FirstID(now) + 777) // of a time without a cluster
		ids.OfNode(node)
		last := FirstID(now) + 777
		for range 3000 {
			id := ids.Next(now)
			if id <= last || id%1024 != ID(node) || seen[id] || id.Time().Sub(now) > 3*time.Millisecond {
				t.Fatalf("%v after %v at node %d", id, last, node)
			}
			last, seen[id] = id, true
		}
		if first := ids.Next(now.Add(time.Second)); first != FirstID(now.Add(time.Second))+ID(node) {
			t.Errorf("%v is not the first of its millisecond", first)
		}
	}
}

// TestWhatMovedKeepsItsTimes: a release that keeps the age is no schedule, also after another move; a schedule stays one.
func TestWhatMovedKeepsItsTimes(t *testing.T) {
	accepted := time.Date(2026, 11, 30, 10, 10, 26, 123e6, time.UTC)
	came := accepted.Add(time.Hour)
	m := &Message{Received: came}
	m.Moved("one", "old", accepted)
	m.Moved("two", "new", came)
	if m.Scheduled() || !m.ReleaseOf(0).IsZero() || !m.Accepted().Equal(accepted) || !m.Start().Equal(accepted.Truncate(time.Second)) || m.MovedFrom() != "one/old" {
		t.Errorf("%+v: accepted %v", m, m.Accepted())
	}
	later := &Message{Received: came, Release: came.Add(time.Hour)}
	later.Moved("one", "old", accepted)
	if !later.Scheduled() || later.ReleaseOf(0) != later.Release || !later.Accepted().Equal(accepted) {
		t.Errorf("%+v", later)
	}
	earlier := &Message{Received: came, Release: accepted.Truncate(time.Second), Marks: []string{"moved=one/old"}} // by an earlier version
	if !earlier.Scheduled() || !earlier.Accepted().Equal(came) {
		t.Errorf("%+v", earlier)
	}
}
