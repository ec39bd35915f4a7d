package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/mta/operator/api"
)

// supervisor is systemd, or who else listens on NOTIFY_SOCKET (sd_notify(3)).
type supervisor struct{ socket string }

// notify reports how the relay is. Nobody listening is as good as somebody.
func (s supervisor) notify(state string) {
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

const (
	// extension is how much time the service manager is asked for at a time, and extendEvery how often.
	extension   = time.Minute
	extendEvery = 10 * time.Second
	// statusEvery is how often the status line changes.
	statusEvery = 5 * time.Second
)

// busy asks the service manager to be patient, until done is called: a start reads the whole queue, and a stop takes
// as long as the configuration allows.
func (s supervisor) busy(doing string) (done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	began := time.Now()
	go s.repeat(ctx, extendEvery, func() string {
		return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=%s, for %s", extension.Microseconds(), doing, time.Since(began).Round(time.Second))
	})
	return cancel
}

// report keeps the status line up to date, until ctx ends.
func (s supervisor) report(ctx context.Context, status func() api.Status) {
	s.repeat(ctx, statusEvery, func() string { return "STATUS=" + statusLine(status()) })
}

// repeat notifies the service manager at once, and again in every interval, until ctx ends.
func (s supervisor) repeat(ctx context.Context, every time.Duration, state func() string) {
	if s.socket == "" {
		return
	}
	again := time.NewTicker(every)
	defer again.Stop()
	for ctx.Err() == nil {
		s.notify(state())
		select {
		case <-ctx.Done():
		case <-again.C:
		}
	}
}

// statusLine sums up the relay for 'systemctl status'.
func statusLine(s api.Status) string {
	line := fmt.Sprintf("%s: %d queued, %.0f accepted/s, %.0f delivered/s", s.State, s.Queue.Queued, s.Rates.Accepted, s.Rates.Delivered)
	if s.Reason != "" {
		line += "; " + s.Reason
	}
	if n := len(s.Alarms); n > 0 {
		line += "; " + plural(n, "alarm")
	}
	return strings.ReplaceAll(line, "\n", " ")
}
