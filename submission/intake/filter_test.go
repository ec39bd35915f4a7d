package intake

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

type filterFunc func(*Filtered) Verdict

func (f filterFunc) For(tenant string) bool                        { return tenant == "acme" }
func (f filterFunc) Filter(_ context.Context, m *Filtered) Verdict { return f(m) }

// holding is a draft that notes with which reason it is held.
func (d *draft) Hold(recipients int, due time.Time, why reply.Reply) {
	d.s.held = append(d.s.held, why.Text)
}

// A filter gets a message as it would be queued, without this relay's Received; its verdict and its changes count, and
// memory is given back.
func TestFilter(t *testing.T) {
	const fields = "Subject: x\r\nDate: d\r\nMessage-ID: <i>\r\n"
	local := reply.Local(450, reply.Enhanced{4, 7, 1}, "milter", "odd")
	for name, c := range map[string]struct {
		content        string
		filter         filterFunc
		header, body   string // that the filter gets
		refused, after string
		held           int
	}{
		"passes":  {fields + "\r\nhi", func(*Filtered) Verdict { return Verdict{} }, fields, "hi\r\n", "", fields + "\r\nhi\r\n", 0},
		"no body": {fields, func(*Filtered) Verdict { return Verdict{} }, fields, "", "", fields, 0},
		"changes": {fields + "\r\nhi\r\n", func(m *Filtered) Verdict {
			m.Header, m.Body, m.Changed = append(m.Header, "X: ü\r\n"...), []byte("ho\r\n"), true
			return Verdict{}
		}, fields, "hi\r\n", "", fields + "X: ü\r\n\r\nho\r\n", 0},
		"no date": {fields + "\r\nhi\r\n", func(m *Filtered) Verdict {
			m.Header, m.Changed = []byte("Subject: x\r\n"), true
			return Verdict{}
		}, fields, "hi\r\n", "", "Date: Sun, 09 Sep 2001 01:46:40 +0000\r\nMessage-ID: <01web.1@relay.example.com>\r\nSubject: x\r\n\r\nhi\r\n", 0},
		"refused": {fields + "\r\nhi\r\n", func(*Filtered) Verdict { return Verdict{Refused: FilterRefuses.Refusal("a")} }, fields, "hi\r\n", "550 5.7.1 message refused by filter a", "", 0},
		"held":    {fields + "\r\nhi\r\n", func(*Filtered) Verdict { return Verdict{Held: &local} }, fields, "hi\r\n", "", fields + "\r\nhi\r\n", 1},
		"discarded": {fields + "\r\nhi\r\n", func(*Filtered) Verdict { return Verdict{Held: &local, Discarded: true} }, fields, "hi\r\n",
			"", fields + "\r\nhi\r\n", 1},
		"unfit": {fields + "From: a\r\n\r\nhi\r\n", func(m *Filtered) Verdict {
			for after, want := range map[string]string{"From: b\r\n": "<nil>", "Subject: x\r\n": "it makes a message with 0 From fields",
				"From: a\r\nfrom: b\r\n":       "it makes a message with 2 From fields",
				"Unsignable: x\r\nFrom: b\r\n": "it makes a message that can't be signed: " + errDisk.Error()} {
				if got := fmt.Sprint(m.Unfit([]byte(after))); got != want {
					return Verdict{Held: &reply.Reply{Text: got}}
				}
			}
			return Verdict{}
		}, fields + "From: a\r\n", "hi\r\n", "", fields + "From: a\r\n\r\nhi\r\n", 0},
		"no memory": {fields + "\r\nhi\r\n", func(m *Filtered) Verdict {
			if !m.Take(1<<20) || m.Take(1<<20) {
				return Verdict{Refused: MemoryFull.Refusal()}
			}
			return Verdict{}
		}, fields, "hi\r\n", "452 4.3.1", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var got Filtered
			gone := 0
			memory := NewMemory(1 << 20)
			d, s := newDesk(Config{Memory: memory,
				Unsignable: func(_ string, header []byte) error {
					if strings.Contains(string(header), "Unsignable") {
						return errDisk
					}
					return nil
				},
				Filtering: Filtering{Discard: func(envelope.ID) { gone++ }, Filter: filterFunc(func(m *Filtered) Verdict {
					got = *m
					got.Header, got.Body = []byte(string(m.Header)), []byte(string(m.Body))
					return c.filter(m)
				})}})
			m := begin(t, d, webClient(), "b@example.net")
			m.Write([]byte(c.content))
			refused := m.End(t.Context())
			if refused == nil {
				_, refused = d.CommitAll(t.Context(), []*Message{m}, nil)
			}
			if string(got.Header) != c.header || string(got.Body) != c.body || got.ID != "01web.1" || got.Tenant != "acme" {
				t.Errorf("filtered: %q %q %+v", got.Header, got.Body, got)
			}
			if refused != nil && (c.refused == "" || !strings.HasPrefix(refused.String(), c.refused)) || refused == nil && c.refused != "" {
				t.Errorf("refused: %v", refused)
			}
			if c.after != "" {
				if _, rest, _ := strings.Cut(s.contents[0], "+0000\r\n"); rest != c.after || !strings.HasPrefix(s.contents[0], "Received: ") {
					t.Errorf("stored:\n%s", s.contents[0])
				}
				if is8bit := s.messages[0].Body == envelope.Body8BitMIME; is8bit != (name == "changes") {
					t.Errorf("8BITMIME: %v", is8bit)
				}
			}
			if len(s.held) != c.held || (gone == 1) != (name == "discarded") {
				t.Errorf("held %v, %d discarded", s.held, gone)
			}
			m.Drop()
			if !memory.Fits(1<<19, usual(d.ownerOf(webClient()))) || s.open != 0 {
				t.Error("memory or drafts are still held")
			}
		})
	}
}
