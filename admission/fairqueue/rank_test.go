package fairqueue

import (
	"testing"
	"time"
)

func TestRankIsThePlaceInTheOrderOfFirstAttempts(t *testing.T) {
	var r Ranker
	if got := r.Rank(epoch, epoch); got != 1 {
		t.Errorf("with nobody else: %v", got)
	}
	for i := range 100 {
		r.Rank(epoch.Add(-time.Duration(i)*time.Second), epoch)
	}
	now := epoch.Add(rankBucket)
	for age, want := range map[int]float64{-1: 1, 25: .73, 50: .48, 200: 0} {
		if got := r.Rank(epoch.Add(-time.Duration(age)*time.Second), now); got < want-.03 || got > want+.03 {
			t.Errorf("first attempt %d s ago: %v, want %v", age, got, want)
		}
	}
	now = now.Add(time.Hour)
	r.Rank(now, now)
	now = now.Add(rankBucket)
	if got := r.Rank(now, now); got != 1 {
		t.Errorf("an hour later: %v", got)
	}
	if got := r.Rank(epoch.Add(time.Hour), epoch.Add(-time.Hour)); got < 0 || got > 1 {
		t.Errorf("after the clock was set back: %v", got)
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
