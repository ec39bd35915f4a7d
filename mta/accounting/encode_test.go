package accounting

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/linelog"
	"example.org/mta/internal/reply"
)

var accepted = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// delivery is a record with every field that deliveries have.
func delivery() Record {
	return Record{
		Type: Delivery, Message: Message{ID: envelope.FirstID(accepted) + 7, Sender: "news@acme.example", Size: 2048, Created: accepted, Tenant: "acme", Campaign: "march"}, Recipient: "joe@gmail.com",
		Queue: "acme@gmail.com", Attempt: Attempt{Site: "gmail-smtp-in.l.google.com", Provider: "google", Attempts: 1,
			EgressPool: "acme", EgressSource: "shared-1", DeliveryProtocol: "ESMTPS",
			TLS:   TLS{Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", Trust: Verified, By: "PKIX", Certificate: "gmail-smtp-in.l.google.com"},
			Local: netip.MustParseAddrPort("192.0.2.10:40312"), Queued: 12040 * time.Microsecond,
			Phases: Phases{
				Wait: 310 * time.Microsecond, Connect: 98123 * time.Microsecond, Handshake: 301 * time.Millisecond,
				Turn: 12 * time.Microsecond, Send: 102 * time.Millisecond, Reply: 720 * time.Millisecond,
			},
		},
		Response: reply.Reply{Code: 250, Enhanced: reply.Enhanced{2, 0, 0}, Text: "OK  1772366400 d2e1a72fcca58 - gsmtp", Command: "content"},
		Peer:     Peer{Name: "gmail-smtp-in.l.google.com", Addr: netip.MustParseAddr("142.251.2.27")},
		Time:     accepted.Add(1234567 * time.Microsecond), Session: "0g3k7v6a9c0de",
		ReceptionProtocol: "ESMTPS",
	}
}

func TestGoldenRecords(t *testing.T) {
	full := delivery()
	http := delivery()
	http.ReceptionProtocol, http.Key, http.Tags, http.Meta = "HTTPS", "shop", []string{"news", "sh\"oes"}, "{\"order\": [1,\n2],\"e\":\"\u2028\"}"
	reception := Record{
		Type: Reception, Message: Message{ID: full.ID, Sender: "", Size: 12, Created: accepted, User: "ann"}, Recipient: "jürgen@bücher.example", Queue: "xn--bcher-kva.example",
		Response: reply.Reply{Code: 250, Text: "queued", Local: true}, Peer: Peer{Name: "app1", Addr: netip.MustParseAddr("2001:db8::1")},
		Time: accepted, Release: accepted.Add(time.Hour), Session: "s1", ReceptionProtocol: "UTF8SMTP",
	}
	rejection := Record{
		Type: Rejection, Message: Message{Sender: "a@b.example"}, Recipient: `"a\"b"@c.example`, Time: accepted,
		Response: reply.Reply{Code: 550, Enhanced: reply.Enhanced{5, 6, 11}, Text: "line one\nline \"two\"\x00\x7f\xff\u2028", Command: "content", Local: true},
	}
	lost := Record{Type: Lost, Count: 42, Time: accepted}
	var got []byte
	for _, r := range []Record{full, reception, rejection, lost, http} {
		got = appendRecord(got, &r, `"node1"`)
	}
	golden := filepath.Join("testdata", "records.jsonl")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("records are not as in %s (UPDATE_GOLDEN=1 writes it anew):\n%s", golden, got)
	}
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	want := delivery()
	want.Key, want.Tags, want.Meta = "shop", []string{"news", "sale"}, `{"order":17,"who":"Jürgen"}`
	want.TraceID, want.MovedFrom = "4bf92f3577b34da6a3ce929d0e0e4736", "node2/1kjmma2g00007"
	want.Response.Text = "two\nlines, \"quotes\", \\ and \t"
	got, err := Parse(appendRecord(nil, &want, `"n"`))
	if err != nil {
		t.Fatal(err)
	}
	want.EventID = "n-19700101T000000-000000000000"
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
}

