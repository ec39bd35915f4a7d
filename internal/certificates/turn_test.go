package certificates

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// others is a cluster in which the other nodes have a certificate before a turn, or by its end.
type others struct {
	Cluster
	has, comes []byte
	turns      int
}

func (o *others) Certificate(string) []byte           { return o.has }
func (o *others) PutCertificate(string, []byte) error { return nil }

func (o *others) Turn(context.Context, string) (mine bool, err error) {
	if o.turns++; o.comes != nil {
		o.has = o.comes
	}
	return true, nil
}

// TestNothingIsOrderedTwice: a node orders only what no other one has just got, also if that has come with its turn.
func TestNothingIsOrderedTwice(t *testing.T) {
	const name = "mx.example"
	lasts := func(d time.Duration) []byte {
		c, key := certificate(t, time.Now().Add(d), name)
		return append(key, c...)
	}
	const day = 24 * time.Hour
	for what, c := range map[string]struct {
		has, comes []byte
		turns      int
		want       error
	}{
		"nobody has one":              {turns: 1},
		"it is to be renewed":         {has: lasts(10 * time.Second), turns: 1},
		"another node has one":        {has: lasts(90 * day), want: errOthers},
		"it comes with the turn":      {comes: lasts(90 * day), turns: 1, want: errOthers},
		"a renewal comes with it":     {has: lasts(10 * time.Second), comes: lasts(90 * day), turns: 1, want: errOthers},
		"one that ends soon, too":     {has: lasts(10 * time.Second), comes: lasts(10 * time.Second), turns: 1},
		"one that has ended long ago": {has: lasts(-time.Hour), turns: 1},
	} {
		o := &others{has: c.has, comes: c.comes}
		a := &ACME{cfg: ACMEConfig{Dir: t.TempDir(), Directory: "https://ca.example/dir", Cluster: o, Now: time.Now,
			Log: slog.New(slog.DiscardHandler)}}
		if err := a.turn(t.Context(), name); !errors.Is(err, c.want) || o.turns != c.turns {
			t.Errorf("%s: %v after %d turns, want %v after %d", what, err, o.turns, c.want, c.turns)
		}
	}
}
