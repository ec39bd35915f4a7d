package intake

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
)

// memoryStore keeps what a request leaves behind.
type memoryStore struct {
	mu    sync.Mutex
	known map[RequestKey]StoredRequest
	err   error
	asked int
}

func (s *memoryStore) Keyed(k RequestKey) (StoredRequest, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	stored, ok := s.known[k]
	return stored, ok, s.err
}

func (s *memoryStore) put(c *Claim, whole bool, ids map[int]envelope.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[c.Key] = StoredRequest{Request: c.Request, IDs: ids, Whole: whole, Answer: []byte("answer")}
}

func testBook() (*Repeats, *memoryStore) {
	s := &memoryStore{known: map[RequestKey]StoredRequest{}}
	return NewRepeats([]byte("secret"), s), s
}

func (b *Repeats) sum(body string) *RequestSum {
	s := b.Sum()
	s.Write([]byte(body))
	return s
}

// TestTheTable is what becomes of a request by what became of the one before with the same key, by its body, and by
// whose it is.
func TestTheTable(t *testing.T) {
	type state int
	const (
		unknown  state = iota // no request with the key
		underWay              // one is being taken
		left                  // its client left, or it was refused, before anything was durable
		half                  // some of it is durable, it was not answered, and its claim is over
		answered
		forgotten // answered, a day ago
		unreadable
	)
	trouble := errors.New("disk")
	for _, c := range []struct {
		name   string
		before state
		key    string
		body   string
		tenant string
		want   Outcome
		err    error
	}{
		{"first", unknown, "k", "body", "acme", Fresh, nil},
		{"again, while the first is under way", underWay, "k", "body", "acme", UnderWay, nil},
		{"another body, while the first is under way", underWay, "k", "other", "acme", Other, nil},
		{"another key, while the first is under way", underWay, "l", "body", "acme", Fresh, nil},
		{"another tenant, while the first is under way", underWay, "k", "body", "other", Fresh, nil},
		{"again, after nothing was taken", left, "k", "body", "acme", Fresh, nil},
		{"another body, after nothing was taken", left, "k", "other", "acme", Fresh, nil},
		{"again, after some was taken", half, "k", "body", "acme", Continue, nil},
		{"another body, after some was taken", half, "k", "other", "acme", Other, nil},
		{"again, after the answer", answered, "k", "body", "acme", Replay, nil},
		{"another body, after the answer", answered, "k", "other", "acme", Other, nil},
		{"another key, after the answer", answered, "l", "body", "acme", Fresh, nil},
		{"the same key in other case", answered, "K", "body", "acme", Fresh, nil},
		{"another tenant, after the answer", answered, "k", "body", "other", Fresh, nil},
		{"the end of the tenant in the key", answered, "ek", "body", "acm", Fresh, nil},
		{"again, a day later", forgotten, "k", "body", "acme", Fresh, nil},
		{"another body, a day later", forgotten, "k", "other", "acme", Fresh, nil},
		{"the disk can't be read", unreadable, "k", "body", "acme", Fresh, trouble},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, s := testBook()
			if c.before != unknown {
				first, outcome, err := b.Begin(t.Context(), "acme", "k", b.sum("body"))
				if outcome != Fresh || err != nil {
					t.Fatal(outcome, err)
				}
				switch c.before {
				case half:
					s.put(first, false, map[int]envelope.ID{0: 7})
				case answered, forgotten:
					s.put(first, true, map[int]envelope.ID{0: 7, 1: 8})
				case unreadable:
					s.err = trouble
				}
				if c.before != underWay {
					first.Drop()
				}
				if c.before == forgotten {
					delete(s.known, first.Key)
				}
			}
			claim, outcome, err := b.Begin(t.Context(), c.tenant, c.key, b.sum(c.body))
			if outcome != c.want || !errors.Is(err, c.err) {
				t.Fatalf("%v, %v; want %v, %v", outcome, err, c.want, c.err)
			}
			if has := claim != nil; has != (err == nil && c.want != Other && c.want != UnderWay) {
				t.Fatalf("a claim: %v", has)
			}
			switch c.want {
			case Replay:
				if string(claim.Stored.Answer) != "answer" || claim.Accepted(1) != 8 {
					t.Errorf("%+v", claim.Stored)
				}
			case Continue:
				if claim.Accepted(0) != 7 || claim.Accepted(1) != 0 {
					t.Errorf("%+v", claim.Stored)
				}
			}
			claim.Drop()
			claim.Drop()
			if n := len(b.underWay); n > 1 || n == 1 && c.before != underWay {
				t.Errorf("%d claims are left", n)
			}
		})
	}
}