// Records of earlier commits had the cipher beside the version, and the trust in its place.
func TestOlderRecordsOfTLSAreRead(t *testing.T) {
	for line, want := range map[string]TLS{
		`{"type":"Delivery","tls_protocol_version":"TLSv1.3 TLS_AES_128_GCM_SHA256","tls_cipher":"unverified"}`: {Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", Trust: Unverified},
		`{"type":"Delivery","tls_protocol_version":"TLSv1.2","tls_cipher":"TLS_RSA_WITH_AES_128_CBC_SHA"}`:      {Version: "TLSv1.2", Cipher: "TLS_RSA_WITH_AES_128_CBC_SHA"},
		`{"type":"Delivery"}`: {},
	} {
		r, err := Parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if r.TLS != want {
			t.Errorf("%s: %+v, want %+v", line, r.TLS, want)
		}
	}
}

func TestSecondsAreExactToTheMicrosecond(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", time.Microsecond: "0.000001", 1500 * time.Millisecond: "1.5", time.Hour: "3600",
		10*time.Second + 20*time.Microsecond: "10.00002", -time.Second: "0", 999 * time.Nanosecond: "0",
	} {
		if got := string(appendSeconds(nil, d)); got != want {
			t.Errorf("%v is written as %s, want %s", d, got, want)
		}
	}
}

// TestEveryFieldIsWritten fills each field of a Record and looks for what it changes: a field
// that was added and forgotten in the encoding, or in Parse, is found.
// TestPhasesOfNoTimeAreLeftOut: on a fast host a phase can take less than the microsecond that the log counts in.
func TestPhasesOfNoTimeAreLeftOut(t *testing.T) {
	for _, x := range []struct {
		phases Phases
		want   string // after queue_time
	}{
		{Phases{}, `"queue_time":0.01204,"timestamp"`},
		{Phases{Send: 999}, `"queue_time":0.01204,"timestamp"`},
		{Phases{Wait: -1, Send: 1000}, `"queue_time":0.01204,"attempt_time":{"send":0.000001},"timestamp"`},
		{Phases{Wait: 1, Turn: 12 * time.Microsecond, Send: 400, Reply: time.Second}, `"attempt_time":{"turn":0.000012,"reply":1},"timestamp"`},
	} {
		r := delivery()
		r.Phases = x.phases
		line := appendRecord(nil, &r, `"n"`)
		if !bytes.Contains(line, []byte(x.want)) || !json.Valid(line) {
			t.Errorf("%+v: the record is\n%swant %s in it", x.phases, line, x.want)
		}
	}
}

func TestEveryFieldIsWritten(t *testing.T) {
	whole := delivery()
	whole.Event, whole.Stage = "held", 3
	whole.Key, whole.Tags, whole.Meta = "shop", []string{"news"}, `{"order":17}`
	whole.TraceID, whole.MovedFrom = "4bf92f3577b34da6a3ce929d0e0e4736", "node2/1kjmma2g00007"
	whole.Class, whole.Headers, whole.Report, whole.MatchedBy = "SpamBlock", `{"Subject":"hello"}`, `{"feedback_type":"abuse"}`, ByToken
	whole.User, whole.Count, whole.Release = "ann", 9, accepted.Add(time.Hour)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Record]()) {
		if f.Anonymous || f.Name == "EventID" { // the Writer writes it
			continue
		}
		if reflect.ValueOf(whole).FieldByIndex(f.Index).IsZero() {
			t.Errorf("the test record has no %s", f.Name)
		}
		less := whole
		reflect.ValueOf(&less).Elem().FieldByIndex(f.Index).SetZero()
		if f.Name == "Count" { // of Lost records only
			less.Type, whole.Type = Lost, Lost
		}
		if f.Name == "Event" || f.Name == "Stage" {
			less.Type, whole.Type = Warmup, Warmup
		}
		a, b := appendRecord(nil, &whole, `"n"`), appendRecord(nil, &less, `"n"`)
		whole.Type = Delivery
		if bytes.Equal(a, b) {
			t.Errorf("%s is not in the log", f.Name)
		}
		pa, errA := Parse(a)
		pb, errB := Parse(b)
		if errA != nil || errB != nil || reflect.DeepEqual(pa, pb) {
			t.Errorf("%s is not read from the log (%v, %v)", f.Name, errA, errB)
		}
	}
}

func TestHostileTextStaysOnOneLine(t *testing.T) {
	r := delivery()
	r.Response.Text = "550 no\r\n{\"type\":\"Delivery\"}\n\x1b[2J"
	line := appendRecord(nil, &r, `"n"`)
	if bytes.Count(line, []byte("\n")) != 1 || bytes.ContainsAny(line, "\r\x1b") {
		t.Errorf("control characters reached the log: %q", line)
	}
}

