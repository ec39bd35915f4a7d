package api

import (
	"net/netip"

	"example.org/mta/internal/reply"
)

// ReplyOf returns a reply in the API's words; nil when there was none.
func ReplyOf(r reply.Reply) *Reply {
	if r == (reply.Reply{}) {
		return nil
	}
	return &Reply{Code: r.Code, Enhanced: r.Enhanced.String(), Text: r.Text, Command: r.Command, Local: r.Local}
}

// AddressOf returns an address as text; "" when there is none.
func AddressOf(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
