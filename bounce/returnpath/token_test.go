package returnpath

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
)

const week = 7 * 24 * time.Hour

var (
	noon  = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	today = noon.Truncate(24 * time.Hour)
	some  = Token{Node: NodeOf("mta1.example.com"), Message: 0x0193_5432_1fed_cba9, Recipient: 3, Day: today}
)

func keys(t testing.TB, octets ...byte) *Keys {
	t.Helper()
	var secrets [][]byte
	for _, o := range octets {
		secrets = append(secrets, bytes.Repeat([]byte{o}, minSecret))
	}
	k, err := New(week, secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A token comes back as it went out, however its letters were changed and however often it comes.
func TestTokens(t *testing.T) {
	k := keys(t, 1)
	for _, want := range []Token{
		some,
		{Recipient: NoRecipient, Day: time.Unix(0, 0).UTC()},
		{Node: 1<<24 - 1, Message: 1<<64 - 1, Recipient: maxRecipient, Day: time.Date(2149, 6, 6, 0, 0, 0, 0, time.UTC)},
	} {
		token := k.Make(Bounce, want)
		if len(string(Bounce)+token) > 48 || len(token) != Length || strings.ToLower(token) != token {
			t.Errorf("the token is %q", token)
		}
		want.Key = k.Number()
		for _, spelled := range []string{token, strings.ToUpper(token), strings.ToUpper(token[:20]) + token[20:], token} {
			if got, err := k.Read(Bounce, spelled, want.Day); err != nil || got != want {
				t.Errorf("%s: %+v, %v; want %+v", spelled, got, err, want)
			}
		}
	}
	if got, err := k.Read(Bounce, k.Make(Bounce, Token{Recipient: maxRecipient + 1, Day: today}), noon); err != nil || got.Recipient != NoRecipient {
		t.Errorf("a recipient that does not fit: %+v, %v", got, err)
	}
	if noon := (Token{Day: noon}); k.Make(Bounce, noon) != k.Make(Bounce, Token{Day: today}) {
		t.Error("the hour is part of the token")
	}
}

// No bit of a token, and no character, can be changed, left out or added.
func TestForgedTokens(t *testing.T) {
	k := keys(t, 1)
	token := k.Make(Bounce, some)
	raw, err := decode(token)
	if err != nil {
		t.Fatal(err)
	}
	forged := func(bad, how string) {
		if got, err := k.Read(Bounce, bad, noon); !errors.Is(err, ErrForged) || got != (Token{}) {
			t.Errorf("%s: %q is read: %+v, %v", how, bad, got, err)
		}
	}
	for bit := range len(raw) * 8 {
		bad := raw
		bad[bit/8] ^= 1 << (bit % 8)
		forged(token[:1]+encoding.EncodeToString(bad[:]), "a bit flipped")
	}
	for i := range token {
		for c := range 256 {
			if changed := token[:i] + string([]byte{byte(c)}) + token[i+1:]; !strings.EqualFold(changed, token) {
				forged(changed, "a character changed")
			}
		}
		forged(token[:i], "truncated")
		forged(token[:i]+token[i+1:], "a character left out")
		forged(token[:i]+"\n"+token[i:], "a character added")
		forged(token[:i]+"\r"+token[i+1:], "a line end within")
	}
	for _, bad := range []string{"", "b-" + token, token + "0", " " + token[1:], strings.Repeat("0", 1<<20), keys(t, 2).Make(Bounce, some)} {
		forged(bad, "not a token of ours")
	}
	number := raw
	number[0] = keys(t, 2).Number()
	forged(token[:1]+encoding.EncodeToString(number[:]), "another key's number")
	if _, err := keys(t, 1, 2).Read(Bounce, token[:1]+encoding.EncodeToString(number[:]), noon); !errors.Is(err, ErrForged) {
		t.Errorf("another key's number, which is in force: %v", err)
	}
}

// A token is good for the whole of its last day, and known to be ours afterwards.
func TestExpiry(t *testing.T) {
	k := keys(t, 1)
	token := k.Make(Bounce, some)
	for at, want := range map[time.Time]error{
		today.Add(-48 * time.Hour):            nil, // the clock was set back
		today.Add(week + 24*time.Hour - 1):    nil,
		today.Add(week + 24*time.Hour):        ErrExpired,
		today.Add(100 * 365 * 24 * time.Hour): ErrExpired,
	} {
		if got, err := k.Read(Bounce, token, at); !errors.Is(err, want) || got.Message != some.Message {
			t.Errorf("on %v: %+v, %v; want %v", at, got, err, want)
		}
	}
	forever, err := New(0, bytes.Repeat([]byte{1}, minSecret))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := forever.Read(Bounce, token, today.Add(100*365*24*time.Hour)); err != nil {
		t.Errorf("valid for ever: %v", err)
	}
}

// While a secret is replaced, tokens of both are good; then only those of the new one. Another node that has
// the secret reads the token, and sees whose it is.
func TestRotation(t *testing.T) {
	old, both, fresh := keys(t, 1), keys(t, 2, 1), keys(t, 2)
	if got, err := both.Read(Bounce, old.Make(Bounce, some), noon); err != nil || got.Key != old.Number() {
		t.Errorf("the token of the old key: %+v, %v", got, err)
	}
	if both.Make(Bounce, some) != fresh.Make(Bounce, some) {
		t.Error("tokens are not made by the first key")
	}
	if _, err := fresh.Read(Bounce, old.Make(Bounce, some), noon); !errors.Is(err, ErrForged) {
		t.Errorf("the old key is gone, and its token is read: %v", err)
	}
	if got, err := keys(t, 1).Read(Bounce, old.Make(Bounce, some), noon); err != nil || got.Node != NodeOf("mta1.example.com") || got.Node == NodeOf("mta2.example.com") {
		t.Errorf("at another node: %+v, %v", got, err)
	}
}

func TestSecretsThatAreRefused(t *testing.T) {
	good := bytes.Repeat([]byte{1}, minSecret)
	for want, secrets := range map[string][][]byte{
		"there is no secret":                 nil,
		"secret 1 has 31 octets":             {good[1:]},
		"secret 2 is the same as one before": {good, good},
	} {
		if _, err := New(week, secrets...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// Whoever gets a token for reports can't unsubscribe others with it, nor the other way round.
func TestPurposes(t *testing.T) {
	k := keys(t, 1)
	for p, other := range map[Purpose]Purpose{Bounce: Unsubscribe, Unsubscribe: Bounce} {
		token := k.Make(p, some)
		if got, err := k.Read(p, token, noon); err != nil || got.Message != some.Message {
			t.Errorf("%s: %+v, %v", p, got, err)
		}
		if _, err := k.Read(other, token, noon); !errors.Is(err, ErrForged) {
			t.Errorf("a token for %s is read as one for %s: %v", p, other, err)
		}
	}
	for local, want := range map[string]string{"b-abc": "b- abc", "B-ABC": "b- ABC", "u-x": "u- x", "U-": "u- ", "b-": "b- ", "b": "-", "": "-", "bounce": "-"} {
		if p, token, ok := Cut(local); ok != (want != "-") || ok && string(p)+" "+token != want {
			t.Errorf("%q: %s, %q, %v", local, p, token, ok)
		}
	}
}

func FuzzRead(f *testing.F) {
	k := keys(f, 1, 2)
	f.Add(k.Make(Bounce, some))
	f.Add(strings.ToUpper(k.Make(Bounce, Token{Recipient: NoRecipient, Day: today})))
	f.Add(keys(f, 2).Make(Bounce, some))
	f.Add(strings.Repeat("0", Length))
	f.Fuzz(func(t *testing.T, token string) {
		got, err := k.Read(Bounce, token, noon)
		if err != nil && !errors.Is(err, ErrExpired) {
			if !errors.Is(err, ErrForged) || got != (Token{}) {
				t.Errorf("%q: %+v, %v", token, got, err)
			}
			return
		}
		if !strings.EqualFold(token, k.Make(Bounce, got)) && !strings.EqualFold(token, keys(t, 2).Make(Bounce, got)) {
			t.Errorf("%q is read as %+v, of which the token is another", token, got)
		}
	})
}

func FuzzMake(f *testing.F) {
	k := keys(f, 1)
	f.Add(uint32(7), uint64(1)<<60, 2, int64(20_000))
	f.Fuzz(func(t *testing.T, node uint32, id uint64, recipient int, day int64) {
		want := Token{Key: k.Number(), Node: Node(node & (1<<24 - 1)), Message: envelope.ID(id), Recipient: max(NoRecipient, recipient&0xffff-1), Day: time.Unix(day&0xffff*24*60*60, 0).UTC()}
		if got, err := k.Read(Bounce, strings.ToUpper(k.Make(Bounce, want)), want.Day); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	})
}

// BenchmarkMake is what a token costs a transaction.
func BenchmarkMake(b *testing.B) {
	k := keys(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		k.Make(Bounce, some)
	}
}

// BenchmarkForged is what a forged token costs at RCPT, in the worst case: one that looks right.
func BenchmarkForged(b *testing.B) {
	k := keys(b, 1, 2)
	token := []byte(k.Make(Bounce, some))
	token[20] ^= 1
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Read(Bounce, string(token), noon); err == nil {
			b.Fatal("it is read")
		}
	}
}

// Tokens of other relays are read, also where their keys have the number of this relay's, and no longer than they are
// its others.
func TestOthers(t *testing.T) {
	own := keys(t, 1)
	secret := func(n int) []byte { return []byte(strings.Repeat("0", 30) + string([]byte{byte(n >> 8), byte(n)})) }
	same := 0 // a secret with the number of the key
	for ; ; same++ {
		k, err := newKey(secret(same))
		if err != nil {
			t.Fatal(err)
		}
		if k.number == own.Number() {
			break
		}
	}
	other, err := New(week, secret(same))
	if err != nil {
		t.Fatal(err)
	}
	others := new(Others)
	own.And(others)
	for _, k := range []*Keys{other, keys(t, 2)} {
		token := k.Make(Bounce, some)
		if _, err := own.Read(Bounce, token, noon); !errors.Is(err, ErrForged) {
			t.Errorf("a foreign token: %v", err)
		}
		if err := others.Set([][]byte{bytes.Repeat([]byte{2}, minSecret), secret(same)}); err != nil {
			t.Fatal(err)
		}
		if got, err := own.Read(Bounce, token, noon); err != nil || got.Message != some.Message {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := own.Read(Unsubscribe, token, noon); !errors.Is(err, ErrForged) {
			t.Errorf("of another purpose: %v", err)
		}
		if _, err := own.Read(Bounce, token, today.Add(week+24*time.Hour)); !errors.Is(err, ErrExpired) {
			t.Errorf("an old one: %v", err)
		}
		if err := others.Set(nil); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := own.Read(Bounce, own.Make(Bounce, some), noon); err != nil || got.Key != own.Number() {
		t.Errorf("its own: %+v, %v", got, err)
	}
}
