package resolver

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"example.org/mta/lab/sink"
)

// signed has a name for each case: all but plain.test are answered with AD.
func signed() *sink.Zone {
	z := sink.MustZone(`
		mx.test. 60 IN A 127.0.0.1
		_25._tcp.mx.test. 60 IN TLSA 3 1 1 0b9fa5a59eed715c26c1020c711b4f6ec42d58b0015e14337a39dad301c5afc3
		_25._tcp.mx.test. 60 IN TLSA 2 0 200 beef
		_25._tcp.other.test. 60 IN CNAME _25._tcp.mx.test.
		alias.test. 60 IN CNAME plain.test.
		plain.test. 60 IN A 127.0.0.1`)
	for _, n := range []string{"mx.test", "_25._tcp.mx.test", "_25._tcp.other.test", "alias.test", "nothing.test"} {
		z.Fault(n, sink.DNSFault{Secure: true, NoChase: true})
	}
	return z
}

func TestTLSA(t *testing.T) {
	r, _ := start(t, signed(), nil)
	for _, name := range []string{"_25._tcp.mx.test", "_25._TCP.mx.test.", "_25._tcp.other.test"} {
		a, err := r.TLSA(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.TLSA) != 2 || !a.Secure || a.Name != "_25._tcp.mx.test" {
			t.Fatalf("%s: %+v, want two secure records", name, a)
		}
		for _, rec := range a.TLSA {
			if want := (TLSA{2, 0, 200, []byte{0xbe, 0xef}}); rec.Usage == 2 && !reflect.DeepEqual(rec, want) {
				t.Errorf("%s: %v, want %v", name, rec, want)
			}
			if rec.Usage == 3 && (rec.Selector != 1 || rec.Matching != 1 || len(rec.Data) != 32 || !bytes.HasPrefix(rec.Data, []byte{0x0b, 0x9f})) {
				t.Errorf("%s: %v", name, rec)
			}
		}
	}
}

// An alias is secure for itself, whatever its target is.
func TestAliasItself(t *testing.T) {
	r, _ := start(t, signed(), nil)
	if a, err := r.CNAME(t.Context(), "alias.test"); err != nil || !slices.Equal(a.Names, []string{"plain.test"}) || !a.Secure {
		t.Errorf("%+v, %v; want plain.test, secure", a, err)
	}
	if a, err := r.A(t.Context(), "alias.test"); err != nil || a.Name != "plain.test" || a.Secure {
		t.Errorf("%+v, %v; want the address of plain.test, insecure", a, err)
	}
	if got := show(r.CNAME(t.Context(), "mx.test")); got != "NODATA: no such record" {
		t.Errorf("no alias: %s", got)
	}
}

// AD is worth as much as the way to the server that sets it.
// With one server that is not trusted nothing is believed: an attacker would silence the others.
func TestAuthenticatedDataIsBelievedFromTrustedServersOnly(t *testing.T) {
	for _, tc := range []struct {
		servers, trusted string
		want             bool
	}{
		{"127.0.0.1:53", "", true},
		{"[::1]:53", "", true},
		{"192.0.2.53:53", "", false},
		{"192.0.2.53:53", "192.0.2.0/24", true},
		{"[::ffff:192.0.2.53]:53", "192.0.2.53/32", true},
		{"[2001:db8::53]:53", "192.0.2.0/24", false},
		{"127.0.0.1:53 192.0.2.53:53", "", false},
		{"127.0.0.1:53 192.0.2.53:53", "192.0.2.53/32", true},
	} {
		t.Run(tc.servers+" "+tc.trusted, func(t *testing.T) {
			s := sink.NewDNS(signed())
			addr, err := s.Listen("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			cfg := Config{
				Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, addr.String())
				},
			}
			for _, s := range strings.Fields(tc.servers) {
				cfg.Servers = append(cfg.Servers, netip.MustParseAddrPort(s))
			}
			if tc.trusted != "" {
				cfg.Trusted = []netip.Prefix{netip.MustParsePrefix(tc.trusted)}
			}
			r := New(cfg)
			if r.Trusted() != tc.want {
				t.Errorf("trusted: %v, want %v", r.Trusted(), tc.want)
			}
			a, err := r.A(t.Context(), "mx.test")
			if err != nil || a.Secure != tc.want {
				t.Errorf("an address: secure %v, %v; want %v", a.Secure, err, tc.want)
			}
			_, err = r.TLSA(t.Context(), "nothing.test")
			if e, ok := err.(*Error); !ok || e.Kind != NXDomain || e.Secure != tc.want {
				t.Errorf("no such name: %+v, want secure %v", err, tc.want)
			}
		})
	}
}

func TestAbsenceWithoutADIsInsecure(t *testing.T) {
	r, _ := start(t, signed(), nil)
	_, err := r.TLSA(t.Context(), "_25._tcp.plain.test")
	if e, ok := err.(*Error); !ok || e.Kind != NXDomain || e.Secure {
		t.Errorf("%+v, want an insecure NXDOMAIN", err)
	}
}
