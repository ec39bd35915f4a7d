package exported

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

var at = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// sample is a message with all fields that a queue keeps.
func sample(n int) (*envelope.Message, []Recipient) {
	m := &envelope.Message{
		ID: envelope.FirstID(at) + envelope.ID(n), Sender: "a+b@acme.example", Body: envelope.Body8BitMIME, UTF8: true, Ret: envelope.RetHeaders, EnvID: "e\xff<1>",
		RequireTLS: true, TLSOptional: true, Tenant: "acme", User: "ann", Campaign: "spring & <autumn>", Tier: 2, Marks: []string{"x"},
		Release: at.Add(time.Hour), Spread: time.Minute, Expires: at.Add(72 * time.Hour), Tags: []string{"t1", "t2"}, Meta: `{"a":"<b>&"}`, Headers: `{"h":1}`, Pool: "p", APIKey: "k",
		TraceID: strings.Repeat("0", 32), Received: at.Add(1234567), Peer: netip.MustParseAddrPort("[2001:db8::1]:25"), HeloName: "h", Session: "s", Protocol: "ESMTPSA",
		Recipients: []envelope.Recipient{{Address: "gone@x.example"}, {Address: `"q@q"@x.example`, Notify: envelope.NotifyDelay | envelope.NotifySuccess, ORcpt: "rfc822;o@x.example"}, {Address: "用户@例え.jp", Notify: envelope.NotifyNever}},
	}
	last := AttemptOf(reply.Reply{Code: 451, Enhanced: reply.Enhanced{4, 7, 1}, Text: "later\nor \xff never", Command: "RCPT", Local: true}, "s1 \xfe", envelope.Detour{Pool: "backup", Route: "smart.example"})
	return m, []Recipient{{Index: 1, Attempts: 3, Next: at.Add(time.Hour), Warned: true, Site: "mx.x.example", Last: last}, {Index: 2, Held: true}}
}

type message struct {
	*Message
	content string
}

