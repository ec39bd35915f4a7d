package intake

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestLinesAreStableAndBounded(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	noTime := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	l := NewIntruders(slog.New(slog.NewTextHandler(&out, noTime)), func() time.Time { return now })
	refused := l.Listener("smtp")
	attacker := netip.MustParseAddr("192.0.2.1")

	refused(attacker, IntrusionRelay)
	refused(attacker, IntrusionLogin) // within the second
	now = now.Add(lineEvery)
	refused(attacker, IntrusionLogin)
	refused(netip.MustParseAddr("2001:db8::1"), IntrusionProtocol)
	want := `level=WARN msg="refused client" address=192.0.2.1 reason=relay listener=smtp
level=WARN msg="refused client" address=192.0.2.1 reason=login listener=smtp
level=WARN msg="refused client" address=2001:db8::1 reason=protocol listener=smtp
`
	if out.String() != want {
		t.Errorf("got:\n%swant:\n%s", out.String(), want)
	}

	out.Reset()
	many := func() {
		a := netip.MustParseAddr("10.0.0.0")
		for range 3 * maxIntruders {
			a = a.Next()
			refused(a, IntrusionConnections)
		}
	}
	now = now.Add(time.Hour)
	many()
	if n := strings.Count(out.String(), "\n"); n != maxIntruders || len(l.last) != maxIntruders {
		t.Errorf("%d lines and %d clients in a second, want %d", n, len(l.last), maxIntruders)
	}
	now = now.Add(lineEvery)
	refused(attacker, IntrusionRelay)
	if !strings.HasSuffix(out.String(), "address=192.0.2.1 reason=relay listener=smtp\n") {
		t.Error("a second later there is no room for another client")
	}
}
