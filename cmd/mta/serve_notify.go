package main

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// supervisor is systemd, or who else listens on NOTIFY_SOCKET (sd_notify(3)).
type supervisor struct{ socket string }

// tell says how the relay is. Nobody listening is as good as somebody.
func (s supervisor) tell(state string) {
	if s.socket == "" {
		return
	}
	// A name that begins with @ is an abstract one; package net knows that as well.
	if conn, err := net.Dial("unixgram", s.socket); err == nil {
		_, _ = conn.Write([]byte(state))
		conn.Close()
	}
}

// reloading is what Type=notify-reload wants to hear: it tells one reload from another by the
// time on the monotonic clock.
func reloading() string {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return "RELOADING=1"
	}
	return fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000)
}