// archive writes messages with a content each.
func archive(t *testing.T, contents ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b, Summary{Node: "n1", Hostname: "old.example", At: at})
	for i, c := range contents {
		m, recipients := sample(i)
		opened := 0
		if _, err := w.Add(New(m, recipients), func() (io.ReadCloser, error) { opened++; return io.NopCloser(strings.NewReader(c)), nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(Summary{InDelivery: 5}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(from io.Reader) (all []message, s Summary, err error) {
	r := NewReader(from, "f.tar")
	for {
		m, content, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, r.Summary(), nil
		}
		if err != nil {
			return all, r.Summary(), err
		}
		text, err := io.ReadAll(content)
		if err != nil {
			return all, r.Summary(), err
		}
		all = append(all, message{m, string(text)})
	}
}

// TestEveryFieldComesBack also holds the fields of the queue's types against those of the form, so that a new one is not
// forgotten.
func TestEveryFieldComesBack(t *testing.T) {
	large := strings.Repeat("0123456789abcdef\r\n", atOnce/18+2)
	contents := []string{"Subject: x\r\n\r\nhello\r\n", "", large}
	all, s, err := read(bytes.NewReader(archive(t, contents...)))
	if err != nil || len(all) != 3 || s.Messages != 3 || s.Recipients != 6 || s.Unheld != 3 || s.InDelivery != 5 || s.Hostname != "old.example" {
		t.Fatalf("%d messages, %+v, %v", len(all), s, err)
	}
	for i, got := range all {
		m, recipients := sample(i)
		if v := reflect.ValueOf(*m); i == 0 {
			for f := range v.Type().Fields() {
				if f.Name != "Size" && f.Name != "Detour" && v.FieldByIndex(f.Index).IsZero() {
					t.Errorf("the sample has no %s", f.Name)
				}
			}
		}
		if got.content != contents[i] || got.Node != "n1" || got.ID != m.ID.String() || got.Total != 3 || !got.Accepted.Equal(m.Received) {
			t.Errorf("message %d: %+v", i, got.Message)
		}
		back, err := got.Envelope()
		if err != nil {
			t.Fatal(err)
		}
		m.ID, m.Received, m.Recipients = 0, time.Time{}, m.Recipients[1:]
		if !reflect.DeepEqual(back, m) {
			t.Errorf("message %d is\n%+v\nwant\n%+v", i, back, m)
		}
		New(&envelope.Message{Recipients: append([]envelope.Recipient{{}}, m.Recipients...)}, recipients)
		if !reflect.DeepEqual(got.Recipients, recipients) {
			t.Errorf("message %d has\n%+v\nwant\n%+v", i, got.Recipients, recipients)
		}
		r, via, d := got.Recipients[0].Last.Parts()
		if again := AttemptOf(r, via, d); !reflect.DeepEqual(again, recipients[0].Last) || r.Enhanced != (reply.Enhanced{4, 7, 1}) {
			t.Errorf("%+v", again)
		}
	}
}

// TestCutArchives: an archive that ends early, wherever that is, is refused, and what came before is whole.
func TestCutArchives(t *testing.T) {
	whole := archive(t, "Subject: x\r\n\r\nhello\r\n", "Subject: y\r\n\r\nhello\r\n")
	last := bytes.LastIndex(whole, []byte(`"unreadable"`))
	for n := 0; n < last; n += 37 {
		all, _, err := read(bytes.NewReader(whole[:n]))
		if bad := (*Error)(nil); !errors.As(err, &bad) || bad.Remedy == "" || !strings.HasPrefix(bad.Place, "f.tar") {
			t.Fatalf("cut after %d octets of %d: %d messages, %v", n, len(whole), len(all), err)
		}
		for _, m := range all {
			if len(m.content) != 21 {
				t.Fatalf("cut after %d octets: content %q", n, m.content)
			}
		}
	}
}

type file struct {
	name, content string
	h             tar.Header
}

func tarOf(t *testing.T, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		f.h.Name = f.name
		if f.h.Size == 0 && f.h.Linkname == "" {
			f.h.Size = int64(len(f.content))
		}
		if err := w.WriteHeader(&f.h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.content); err != nil {
			t.Fatal(err)
		}
	}
	w.Flush()
	return b.Bytes()
}

// TestAnyBitOfAnArchive: whatever bit changes, an archive gives what was written, or is refused.
func TestAnyBitOfAnArchive(t *testing.T) {
	good := archive(t, "Subject: x\r\n\r\nhello\r\n")
	want, counts, err := read(bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 1 << (i % 8)
		got, s, err := read(bytes.NewReader(b))
		if len(got) > 0 && !reflect.DeepEqual(got, want) || err == nil && (len(got) != 1 || s != counts) {
			t.Fatalf("octet %d (%q): %+v, %+v, %v", i, good[max(0, i-20):min(len(good), i+20)], got, s, err)
		}
	}
}

// TestHostileArchives: each is refused with the place, and with little memory.
func TestHostileArchives(t *testing.T) {
	good := archive(t, "Subject: x\r\n\r\nhello\r\n")
	m, _ := sample(0)
	id := m.ID.String()
	envelopeOf := func(size int64, sum string) string {
		return fmt.Sprintf(`{"version":1,"node":"n","id":%q,"size":%d,"sha256":%q}`, id, size, sum)
	}
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"no tar":           {bytes.Repeat([]byte("no tar at all "), 100), "not a tar archive"},
		"a path":           {tarOf(t, file{name: "../" + id + ".json", content: "{}"}), `../` + id + ".json: not a file of an export"},
		"an absolute path": {tarOf(t, file{name: "/" + id + ".json", content: "{}"}), "not a file of an export"},
		"a control":        {tarOf(t, file{name: "a\x1b[2J.json", content: "{}"}), "a?[2J.json: not a file of an export"},
		"a link":           {tarOf(t, file{name: id + ".json", h: tar.Header{Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}}), "not a file of an export"},
		"a folder":         {tarOf(t, file{name: id + ".json/"}), "not a file of an export"},
		"upper case":       {tarOf(t, file{name: strings.ToUpper(id) + ".json", content: "{}"}), "not a file of an export"},
		"no envelope":      {tarOf(t, file{name: id + ".eml", content: "x"}), id + ".eml: its .json is missing"},
		"no content":       {tarOf(t, file{name: id + ".json", content: envelopeOf(1, "")}, file{name: SummaryName, content: `{}`}), id + `.json: it is followed by "export.json" instead of ` + id + ".eml"},
		"another size":     {tarOf(t, file{name: id + ".json", content: envelopeOf(2, "")}, file{name: id + ".eml", content: "x"}), "it has 1 octets, but its .json gives its size as 2"},
		"another sum":      {tarOf(t, file{name: id + ".json", content: envelopeOf(1, "00")}, file{name: id + ".eml", content: "x"}), id + ".eml: its content has changed"},
		"another id":       {tarOf(t, file{name: id + ".json", content: `{"version":1,"id":"x"}`}), `it has the id "x"`},
		"a later version":  {tarOf(t, file{name: id + ".json", content: `{"version":2}`}), "version 2, and this program reads 1"},
		"no version":       {tarOf(t, file{name: id + ".json", content: `{}`}), "version 0"},
		"no JSON":          {tarOf(t, file{name: id + ".json", content: "{\x00"}), "reading JSON"},
		"nested JSON":      {tarOf(t, file{name: id + ".json", content: strings.Repeat("[", 1<<20)}), "reading JSON"},
		"a field":          {tarOf(t, file{name: id + ".json", content: `{"version":1,"extra":1}`}), `unknown field "extra"`},
		"two objects":      {tarOf(t, file{name: id + ".json", content: `{"version":1}{}`}), "reading JSON"},
		"wrong counts":     {tarOf(t, file{name: SummaryName, content: `{"version":1,"messages":1}`}), "it counts 1 messages"},
		"more behind":      {append(tarOf(t, file{name: SummaryName, content: `{"version":1}`}), good...), "continues after it"},
		"a changed octet":  {bytes.Replace(good, []byte("hello"), []byte("hallo"), 1), "its content has changed"},
		"a huge envelope":  {tarOf2(t, id+".json", MaxJSON+1), "the limit is"},
	} {
		all, _, err := read(bytes.NewReader(c.text))
		bad := (*Error)(nil)
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) || bad.Remedy == "" || !strings.HasPrefix(err.Error(), "f.tar: ") || len(all) > 0 {
			t.Errorf("%s: %d messages, %v; want %q", name, len(all), err, c.want)
		}
	}
}

