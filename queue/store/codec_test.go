package store

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

var someReply = reply.Reply{Code: 450, Enhanced: [3]uint16{4, 7, 1}, Text: "greylisted"}

// recordKey is the key with a number, as random as sums are.
func recordKey(n int) (k envelope.RequestKey) {
	binary.LittleEndian.PutUint64(k[:], uint64(n)*0x9e3779b97f4a7c15+1)
	k[8] = byte(n)
	return k
}

var fuzzMessage = &envelope.Message{
	Sender: "a@example.com", Recipients: []envelope.Recipient{{Address: "b@example.net", Notify: envelope.NotifyDelay, ORcpt: "rfc822;b@example.net"}},
	Body: envelope.Body8BitMIME, UTF8: true, RequireTLS: true, TLSOptional: true, EnvID: "env", Tenant: "t", User: "ann", Campaign: "c", Marks: []string{"x-mta-engaged: yes", "precedence: "}, Tier: 3, HeloName: "helo", Session: "s", Protocol: "ESMTPS",
	Received: time.Unix(1e9, 5).UTC(), Release: time.Unix(2e9, 0).UTC(), Spread: time.Minute, Expires: time.Unix(3e9, 0).UTC(),
	Tags: []string{"a", "b"}, Meta: `{"order":"17"}`, Headers: `{"Subject":"x"}`, Pool: "dedicated", APIKey: "shop", TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
}

// FuzzCodec gives the decoders octets of any kind: they must not panic nor take more memory than
// the octets justify, and what they accept must come out the same when it goes in again.
func FuzzCodec(f *testing.F) {
	f.Add(uint8(0), AppendEnvelope(nil, CodecVersion, fuzzMessage))
	f.Add(uint8(1), AppendStates(nil, CodecVersion, 9, []RecipientState{{Rcpt: 1, Key: "k", Replied: true, Last: Attempt{Reply: someReply, Via: "source"}}, {Rcpt: 2, Key: "k", Replied: true, Last: Attempt{Reply: someReply, Via: "source"}}}))
	f.Add(uint8(2), AppendDeferral(nil, CodecVersion, &Deferral{Due: 5, Key: "k", Last: Attempt{Reply: someReply, Via: "source"}, Rcpts: []uint16{1, 7}, Attempts: []uint16{1, 2}}))
	f.Add(uint8(3), AppendChange(nil, CodecVersion, &Change{Due: 5, Marks: MarkHeld, Rcpts: []uint16{1, 7}}))
	f.Add(uint8(4), AppendSettled(nil, CodecVersion, 2, []uint16{0, 9}))
	f.Add(uint8(5), AppendBurial(nil, CodecVersion, &Burial{Segment: 3, Stretches: []Stretch{{16, 64}, {128, 256}}}))
	f.Add(uint8(6), AppendOpening(nil, CodecVersion, Opening{Ends: []SegmentEnd{{1, 2}}, LastID: 7, Created: time.Unix(1e9, 0)}))
	p := Prelude{Rcpts: 1, EnvLen: 3, BodyLen: 2}
	head := make([]byte, PreludeSize)
	p.Put(head)
	f.Add(uint8(7), append(head, "envbo"...))
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		again, ok := recode(kind%8, b)
		if !ok {
			return
		}
		if third, ok := recode(kind%8, again); !ok || string(third) != string(again) {
			t.Fatalf("kind %d: %x becomes %x, then %x %v", kind%8, b, again, third, ok)
		}
	})
}

// recode decodes and encodes again; it reports false when b can't be decoded.
func recode(kind uint8, b []byte) ([]byte, bool) {
	switch kind {
	case 0:
		m, err := DecodeEnvelope(b)
		if err != nil {
			return nil, false
		}
		return AppendEnvelope(nil, CodecVersion, m), true
	case 1:
		at, s, err := DecodeStates(b)
		return AppendStates(nil, CodecVersion, at, s), err == nil
	case 2:
		d, err := DecodeDeferral(b)
		return AppendDeferral(nil, CodecVersion, &d), err == nil
	case 3:
		c, err := decodeChange(b)
		return AppendChange(nil, CodecVersion, &c), err == nil
	case 4:
		var rcpts []uint16
		o, err := decodeSettled(b, func(r uint16) { rcpts = append(rcpts, r) })
		return AppendSettled(nil, CodecVersion, o, rcpts), err == nil
	case 5:
		g, err := decodeBurial(b)
		return AppendBurial(nil, CodecVersion, &g), err == nil
	case 6:
		o, err := DecodeOpening(b)
		return AppendOpening(nil, CodecVersion, o), err == nil
	}
	c, err := ParseContent(b)
	if err != nil {
		return nil, false
	}
	head := make([]byte, PreludeSize)
	c.Put(head)
	return append(append(append(head, c.Env...), c.States...), c.Body...), true
}

func TestEnvelopeRoundTrip(t *testing.T) {
	many := *fuzzMessage
	many.Recipients = nil
	for i := range 300 {
		many.Recipients = append(many.Recipients, envelope.Recipient{Address: envelope.Address(fmt.Sprintf("r%d@example.org", i))})
	}
	for _, m := range []*envelope.Message{fuzzMessage, &many} {
		got, err := DecodeEnvelope(AppendEnvelope(nil, CodecVersion, m))
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", m) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, got, m)
		}
	}
}

// TestKeyedRecord is a record written and read again, and cut off at each octet.
func TestKeyedRecord(t *testing.T) {
	for _, k := range []Keyed{
		{Key: recordKey(1), Request: recordKey(2), At: 5, Until: 1 << 31, Own: []Placed{{0, 1 << 60}}, Answer: []byte{}},
		{Key: recordKey(1), Whole: true, Earlier: []Placed{{1, 9}, {7, 8}, {1 << 30, 1<<64 - 1}}, Own: []Placed{{2, 1}}, Answer: []byte("answer")},
		{Key: recordKey(3), Whole: true, Answer: []byte("nothing was taken")},
	} {
		b := AppendKeyed(nil, CodecVersion, &k)
		if got, err := DecodeKeyed(b); err != nil || !reflect.DeepEqual(got, k) {
			t.Errorf("%+v\nwant %+v, %v", got, k, err)
		}
		for n := range b {
			if _, err := DecodeKeyed(b[:n]); err == nil {
				t.Errorf("%d of %d octets are a record", n, len(b))
			}
		}
		if _, err := DecodeKeyed(append(b, 0)); err == nil {
			t.Error("an octet too many is no error")
		}
		want := KeyHead{Key: k.Key, At: k.At, Until: k.Until}
		if len(k.Earlier) == 0 && len(k.Own) > 0 {
			want.needs = uint64(k.Own[0].ID)
		}
		if h, err := DecodeKeyHead(b); h != want || err != nil {
			t.Errorf("the head is %+v, want %+v: %v", h, want, err)
		}
	}
}
