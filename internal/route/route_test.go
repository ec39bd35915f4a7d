package route

import (
	"net/netip"
	"testing"
)

func TestHostText(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1:25":      "mx.example[192.0.2.1]:25",
		"[2001:db8::1]:587": "mx.example[2001:db8::1]:587",
	} {
		if got := (Host{"mx.example", netip.MustParseAddrPort(addr)}).String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
