package admission

import (
	"strings"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestF1_TokensThatAreNotWhatTheyClaim(t *testing.T) {
	s := NewSigner(Key{"b", []byte("new secret")}, Key{"a", []byte("old secret")})
	now := epoch.Add(10 * time.Minute)
	bound := [16]byte{7}
	good := s.Token(Claim{First: epoch, Tenant: "acme", Bound: bound})
	if got := s.First(good, "acme", bound, now); !got.Equal(epoch) {
		t.Fatalf("a good token gives %v", got)
	}
	old := NewSigner(Key{"a", []byte("old secret")}).Token(Claim{First: epoch, Tenant: "acme", Bound: bound})
	if got := s.First(old, "acme", bound, now); !got.Equal(epoch) {
		t.Error("a token of the key before is not taken")
	}
	bad := map[string]string{
		"empty": "", "junk": "v1.b.!!.??", "too long": good + strings.Repeat("A", 300), "dots": "....",
		"another key's id": strings.Replace(good, "v1.b.", "v1.a.", 1),
		"an unknown key":   NewSigner(Key{"c", []byte("x")}).Token(Claim{First: epoch, Tenant: "acme", Bound: bound}),
		"a forged key":     NewSigner(Key{"b", []byte("x")}).Token(Claim{First: epoch, Tenant: "acme", Bound: bound}),
		"another tenant's": s.Token(Claim{First: epoch, Tenant: "other", Bound: bound}),
		"another message":  s.Token(Claim{First: epoch, Tenant: "acme", Bound: [16]byte{8}}),
		"of the future":    s.Token(Claim{First: now.Add(time.Second), Tenant: "acme", Bound: bound}),
		"expired":          s.Token(Claim{First: now.Add(-61 * time.Minute), Tenant: "acme", Bound: bound}),
	}
	for i := range good {
		changed := []byte(good)
		changed[i] ^= 1
		bad["octet "+string(rune('0'+i/10))+string(rune('0'+i%10))] = string(changed)
	}
	for name, token := range bad {
		if got := s.First(token, "acme", bound, now); !got.Equal(now) {
			t.Errorf("%s: taken for a first attempt %v ago", name, now.Sub(got))
		}
	}
	long := s.Token(Claim{First: now.Add(-50 * time.Minute), Tenant: "acme", Bound: bound})
	if got := s.First(long, "acme", bound, now); now.Sub(got) != MaxAge {
		t.Errorf("50 minutes of waiting are worth %v, want %v", now.Sub(got), MaxAge)
	}
	s.Rotate(Key{"c", []byte("newest")})
	if got := s.First(good, "acme", bound, now); !got.Equal(now) {
		t.Error("a token of a key that is gone is taken")
	}
}

func FuzzToken(f *testing.F) {
	s := NewSigner(Key{"k", []byte("secret")})
	f.Add(s.Token(Claim{First: epoch}))
	f.Add("v1.k..")
	f.Fuzz(func(t *testing.T, token string) {
		if got := s.First(token, "", [16]byte{}, epoch.Add(time.Minute)); got.Before(epoch.Add(time.Minute)) && !strings.HasPrefix(token, "v1.k.") {
			t.Errorf("%q was taken", token)
		}
	})
}

func TestMemoryIsBoundedAndForgets(t *testing.T) {
	m := NewMemory(1000)
	if at := m.First(epoch, "client", "a@b", "c@d"); !at.Equal(epoch) {
		t.Error("a first attempt is not now")
	}
	later := epoch.Add(10 * time.Minute)
	if at := m.First(later, "client", "a@b", "c@d"); !at.Equal(epoch) {
		t.Error("the second attempt does not find the first")
	}
	if at := m.First(later, "client", "a@b", "other"); !at.Equal(later) {
		t.Error("another recipient has the first one's time")
	}
	m.Forget("client", "a@b", "c@d")
	if at := m.First(later, "client", "a@b", "c@d"); !at.Equal(later) {
		t.Error("what was taken is still remembered")
	}
	for i := range 100_000 {
		m.First(later, "flood", string(rune(i)))
	}
	if n := m.Len(); n > 1000 {
		t.Errorf("%d are kept, 1,000 may be", n)
	}
}

func TestKeysOfADayOutliveIt(t *testing.T) {
	secret := []byte("secret")
	claim := Claim{First: epoch, Tenant: "acme"}
	token := NewSigner(Daily(secret, epoch)...).Token(claim)
	for after, good := range map[time.Duration]bool{0: true, 40 * time.Minute: true, 23 * time.Hour: false} {
		now := epoch.Add(after)
		s := NewSigner(Daily(secret, now)...)
		if got := s.First(token, "acme", [16]byte{}, now).Before(now); got != (good && after > 0) {
			t.Errorf("%v later: %v", after, got)
		}
	}
	midnight := epoch.Truncate(24 * time.Hour).Add(24 * time.Hour)
	token = NewSigner(Daily(secret, midnight.Add(-time.Second))...).Token(Claim{First: midnight.Add(-time.Second), Tenant: "acme"})
	s := NewSigner(Daily(secret, midnight.Add(time.Second))...)
	if got := s.First(token, "acme", [16]byte{}, midnight.Add(time.Second)); !got.Equal(midnight.Add(-time.Second)) {
		t.Errorf("across midnight: %v", got)
	}
	if s := NewSigner(Daily([]byte("other"), epoch)...); !s.First(token, "acme", [16]byte{}, midnight.Add(time.Second)).Equal(midnight.Add(time.Second)) {
		t.Error("a token of another secret is taken")
	}
}
