package dkim

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	oracle "github.com/emersion/go-msgauth/dkim"
)

var at = time.Unix(1_790_000_000, 0)

// testKeys are one of each kind, made once: RSA keys take time.
var testKeys = sync.OnceValue(func() []*Key {
	var keys []*Key
	for i, alg := range []Algorithm{Ed25519, RSA} {
		signer, _, err := Generate(alg, 2048)
		if err != nil {
			panic(err)
		}
		key, err := NewKey([]string{"acme.example", "esp.example"}[i], "s"+string(alg), signer)
		if err != nil {
			panic(err)
		}
		keys = append(keys, key)
	}
	return keys
})

// verify has go-msgauth look at a message that carries signatures of keys.
func verify(t testing.TB, signed []byte, keys []*Key) error {
	t.Helper()
	records := make(map[string]string)
	for _, k := range keys {
		records[k.Name()] = k.Record()
	}
	found, err := oracle.VerifyWithOptions(bytes.NewReader(signed), &oracle.VerifyOptions{
		LookupTXT: func(name string) ([]string, error) { return []string{records[name]}, nil },
	})
	if err != nil {
		return err
	}
	if len(found) != len(keys) {
		return fmt.Errorf("%d signatures, want %d", len(found), len(keys))
	}
	for i, v := range found {
		if v.Err != nil {
			return fmt.Errorf("signature %d of %s: %w", i, v.Domain, v.Err)
		}
		if v.Domain != keys[i].Domain {
			return fmt.Errorf("signature %d is of %s, want %s", i, v.Domain, keys[i].Domain)
		}
	}
	return nil
}

