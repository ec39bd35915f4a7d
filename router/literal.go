package router

import (
	"errors"
	"net/netip"
	"strings"
)

// parseLiteral reads an address literal (RFC 5321, 4.1.3): [192.0.2.1] or [IPv6:2001:db8::1].
func parseLiteral(s string) (netip.Addr, error) {
	inner, ok := strings.CutPrefix(s, "[")
	if ok {
		inner, ok = strings.CutSuffix(inner, "]")
	}
	if !ok {
		return netip.Addr{}, errors.New("address literal needs brackets")
	}
	const tag = "ipv6:"
	six := len(inner) > len(tag) && strings.EqualFold(inner[:len(tag)], tag)
	if six {
		inner = inner[len(tag):]
	}
	a, err := netip.ParseAddr(inner)
	if err != nil || a.Zone() != "" || a.Is4() == six {
		return netip.Addr{}, errors.New("address literal is neither [192.0.2.1] nor [IPv6:2001:db8::1]")
	}
	return a.Unmap(), nil
}

// literalName is the one way to write the literal of an address.
func literalName(a netip.Addr) string {
	if a.Is4() {
		return "[" + a.String() + "]"
	}
	return "[ipv6:" + a.String() + "]"
}