// C1 controls and marks that turn the direction of text do their work on terminals as well.
func TestHostileTextIsEscaped(t *testing.T) {
	r := delivery()
	r.Response.Text = "no \u009b31m \u202egnp.exe \u2066 \u2028 grün 👍 \U000e0001"
	line := appendRecord(nil, &r, `"n"`)
	for c := range strings.SplitSeq("\u009b \u202e \u2066 \u2028 \U000e0001", " ") {
		if bytes.Contains(line, []byte(c)) {
			t.Errorf("%+q reached the log", c)
		}
	}
	if !bytes.Contains(line, []byte("grün 👍")) {
		t.Errorf("harmless text was escaped: %s", line)
	}
	if back, err := Parse(line); err != nil || back.Response.Text != r.Response.Text {
		t.Errorf("comes back as %+q, %v", back.Response.Text, err)
	}
}

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\n\r\t\x00\x7f", "jürgen", "\xff\xc0\xaf", "\u2028\U0001F600", strings.Repeat("a", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q := quote(nil, s)
		var back string
		if err := json.Unmarshal(q, &back); err != nil {
			t.Fatalf("%q is not JSON: %v", q, err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) && back != want {
			t.Fatalf("%q came back as %q", s, back)
		}
		for _, c := range q {
			if c < ' ' || c == 0x7f {
				t.Fatalf("%q has a control character", q)
			}
		}
	})
}

// appendRecord encodes r with an encoder that has encoded nothing before, and adds it as the first record of a log.
func appendRecord(b []byte, r *Record, node string) []byte {
	var e encoder
	line := e.encode(r, node)
	linelog.Stamp(Position{}, line)
	return append(b, line...)
}

// logged adds r as a log does whose file was begun when the mail was accepted.
func logged(b []byte, r *Record) []byte {
	line := appendRecord(nil, r, `"n"`)
	linelog.Stamp(Position{File: accepted.Unix(), Offset: int64(len(b))}, line)
	return append(b, line...)
}

// An encoder that has encoded other times before writes the same as a new one.
func TestEncoderAtOtherTimes(t *testing.T) {
	var e encoder
	for _, offset := range []time.Duration{0, 1500 * time.Microsecond, 999_999_999, time.Second, 0, -time.Nanosecond, -72 * time.Hour, 1e6 * time.Hour, 0} {
		r := delivery()
		r.Time, r.Created, r.Release = r.Time.Add(offset), r.Created.Add(2*offset), accepted.Add(3*offset)
		got, want := e.encode(&r, `"n"`), appendRecord(nil, &r, `"n"`)
		if linelog.Stamp(Position{}, got); !bytes.Equal(got, want) {
			t.Errorf("%v:\n got %s\nwant %s", offset, got, want)
		}
		exact := r.Time.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)
		if !strings.Contains(string(got), `"event_time":"`+exact+`"`) {
			t.Errorf("%v: no event_time %s in %s", offset, exact, got)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	r := delivery()
	b.Run("by hand", func(b *testing.B) {
		var e encoder
		b.ReportAllocs()
		for b.Loop() {
			e.encode(&r, `"node1"`)
		}
	})
}

// BenchmarkParse is what a record costs those who read it.
func BenchmarkParse(b *testing.B) {
	r := delivery()
	line := appendRecord(nil, &r, `"node1"`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(line); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAdd is what a record costs those who make it, the disk left aside: a loop like this
// outruns any.
func BenchmarkAdd(b *testing.B) {
	w, err := Open(Config{Dir: b.TempDir(), NodeID: "node1", Open: func(string, bool) (linelog.OutFile, error) { return &nowhere{}, nil }})
	if err != nil {
		b.Fatal(err)
	}
	r := delivery()
	b.ReportAllocs()
	for b.Loop() {
		w.Add(&r)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(w.Stats().Lost)/float64(b.N), "lost/op")
}

// nowhere is a file on a disk that is infinitely fast.
type nowhere struct{ linelog.OutFile }

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) Stat() (os.FileInfo, error)  { return nil, os.ErrInvalid }
func (nowhere) Sync() error                 { return nil }
func (nowhere) Close() error                { return nil }

func BenchmarkSearch(b *testing.B) {
	dir := b.TempDir()
	w, err := Open(Config{Dir: dir, NodeID: "node1"})
	if err != nil {
		b.Fatal(err)
	}
	r := delivery()
	for i := range 20_000 {
		r.ID = envelope.FirstID(accepted) + envelope.ID(i)
		w.Add(&r)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	for name, q := range map[string]Query{"id": {ID: r.ID.String()}, "recipient": {Recipient: "nobody@example.com"}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := Read(b.Context(), dir, q, func([]byte) error { return nil }, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(20_000*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