func sign(t testing.TB, content string, keys []*Key) []byte {
	t.Helper()
	m, err := Read(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	fields, err := m.Sign(keys, at)
	if err != nil {
		t.Fatal(err)
	}
	return append(fields, content...)
}

const letter = "Received: from a by b;\r\n\tFri, 1 Jan 2027 00:00:00 +0000\r\n" +
	"From: \"Joe  Q.\tPublic\" <joe@Acme.Example>\r\nTo: a@x.example,\r\n b@x.example\r\nSubject:   two  words \r\n" +
	"Date: Fri, 1 Jan 2027 00:00:00 +0000\r\nMessage-ID: <1@acme.example>\r\n" +
	"List-Unsubscribe: <https://acme.example/u>\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n" +
	"MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"

var bodies = []string{
	"", "\r\n", "\r\n\r\n\r\n", "a", "a\r\n", "a\r\n\r\n\r\n", " \r\n\t\r\n", "a \t b \r\n", "a  b\r\n \r\n\t c\r\n",
	"\r\n\r\na\r\n", "a\r\n\r\nb\r\n", ".\r\n..\r\n", "  a\r\n", "a \r\n \r\n  \r\nb", strings.Repeat("0123456789 abc  def\t\r\n\r\n", 5000),
}

func TestOthersVerifyWhatIsSigned(t *testing.T) {
	for _, body := range bodies {
		if err := verify(t, sign(t, letter+body, testKeys()), testKeys()); err != nil {
			t.Errorf("body %.40q: %v", body, err)
		}
	}
	if err := verify(t, sign(t, "FROM : joe@acme.example\r\n\r\n", testKeys()), testKeys()); err != nil {
		t.Errorf("a header alone: %v", err)
	}
}

// Wherever the pieces end, the hash is that of the whole.
func TestPiecesOfABody(t *testing.T) {
	for _, body := range bodies {
		whole, err := Read(strings.NewReader(letter + body))
		if err != nil {
			t.Fatal(err)
		}
		piecemeal, err := Read(iotest.OneByteReader(strings.NewReader(letter + body)))
		if err != nil {
			t.Fatal(err)
		}
		if whole.bodyHash != piecemeal.bodyHash {
			t.Errorf("body %.40q hashes differently when it comes octet by octet", body)
		}
	}
}

// What somebody adds, changes or takes away on the way breaks the signature.
func TestChangesBreakTheSignature(t *testing.T) {
	keys := testKeys()[:1]
	signed := string(sign(t, letter+"the body\r\n", keys))
	for what, changed := range map[string]string{
		"nothing":               signed,
		"a Received is added":   "Received: from c by d\r\n" + signed,
		"a second From":         "From: bad@evil.example\r\n" + signed,
		"a second Subject":      strings.Replace(signed, "Subject:", "Subject: bad\r\nSubject:", 1),
		"a Reply-To":            "Reply-To: bad@evil.example\r\n" + signed,
		"a Cc":                  "Cc: bad@evil.example\r\n" + signed,
		"another Content-Type":  "Content-Type: text/html\r\n" + signed,
		"another way out":       strings.Replace(signed, "acme.example/u", "evil.example/u", 1),
		"one-click taken away":  strings.Replace(signed, "List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n", "", 1),
		"the body is continued": signed + "and more\r\n",
	} {
		err := verify(t, []byte(changed), keys)
		if good := what == "nothing" || what == "a Received is added"; good != (err == nil) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if strings.Contains(signed, "l=") {
		t.Error("the signature limits how much of the body it covers")
	}
	for line := range strings.SplitSeq(signed, "\r\n") {
		if len(line) > 78 {
			t.Errorf("line of %d octets: %s", len(line), line)
		}
	}
}

func TestFrom(t *testing.T) {
	for header, want := range map[string]string{
		"From: joe@Acme.Example\r\n\r\n":                          "acme.example",
		"Subject: x\r\nfrom :\r\n Joe <joe@acme.example>\r\n\r\n": "acme.example",
		"From: a@one.example, b@two.example\r\n\r\n":              "one.example two.example",
		"From: a@one.example, b@One.example\r\n\r\n":              "one.example",
		"From: a@one.example, b@[192.0.2.1]\r\n\r\n":              "one.example [192.0.2.1]",
		"From: joe@bücher.example\r\n\r\n":                        "xn--bcher-kva.example",
		"From: \"a@b\" <\"x@y\"@acme.example>\r\n\r\n":            "acme.example",
		"From: Joe\r\n\r\n":                                       "",
		"From: Joe\r\n <joe@acme.example>\r\n\r\n":                "acme.example",
		"From: Acme [x]\r\n\t<joe@acme.example>\r\n\r\n":          "acme.example",
		"From: a@a.example\r\nFrom: b@b.example\r\n\r\n":          "",
		"Subject: x\r\n\r\nFrom: a@a.example\r\n":                 "",
	} {
		m, err := Read(strings.NewReader(header))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		domains, err := m.From()
		if err == nil {
			got = strings.Join(domains, " ")
		}
		if got != want || (want == "") != errors.Is(err, ErrMessage) {
			t.Errorf("%q: %q, %v, want %q", header, got, err, want)
		}
	}
}

func TestNoHeaderToSign(t *testing.T) {
	for _, content := range []string{"no field\r\n\r\n", " folded\r\n\r\n", ": x\r\n\r\n", "From: a@a.example\r\n" + strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 1100)} {
		if _, err := Read(strings.NewReader(content)); !errors.Is(err, ErrMessage) {
			t.Errorf("%.20q: %v", content, err)
		}
	}
	broken := io.MultiReader(strings.NewReader(letter+"half"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, err := Read(broken); !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrMessage) {
		t.Errorf("content that can't be read: %v", err)
	}
	m, err := Read(strings.NewReader("Subject: x\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Sign(testKeys(), at); !errors.Is(err, ErrMessage) {
		t.Errorf("without From: %v", err)
	}
}

// FuzzSign holds our canonical forms against go-msgauth's: it verifies whatever is signed.
func FuzzSign(f *testing.F) {
	for _, body := range bodies {
		f.Add("Subject:  a \t b\r\n c\r\n", body)
	}
	f.Add("X: \r\n\r\n", "y")
	f.Add("FROM : b@b.example\r\nList-Id:\r\n", " ")
	keys := testKeys()[:1]
	f.Fuzz(func(t *testing.T, header, body string) {
		content := "From: joe@acme.example\r\n" + whole(header) + "\r\n" + whole(body)
		m, err := Read(strings.NewReader(content))
		if err != nil {
			return
		}
		fields, err := m.Sign(keys, at)
		if err != nil {
			t.Fatalf("%q: %v", content, err)
		}
		if err := verify(t, append(fields, content...), keys); err != nil {
			t.Fatalf("%q: %v", content, err)
		}
	})
}

// whole makes each line end of s a CRLF, as all mail has it that this relay sends on; what is left
// of an unended line is ended.
func whole(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '\r' {
			return -1
		}
		return r
	}, s)
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return strings.ReplaceAll(s, "\n", "\r\n")
}

func BenchmarkSign(b *testing.B) {
	line := "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod.\r\n"
	for _, size := range []int{2 << 10, 50 << 10} {
		content := letter + strings.Repeat(line, (size-len(letter))/len(line))
		for _, keys := range [][]*Key{nil, testKeys()[:1], testKeys()[1:], testKeys()} {
			names := ""
			for _, k := range keys {
				names += string(k.alg) + "+"
			}
			if names == "" {
				names = "hashes only+"
			}
			b.Run(fmt.Sprintf("%s/%dKB", names[:len(names)-1], size>>10), func(b *testing.B) {
				b.ReportAllocs()
				in := strings.NewReader("")
				for b.Loop() {
					in.Reset(content)
					m, err := Read(in)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := m.Sign(keys, at); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

// BenchmarkSignature is what a signature alone takes: BenchmarkSign can't be faster than that.
func BenchmarkSignature(b *testing.B) {
	digest := make([]byte, sha256.Size)
	for _, k := range testKeys() {
		b.Run(string(k.alg), func(b *testing.B) {
			for b.Loop() {
				if _, err := k.sign(digest); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "signatures/s")
		})
	}
}

// BenchmarkOracle is what go-msgauth's signer takes for the same.
func BenchmarkOracle(b *testing.B) {
	line := "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod.\r\n"
	for _, size := range []int{2 << 10, 50 << 10} {
		content := letter + strings.Repeat(line, (size-len(letter))/len(line))
		for _, k := range testKeys() {
			b.Run(fmt.Sprintf("%s/%dKB", k.alg, size>>10), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					err := oracle.Sign(io.Discard, strings.NewReader(content), &oracle.SignOptions{
						Domain: k.Domain, Selector: k.Selector, Signer: k.signer,
						HeaderCanonicalization: oracle.CanonicalizationRelaxed, BodyCanonicalization: oracle.CanonicalizationRelaxed,
					})
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}