// TestTwoHundredAtOnce: of two hundred requests with one key at once, one is taken; the others wait or get its answer.
func TestTwoHundredAtOnce(t *testing.T) {
	for range 20 {
		b, s := testBook()
		var taken, replayed, underWay atomic.Int32
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 200 {
			all.Go(func() {
				<-start
				c, outcome, err := b.Begin(t.Context(), "acme", "k", b.sum("body"))
				defer c.Drop()
				switch {
				case err != nil:
					t.Error(err)
				case outcome == Fresh:
					taken.Add(1)
					s.put(c, true, map[int]envelope.ID{0: envelope.ID(taken.Load())})
				case outcome == Replay:
					replayed.Add(1)
				case outcome == UnderWay:
					underWay.Add(1)
				}
			})
		}
		close(start)
		all.Wait()
		if taken.Load() != 1 || taken.Load()+replayed.Load()+underWay.Load() != 200 || len(b.underWay) != 0 {
			t.Fatalf("%d taken, %d replayed, %d under way", taken.Load(), replayed.Load(), underWay.Load())
		}
	}
}

// TestSecretOfTheRelay: neither a key nor the sum of a request can be found out without the secret.
func TestSecretOfTheRelay(t *testing.T) {
	one, _ := testBook()
	two := NewRepeats([]byte("another"), &memoryStore{})
	if one.own.names("acme", "k")[0] == two.own.names("acme", "k")[0] || one.own.share("acme") == two.own.share("acme") || one.sum("body").Own() == two.sum("body").Own() {
		t.Error("the secret makes no difference")
	}
	same, _ := testBook()
	if one.own.names("acme", "k")[1] == RequestKey(one.sum("acmek").Own()) || one.own.names("acme", "k") != same.own.names("acme", "k") || one.sum("body").Own() != same.sum("body").Own() {
		t.Error("keys and requests have the same sums, or other ones after a restart")
	}
}

// TestKeysHaveTheirTenant: keys of a tenant have the same share, and those of another tenant another.
func TestKeysHaveTheirTenant(t *testing.T) {
	b, _ := testBook()
	share := func(tenant, key string) [4]byte {
		s, ok := b.own.names(tenant, key)[0].Tenant()
		if !ok {
			t.Errorf("a key of %s has no tenant", tenant)
		}
		return s
	}
	if share("acme", "k") != share("acme", "l") || share("acme", "k") == share("other", "k") || b.own.names("acme", "k")[0] == b.own.names("acme", "l")[0] {
		t.Error("shares are not those of tenants")
	}
}

// TestKeysOfEarlierVersions: a request that the version before has stored under its name is answered, continued and
// refused as one of this version.
func TestKeysOfEarlierVersions(t *testing.T) {
	b, s := testBook()
	former := RequestKey{0xcc, 0x21, 0x5c, 0x17, 0xda, 0xde, 0x4e, 0x00, 0x1d, 0x94, 0x2f, 0xd3, 0xf9, 0xd0, 0xc7, 0x65} // that it made of "acme", "k"
	for _, c := range []struct {
		whole bool
		body  string
		want  Outcome
	}{{true, "body", Replay}, {false, "body", Continue}, {true, "other", Other}} {
		s.known[former] = StoredRequest{Request: b.sum("body").Own(), IDs: map[int]envelope.ID{0: 7}, Whole: c.whole}
		claim, outcome, err := b.Begin(t.Context(), "acme", "k", b.sum(c.body))
		if outcome != c.want || err != nil || claim != nil && (claim.Key != former || claim.Accepted(0) != 7) {
			t.Errorf("%+v: %v, %+v, %v", c, outcome, claim, err)
		}
		if _, again, _ := b.Begin(t.Context(), "acme", "k", b.sum(c.body)); claim != nil && again != UnderWay {
			t.Errorf("while it is under way: %v", again)
		}
		claim.Drop()
		if len(b.underWay) > 0 {
			t.Error("a claim is left")
		}
	}
	if known, ok, err := b.Taken("acme", "k"); !ok || known.IDs[0] != 7 || err != nil {
		t.Errorf("%+v, %v, %v", known, ok, err)
	}
}

