package delivery

import (
	"testing"
	"time"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
)

// What the phases of an attempt took adds up to the time that it was in delivery, and only the first
// message of a connection pays for the opening.
func TestPhasesAddUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const latency = 20 * time.Millisecond
		cert, _, err := sink.SelfSigned("mx")
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, nil)
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: latency, TLS: cert})))
		for i := range 2 {
			begun := time.Now()
			w.send(r, 1)
			res := w.awaitResults(i+1, time.Minute)[i]
			took := time.Since(begun)
			x := res.Times
			if sum := x.Wait + x.Connect + x.Handshake + x.Turn + x.Send + x.Reply; sum != took {
				t.Errorf("message %d took %v, its phases %+v sum up to %v", i, took, x, sum)
			}
			if opened := x.Handshake >= 3*latency; opened != (i == 0) {
				t.Errorf("message %d: handshake %v", i, x.Handshake)
			}
			if x.Send+x.Reply < latency {
				t.Errorf("message %d: %v to send, %v for the reply", i, x.Send, x.Reply)
			}
			link := res.Link
			if link == nil {
				t.Fatalf("message %d: no link", i)
			}
			if got := link.Protocol(false); got != "ESMTPS" {
				t.Errorf("message %d went by %s", i, got)
			}
			if got := link.TLS; got.Version != "TLSv1.3" || got.Cipher != "TLS_AES_128_GCM_SHA256" || got.Certificate != "mx" || got.Verified != "" || got.Unverified == "" {
				t.Errorf("message %d: %+v", i, got)
			}
		}
	})
}

func TestProtocolNames(t *testing.T) {
	on := tlspolicy.Facts{Version: "TLSv1.3"}
	for want, l := range map[string]Link{
		"SMTP": {}, "ESMTP": {Extended: true}, "ESMTPS": {Extended: true, TLS: on}, "ESMTPSA": {Extended: true, TLS: on, Auth: true},
	} {
		if got := l.Protocol(false); got != want {
			t.Errorf("%+v is %s, want %s", l, got, want)
		}
	}
	if got := (&Link{Extended: true, TLS: on}).Protocol(true); got != "UTF8SMTPS" {
		t.Errorf("with SMTPUTF8 it is %s", got)
	}
}