// tarOf2 has only the header of a file.
func tarOf2(t *testing.T, name string, size int64) []byte {
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: name, Size: size}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestWrongFields: what an archive says of a message is checked before anything is made of it.
func TestWrongFields(t *testing.T) {
	for want, change := range map[string]func(*Message){
		"sender: ":                           func(m *Message) { m.Sender = "a b@c.example\r\nRCPT" },
		"recipients: there are 0":            func(m *Message) { m.Recipients = nil },
		"recipients[1].index: 1 follows 1":   func(m *Message) { m.Recipients[1].Index = 1 },
		"recipients[0].address: ":            func(m *Message) { m.Recipients[0].Address = "x" },
		"recipients[0].notify: ":             func(m *Message) { m.Recipients[0].Notify = "OFTEN" },
		"recipients[0].attempts: ":           func(m *Message) { m.Recipients[0].Attempts = -1 },
		"recipients[0].next: ":               func(m *Message) { m.Recipients[0].Next = time.Unix(1<<40, 0) },
		"recipients[0].site: ":               func(m *Message) { m.Recipients[0].Site = "warmup:p/x" },
		"recipients[0].last.enhanced: ":      func(m *Message) { m.Recipients[0].Last.Enhanced = "4.x.1" },
		"recipients[0].last.via: it has a c": func(m *Message) { m.Recipients[0].Last.Via = "a\nb" },
		"tier: ":                             func(m *Message) { m.Tier = 6 },
		"body: ":                             func(m *Message) { m.Body = "9BIT" },
		"ret: ":                              func(m *Message) { m.RET = "ALL" },
		"spread: ":                           func(m *Message) { m.Spread = 1 << 40 },
		"accepted: ":                         func(m *Message) { m.Accepted = time.Time{} },
		"helo: it has a control character":   func(m *Message) { m.HeloName = "a\x00" },
		"campaign: it has 20000 octets":      func(m *Message) { m.Campaign = Text(strings.Repeat("a", 20000)) },
		"meta: it must be a JSON object":     func(m *Message) { m.Meta = []byte(`[]`) },
		"peer: ":                             func(m *Message) { m.Peer = "x" },
		"node: ":                             func(m *Message) { m.Node = "" },
	} {
		e, recipients := sample(0)
		m := New(e, recipients)
		m.Node = "n"
		if _, err := m.Envelope(); err != nil {
			t.Fatal(err)
		}
		change(m)
		if _, err := m.Envelope(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestContents that no relay queues are found, however they are cut into pieces.
func TestContents(t *testing.T) {
	for content, want := range map[string]string{
		"a\r\n": "", "": "", "a\nb\r\n": "stands alone", "a\rb\r\n": "stands alone", "a\r\n\x00\r\n": "NUL", "a": "no end", "a\r": "stands alone", "\n": "stands alone",
	} {
		var c checker
		for i := range len(content) {
			c.pass([]byte{content[i]})
		}
		if got := c.wrong(); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%q: %q, want %q", content, got, want)
		}
	}
}

// FuzzReader: whatever an archive has, it ends in an error or in messages that are whole.
func FuzzReader(f *testing.F) {
	var t testing.T
	f.Add(archive(&t, "Subject: x\r\n\r\nhello\r\n"))
	f.Add(archive(&t))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, s, err := read(bytes.NewReader(text))
		if err == nil && s.Messages != len(all) {
			t.Errorf("%d messages, and %+v", len(all), s)
		}
		for _, m := range all {
			if m.Size != int64(len(m.content)) {
				t.Errorf("%d octets of %d", len(m.content), m.Size)
			}
			_, _ = m.Envelope()
		}
	})
}

