package ordering

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/testca"
)

// sealer puts what a value is bound to before it.
type sealer struct{}

func (sealer) Seal(at string, plain []byte) []byte { return append([]byte(at+"|"), plain...) }

func (sealer) Open(at string, value []byte) ([]byte, error) {
	plain, ok := bytes.CutPrefix(value, []byte(at+"|"))
	if !ok {
		return nil, errors.New("it is bound to something else")
	}
	return plain, nil
}

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newStore(names ...string) *Store {
	return New(Config{Node: "one", Directory: "https://ca.example/dir", Names: names, Keys: sealer{},
		Note:   func([]string) (func(), error) { return func() {}, nil },
		Behind: func(context.Context) string { return "" }, Now: func() time.Time { return began },
		Log: slog.New(slog.DiscardHandler)})
}

// pair makes a certificate with its key.
func pair(t *testing.T, name string, ends time.Time) (all []byte) {
	t.Helper()
	c := testca.New(t).Issue(t, []string{name}, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = began, ends })
	certificate, key := testca.Files(t, c)
	for _, path := range []string{key, certificate} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	return all
}

// TestTheLatestEndCounts: of two certificates in rows, whichever was written last, and beside what a node has.
func TestTheLatestEndCounts(t *testing.T) {
	const name = "mx.example"
	s := newStore(name)
	old, late := pair(t, name, began.Add(24*time.Hour)), pair(t, name, began.Add(48*time.Hour))
	key := s.key(certificate, name)
	row := func(data []byte) []byte { return sealer{}.Seal(at(key), data) }
	ranks := make(map[bool]int)
	for _, data := range [][]byte{old, late} {
		rank, until, err := s.Look(key, row(data))
		if err != nil || until.Before(began) {
			t.Errorf("%v, %v", until, err)
		}
		ranks[bytes.Equal(data, late)] = rank
	}
	if ranks[true] <= ranks[false] {
		t.Errorf("the later certificate has the rank %d, the earlier one %d", ranks[true], ranks[false])
	}
	for _, data := range [][]byte{late, old} {
		if err := s.Apply(t.Context(), map[string][]byte{key: row(data)}, func(string) bool { return false }); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(s.Certificate(name), late) {
			t.Error("an earlier certificate replaces a later one")
		}
	}
}

// TestAValueIsGoodUnderItsKeyAlone: not as another form, for another name, or of another authority.
func TestAValueIsGoodUnderItsKeyAlone(t *testing.T) {
	const name = "mx.example"
	s := newStore(name, "other.example")
	if err := s.PutToken(t.Context(), name+"+http-01", []byte("answer")); err != nil {
		t.Fatal(err)
	}
	key := s.key(token, name+"+http-01")
	values, err := s.Get(t.Context(), []string{key})
	if err != nil || len(values) != 1 {
		t.Fatalf("%q, %v", values, err)
	}
	if _, _, err := s.Look(key, values[key]); err != nil {
		t.Error(err)
	}
	for _, other := range []string{s.key(token, "other.example+http-01"), s.key(turns, name),
		token + " https://test.example/dir " + name + "+http-01"} {
		if _, _, err := s.Look(other, values[key]); err == nil {
			t.Errorf("the value of %q is good under %q", key, other)
		}
	}
}

// TestALateClaimIsWithdrawn: of a node to which another one's certificate comes while it waits for its turn.
func TestALateClaimIsWithdrawn(t *testing.T) {
	const name = "mx.example"
	bubble.Test(t, func(t *testing.T) {
		s, noted := newStore(name), 0
		s.cfg.Note = func([]string) (func(), error) { noted++; return func() {}, nil }
		cert, claim := s.key(certificate, name), s.key(turns, name)
		rows := map[string][]byte{cert: sealer{}.Seal(at(cert), pair(t, name, began.Add(24*time.Hour)))}
		go func() {
			synctest.Wait()
			if claims, err := s.Get(t.Context(), []string{claim}); err != nil || len(claims) != 1 {
				t.Errorf("%q, %v is claimed", claims, err)
			}
			if err := s.Apply(t.Context(), rows, func(string) bool { return false }); err != nil {
				t.Error(err)
			}
		}()
		if mine, err := s.Turn(t.Context(), name); mine || err != nil {
			t.Errorf("%v, %v", mine, err)
		}
		if claims, err := s.Get(t.Context(), []string{claim}); err != nil || len(claims) > 0 || noted != 2 {
			t.Errorf("%q, %v is left after %d changes", claims, err, noted)
		}
	})
}
