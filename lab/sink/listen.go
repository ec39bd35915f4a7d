package sink

import (
	"net"
	"strconv"
)

// ListenTogether opens one TCP port on every address, or none: hosts with addresses of their own are
// found at one port, as port 25 is that of all. port 0 is any that is free on all of them. The port is
// given back.
func ListenTogether(port int, addrs ...string) (listeners []net.Listener, found string, err error) {
	for range 10 { // a port that is free on one address may be taken on another
		if listeners, found, err = listenTogether(strconv.Itoa(port), addrs); err == nil || port != 0 {
			break
		}
	}
	return listeners, found, err
}

func listenTogether(port string, addrs []string) ([]net.Listener, string, error) {
	var open []net.Listener
	for _, addr := range addrs {
		l, err := net.Listen("tcp", net.JoinHostPort(addr, port))
		if err != nil {
			for _, l := range open {
				l.Close()
			}
			return nil, "", err
		}
		open = append(open, l)
		_, port, _ = net.SplitHostPort(l.Addr().String())
	}
	return open, port, nil
}