// TestKeys: keys come before the messages, in any number of files, as they were written; a wrong one is refused.
func TestKeys(t *testing.T) {
	good := func() Key {
		name := envelope.NewRequestKey([4]byte{1}, [10]byte{2})
		return Key{Key: name[:], Secret: []byte("s\xff"), Request: make([]byte, 16), IDs: map[int]string{0: envelope.FirstID(at).String()}, Whole: true, Answer: []byte{0xff}, Until: at}
	}
	write := func(files ...[]Key) []byte {
		t.Helper()
		var b bytes.Buffer
		w := NewWriter(&b, Summary{Node: "n1", At: at})
		for _, some := range files {
			if err := w.Keys(some); err != nil {
				t.Fatal(err)
			}
		}
		m, recipients := sample(0)
		if _, err := w.Add(New(m, recipients), func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x\r\n")), nil }); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(Summary{}); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	r := NewReader(bytes.NewReader(write([]Key{good(), good()}, []Key{good()})), "f.tar")
	var came []Key
	r.Keys = func(some []Key) error { came = append(came, some...); return nil }
	if m, _, err := r.Next(); err != nil || m == nil || !reflect.DeepEqual(came, []Key{good(), good(), good()}) {
		t.Errorf("%+v, %v", came, err)
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) || r.Summary().Keys != 3 {
		t.Errorf("%+v, %v", r.Summary(), err)
	}
	r = NewReader(bytes.NewReader(write([]Key{good()})), "f.tar")
	full := errors.New("full")
	r.Keys = func([]Key) error { return full }
	if _, _, err := r.Next(); !errors.Is(err, full) {
		t.Errorf("the error of a relay that can't take keys: %v", err)
	}
	for field, spoil := range map[string]func(*Key){
		"key: ": func(k *Key) { k.Key = k.Key[1:] }, "key: it does": func(k *Key) { k.Key[15]++ }, "request": func(k *Key) { k.Request = nil },
		"secret": func(k *Key) { k.Secret = nil }, "until": func(k *Key) { k.Until = time.Time{} }, "ids[0]": func(k *Key) { k.IDs[0] = "x" },
		"ids[-1]": func(k *Key) { k.IDs[-1] = k.IDs[0] },
	} {
		bad := good()
		spoil(&bad)
		if _, _, err := read(bytes.NewReader(write([]Key{bad}))); err == nil || !strings.Contains(err.Error(), "keys-1.json: keys[0]."+field) {
			t.Errorf("%s: %v", field, err)
		}
		if text, err := bad.Encode(); err != nil {
			t.Error(err)
		} else if _, _, err := DecodeKey(text); err == nil {
			t.Errorf("%s: decoded", field)
		}
	}
	for n := range 5 {
		whole := write([]Key{good()})
		if _, _, err := read(bytes.NewReader(whole[:n*256+100])); err == nil {
			t.Errorf("cut after %d octets: read", n*256+100)
		}
	}
}
