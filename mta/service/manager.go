// Package service is the relay as a service of the system: the service manager, the log, the user and the memory of the
// process.
package service

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/mta/internal/legible"
	"example.org/mta/operator/api"
)

// Manager is systemd, or another that listens on NOTIFY_SOCKET (sd_notify(3)).
type Manager struct{ Socket string }

// Notify reports how the relay is. Nobody listening is as good as somebody.
func (m Manager) Notify(state string) {
	if m.Socket == "" {
		return
	}
	// A name that begins with @ is an abstract one; package net knows that as well.
	if conn, err := net.Dial("unixgram", m.Socket); err == nil {
		_, _ = conn.Write([]byte(state))
		conn.Close()
	}
}

// Reloading is the message that Type=notify-reload expects. The time on the monotonic clock distinguishes reloads.
func Reloading() string {
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

// Busy asks the service manager to be patient, until done is called: a start reads the whole queue, and a stop takes
// as long as the configuration allows.
func (m Manager) Busy(doing string) (done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	began := time.Now()
	go m.repeat(ctx, extendEvery, func() string {
		return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=%s, for %s", extension.Microseconds(), doing,
			time.Since(began).Round(time.Second))
	})
	return cancel
}

// Report keeps the status line up to date, until ctx ends.
func (m Manager) Report(ctx context.Context, status func() api.Status) {
	m.repeat(ctx, statusEvery, func() string { return "STATUS=" + statusLine(status()) })
}

// repeat notifies the service manager at once, and again in every interval, until ctx ends.
func (m Manager) repeat(ctx context.Context, every time.Duration, state func() string) {
	if m.Socket == "" {
		return
	}
	again := time.NewTicker(every)
	defer again.Stop()
	for ctx.Err() == nil {
		m.Notify(state())
		select {
		case <-ctx.Done():
		case <-again.C:
		}
	}
}

// statusLine sums up the relay for 'systemctl status'.
func statusLine(s api.Status) string {
	line := fmt.Sprintf("%s: %d queued, %.0f accepted/s, %.0f delivered/s", s.State, s.Queue.Queued, s.Rates.Accepted,
		s.Rates.Delivered)
	if s.Reason != "" {
		line += "; " + s.Reason
	}
	if n := len(s.Alarms); n > 0 {
		line += "; " + legible.Count(n, "alarm")
	}
	if s.Pending != "" {
		line += "; " + s.Pending
	}
	return strings.ReplaceAll(line, "\n", " ")
}
