package router

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"example.org/mta/internal/route"
)

// at is a smarthost, given as host:port.
func at(hostport string) Smarthost {
	host, port, err := net.SplitHostPort(hostport)
	n, err2 := strconv.ParseUint(port, 10, 16)
	if err != nil || err2 != nil {
		panic(hostport)
	}
	return Smarthost{Host: host, Port: uint16(n)}
}

// hosts are smarthosts with nothing special about them.
func hosts(hostports ...string) []Smarthost {
	var out []Smarthost
	for _, hp := range hostports {
		out = append(out, at(hp))
	}
	return out
}

// with gives a smarthost a user, and perhaps TLS from the first octet.
func with(h Smarthost, implicit bool, auth *route.Auth) Smarthost {
	h.Implicit, h.Auth = implicit, auth
	return h
}

func TestCheckSmarthosts(t *testing.T) {
	u := &route.Auth{Username: "u", Password: "p"}
	for _, tc := range []struct {
		hosts []Smarthost
		want  string
	}{
		{nil, "names no host"},
		{hosts("a:25", "b:26"), ""},
		{[]Smarthost{{Host: "a"}}, "no port"},
		{[]Smarthost{at("a:25"), with(at("b:25"), true, nil)}, "same TLS"},
		{[]Smarthost{with(at("a:25"), false, u), with(at("b:25"), false, &route.Auth{Username: "u", Password: "p"})}, ""},
		{[]Smarthost{with(at("a:25"), false, u), with(at("b:25"), false, &route.Auth{Username: "u", Password: "q"})}, "same user"},
		{[]Smarthost{with(at("a:25"), false, nil), with(at("b:25"), false, u)}, "same user"},
		{[]Smarthost{with(at("a:465"), true, u)}, ""},
	} {
		err := CheckSmarthosts(tc.hosts)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: got %v, want %q", tc.hosts, err, tc.want)
		}
	}
}