// TestMovedKeys: what another relay has taken of a request is known here, under its secret, together with what this one
// has taken.
func TestMovedKeys(t *testing.T) {
	old, _ := testBook()
	for _, c := range []struct {
		name        string
		own, there  *StoredRequest
		body        string
		late        bool // the key comes when the request has begun
		want        Outcome
		first, next envelope.ID // of its messages
	}{
		{"nothing", nil, nil, "body", false, Fresh, 0, 0},
		{"answered there", nil, &StoredRequest{IDs: map[int]envelope.ID{0: 7, 1: 8}, Whole: true}, "body", false, Replay, 7, 8},
		{"another there", nil, &StoredRequest{IDs: map[int]envelope.ID{0: 7, 1: 8}, Whole: true}, "other", false, Other, 0, 0},
		{"begun there", nil, &StoredRequest{IDs: map[int]envelope.ID{0: 7}}, "body", false, Continue, 7, 0},
		{"begun there, the rest here", &StoredRequest{IDs: map[int]envelope.ID{1: 9}, Whole: true}, &StoredRequest{IDs: map[int]envelope.ID{0: 7}}, "body", false, Replay, 7, 9},
		{"answered here only", &StoredRequest{IDs: map[int]envelope.ID{0: 1, 1: 2}, Whole: true}, nil, "body", false, Replay, 1, 2},
		{"it comes now", nil, &StoredRequest{IDs: map[int]envelope.ID{0: 7}, Whole: true}, "body", true, UnderWay, 0, 0},
	} {
		store := &memoryStore{known: map[RequestKey]StoredRequest{}}
		b := NewRepeats([]byte("another"), store)
		if !c.late {
			b.Moved([]string{"third", old.Secret()})
		}
		sum := b.sum(c.body)
		b.Moved([]string{"third", old.Secret()})
		if c.own != nil {
			c.own.Request = b.sum("body").Own()
			store.known[b.own.names("acme", "k")[0]] = *c.own
		}
		if c.there != nil {
			c.there.Request = old.sum("body").Own()
			store.known[old.own.names("acme", "k")[0].Moved()] = *c.there
		}
		claim, outcome, err := b.Begin(t.Context(), "acme", "k", sum)
		if outcome != c.want || err != nil || claim != nil && (claim.Accepted(0) != c.first || claim.Accepted(1) != c.next || claim.Request != sum.Own()) {
			t.Errorf("%s: %v, %+v, %v", c.name, outcome, claim, err)
		}
		claim.Drop()
		whole := c.own != nil && c.own.Whole || c.there != nil && c.there.Whole
		if answered, err := b.Answered("acme", "k"); answered != whole || err != nil {
			t.Errorf("%s: answered: %v, %v", c.name, answered, err)
		}
		if _, taken, _ := b.Taken("acme", "k"); taken != (c.own != nil) {
			t.Errorf("%s: taken here: %v", c.name, taken)
		}
		if _, outcome, _ := b.Begin(t.Context(), "other", "k", b.sum("body")); outcome != Fresh {
			t.Errorf("%s: another tenant: %v", c.name, outcome)
		}
		if len(b.underWay) > 1 { // the other tenant's
			t.Errorf("%s: a claim is left", c.name)
		}
	}
}

func TestParseKey(t *testing.T) {
	for field, want := range map[string]string{
		`"8e03978e-40d5-43e8-bc93-6894a57f9324"`: "8e03978e-40d5-43e8-bc93-6894a57f9324",
		`8e03978e-40d5-43e8-bc93-6894a57f9324`:   "8e03978e-40d5-43e8-bc93-6894a57f9324",
		" welcome-user/123456789\t":              "welcome-user/123456789",
		`"with space"`:                           "with space",
		`"a \"quote\" and a \\"`:                 `a "quote" and a \`,
		`back\slash`:                             `back\slash`,
		"order/77 of shop":                       "order/77 of shop",
		strings.Repeat("x", 255):                 strings.Repeat("x", 255),
		`"` + strings.Repeat(`\\`, 255) + `"`:    strings.Repeat(`\`, 255),
	} {
		if got, err := ParseKey(field); got != want || err != nil {
			t.Errorf("%s: %q, %v", field, got, err)
		}
	}
	for _, field := range []string{
		"", " ", `""`, strings.Repeat("x", 256), `"` + strings.Repeat("x", 256) + `"`, `"open`, `"`, `"a" b`, `"a";p=1`, `"a", "b"`,
		`"\a"`, `"a\`, "\"a\tb\"", "\"\x7f\"", "\"\xc3\xa9\"", "a, b", "caf\u00e9", "a\r\nb", "a\x00", `a"b`,
	} {
		if got, err := ParseKey(field); err == nil {
			t.Errorf("%q is taken as %q", field, got)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add(`"a \" b"`)
	f.Add("bare")
	f.Fuzz(func(t *testing.T, field string) {
		key, err := ParseKey(field)
		if err != nil {
			return
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := ParseKey(quoted); again != key || err != nil {
			t.Fatalf("%q is %q, and as a string %q, %v", field, key, again, err)
		}
	})
}

func TestUntil(t *testing.T) {
	now := time.Unix(1000, 0)
	if KeptUntil(now, time.Time{}) != now.Add(24*time.Hour) || KeptUntil(now, now.Add(time.Hour)) != now.Add(25*time.Hour) || KeptUntil(now, now.Add(-time.Hour)) != now.Add(24*time.Hour) {
		t.Error("another time")
	}
}

// BenchmarkRepeatBegin is what a key costs before the queue.
func BenchmarkRepeatBegin(b *testing.B) {
	book, _ := testBook()
	sum := book.sum("body")
	b.ReportAllocs()
	for b.Loop() {
		c, _, _ := book.Begin(b.Context(), "acme", "8e03978e-40d5-43e8-bc93-6894a57f9324", sum)
		c.Drop()
	}
}
