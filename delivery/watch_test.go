package delivery

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestWatch(t *testing.T) {
	var text strings.Builder
	addresses := map[string]netip.Addr{
		"here": netip.MustParseAddr("192.0.2.1"), "gone": netip.MustParseAddr("192.0.2.2"),
		"six": netip.MustParseAddr("2001:db8::1"), "busy": netip.MustParseAddr("192.0.2.3"),
	}
	problem := map[string]error{"192.0.2.2": syscall.EADDRNOTAVAIL, "2001:db8::1": syscall.EAFNOSUPPORT, "192.0.2.3": syscall.EMFILE}
	w := NewAddressWatch(func() map[string]netip.Addr { return addresses }, func(a netip.Addr) error { return problem[a.String()] },
		slog.New(slog.NewTextHandler(&text, nil)))
	for _, x := range []struct {
		change func()
		left   []string
		log    []string
	}{
		{func() {}, []string{"gone", "six"}, []string{"WARN gone", "WARN six"}},
		{w.Check, []string{"gone", "six"}, nil}, // logged once
		{func() { delete(problem, "192.0.2.2"); w.Check() }, []string{"six"}, []string{"INFO gone"}},
		{func() { problem["192.0.2.1"] = syscall.EADDRNOTAVAIL; w.Check() }, []string{"here", "six"}, []string{"WARN here"}},
	} {
		x.change()
		var logged []string
		for line := range strings.Lines(text.String()) {
			_, level, _ := strings.Cut(line, "level=")
			_, name, _ := strings.Cut(line, "source=")
			logged = append(logged, strings.Fields(level)[0]+" "+strings.Fields(name)[0])
		}
		text.Reset()
		if !slices.Equal(w.Names(), x.left) || !slices.Equal(logged, x.log) || !w.Missing("six") || w.Missing("busy") {
			t.Errorf("left out are %v, want %v; logged is %q, want %q", w.Names(), x.left, logged, x.log)
		}
	}
}

func TestTheMachineSaysWhichAddressesItHas(t *testing.T) {
	for address, missing := range map[string]bool{"127.0.0.1": false, "127.1.2.3": false, "192.0.2.77": true} {
		if MachineLacks(netip.MustParseAddr(address)) != missing {
			t.Errorf("%s: want missing %v", address, missing)
		}
	}
}
