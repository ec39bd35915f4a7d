package suppression

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

var someone = Subscription{Tenant: "acme", Address: "joe@example.com", Campaign: "spring", Sent: time.Date(2026, 11, 22, 16, 0, 0, 0, time.UTC)}

func links(t testing.TB, octet byte) *Links {
	t.Helper()
	l, err := NewLinks(bytes.Repeat([]byte{octet}, secretSize))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A token is read by the relay that made it, and by nobody else; it shows neither address nor tenant, and no
// octet of it can be changed.
func TestTokens(t *testing.T) {
	l := links(t, 1)
	for _, s := range []Subscription{someone, {Tenant: "a", Address: "ü@bücher.example"}, {Tenant: strings.Repeat("t", 255), Campaign: strings.Repeat("c", 128), Address: "joe@example.com"}} {
		s.Sent = s.Sent.UTC()
		if got, ok := l.Read(l.Token(&s)); !ok || got.Tenant != s.Tenant || got.Address != s.Address || got.Campaign != s.Campaign || !got.Sent.Equal(s.Sent) {
			t.Errorf("%+v became %+v, %v", s, got, ok)
		}
	}
	token := l.Token(&someone)
	sealed, err := linkEncoding.DecodeString(token)
	if err != nil || bytes.Contains(sealed, []byte("joe")) || bytes.Contains(sealed, []byte("acme")) || token != l.Token(&someone) || strings.Contains(token, "_") {
		t.Errorf("token %s, %v", token, err)
	}
	if url := l.URL("https://mail.acme.example/unsubscribe", &someone); url != "https://mail.acme.example/unsubscribe/"+token || len(url) > 200 {
		t.Errorf("the link is %s", url)
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, ok := l.Read(linkEncoding.EncodeToString(bad)); ok {
			t.Errorf("octet %d can be changed", i)
		}
	}
	for _, bad := range []string{"", "x", token[:len(token)-1], token + "AA", "%" + token, strings.Repeat("A", 100_000), links(t, 2).Token(&someone)} {
		if _, ok := l.Read(bad); ok {
			t.Errorf("%.40s... is read", bad)
		}
	}
}

func FuzzRead(f *testing.F) {
	l := links(f, 1)
	f.Add(l.Token(&someone))
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, token string) {
		if s, ok := l.Read(token); ok && l.Token(&s) != token {
			t.Errorf("%s is read as %+v, of which the token is another", token, s)
		}
	})
}

// BenchmarkToken is what a link costs a message.
func BenchmarkToken(b *testing.B) {
	l := links(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		l.Token(&someone)
	}
}

// Links of other relays are read while their secrets are accepted.
func TestLinksOfOthers(t *testing.T) {
	l, token := links(t, 1), links(t, 2).Token(&someone)
	for i, secrets := range [][][]byte{nil, {bytes.Repeat([]byte{3}, secretSize), bytes.Repeat([]byte{2}, secretSize)}, nil} {
		if err := l.Accept(secrets); err != nil {
			t.Fatal(err)
		}
		if s, ok := l.Read(token); ok != (i == 1) || ok && s.Address != someone.Address {
			t.Errorf("%d: %+v, %v", i, s, ok)
		}
		if _, ok := l.Read(l.Token(&someone)); !ok {
			t.Errorf("%d: its own is not read", i)
		}
	}
	if err := l.Accept([][]byte{nil}); err == nil {
		t.Error("a secret of no octets is accepted")
	}
}
