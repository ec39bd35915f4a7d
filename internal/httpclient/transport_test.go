package httpclient

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

// A machine without IPv4 reaches a server that has many addresses of it, and the other way round.
func TestOneFamilyIsEnough(t *testing.T) {
	var all []netip.Addr
	for i := range byte(6) {
		all = append(all, netip.AddrFrom4([4]byte{192, 0, 2, i}))
	}
	all = append(all, netip.MustParseAddr("2001:db8::1"))
	tried, answered := 0, errors.New("answered")
	transport := New(Config{
		Addresses: func(context.Context, string) ([]netip.Addr, error) { return all, nil },
		Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			if tried++; address == "[2001:db8::1]:80" {
				return nil, answered
			}
			return nil, errors.New("no route")
		},
	})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://hook.example/", nil)
	if _, err := transport.RoundTrip(req); !errors.Is(err, answered) || tried != maxAddresses+1 {
		t.Errorf("%d addresses were tried, and the last error is %v", tried, err)
	}
}

// What one address fails for is known, whatever the next one does.
func TestErrorsOfAllAddresses(t *testing.T) {
	dial := Config{
		Addresses: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::1")}, nil
		},
		Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			if address == "[::1]:80" {
				return nil, syscall.ECONNREFUSED
			}
			return nil, syscall.EMFILE
		},
	}.Dialer()
	_, err := dial(t.Context(), "tcp", "filter.example:80")
	if !errors.Is(err, syscall.EMFILE) || !errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}
