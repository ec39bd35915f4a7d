package service

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"example.org/mta/operator/api"
)

// A start that reads a large queue asks the service manager for time.
func TestSupervisorIsAskedForTime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := Manager{socket}.Busy("opening the queue")
	defer done()
	buf := make([]byte, 1024)
	n, err := l.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(buf[:n]); got != "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=opening the queue, for 0s" {
		t.Errorf("the service manager is told %q", got)
	}
}

func TestStatusLine(t *testing.T) {
	s := api.Status{State: "refusing", Reason: "the disk\nis full", Queue: api.QueueStats{Queued: 7}, Rates: api.Rates{Accepted: 1.4, Delivered: 2.6}, Alarms: make([]api.Alarm, 1), Pending: "reload it"}
	if got, want := statusLine(s), "refusing: 7 queued, 1 accepted/s, 3 delivered/s; the disk is full; 1 alarm; reload it"; got != want || strings.Contains(got, "\n") {
		t.Errorf("%q, want %q", got, want)
	}
}
