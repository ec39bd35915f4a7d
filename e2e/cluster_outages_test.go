package e2e

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
)

// TestAClusterKnowsOutages has one of three relays fail to reach a host. The others hear of it and open no connection
// to it; as soon as one has reached it again, they do.
func TestAClusterKnowsOutages(t *testing.T) {
	parallel(t)
	const address = "127.31.9.1"
	relays, _, _, port := bigExample(t, address, "")
	a, b := relays[0], relays[1]
	send := func(r *relay) {
		t.Helper()
		r.submit(t, 1, func(int) (string, []string, string) { return hello("", "joe@big.example") })
	}
	attempts := regexp.MustCompile(`(?m)^mta_delivery_connect(?:s|_failures)_total ([1-9]\d*)$`)
	tried := func(r *relay) bool {
		t.Helper()
		where := regexp.MustCompile(`answering monitoring" address=(\S+)`).FindStringSubmatch(readFile(t, r.log))
		if where == nil {
			t.Fatal("the relay doesn't say where its metrics are")
		}
		return attempts.MatchString(runClient(t, "", "curl", "-s", "http://"+where[1]+"/metrics"))
	}
	hosts := func(r *relay, want string) func() error {
		return func() error {
			out, err := r.try("hosts", "list", "mx.big.example")
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("mta hosts list prints %s; want %q", out, want)
			}
			return err
		}
	}

	a.mta(t, "pause", "domain", "other.example")
	for _, r := range relays { // which hear what is new
		eventually(t, patience, func() error {
			if out := r.mta(t, "pause"); !strings.Contains(out, "domain other.example") {
				return fmt.Errorf("mta pause prints %s", out)
			}
			return nil
		})
	}
	send(a)
	eventually(t, patience, func() error {
		if !tried(a) {
			return errors.New("the first relay has not tried")
		}
		return nil
	})
	failed := time.Now()
	for _, r := range relays[1:] {
		eventually(t, patience, hosts(r, "another relay of the cluster: connection refused"))
	}
	t.Logf("the others know of it after %v", time.Since(failed))
	for _, r := range relays[1:] {
		send(r)
		eventually(t, patience, func() error {
			if out := r.mta(t, "queue", "list"); !strings.Contains(out, "another relay of the cluster") {
				return fmt.Errorf("mta queue list prints %s; want that its mail waits", out)
			}
			return nil
		})
		if tried(r) {
			t.Error("a relay has tried a host that another one found dead")
		}
	}

	record := sink.NewRecorder(sink.Contents, 0)
	mailHost(t, net.JoinHostPort(address, port), sink.Config{Recorder: record})
	if tried(b) {
		t.Error("a relay has tried a host before another one has reached it")
	}
	began := time.Now()
	a.mta(t, "hosts", "forget", "mx.big.example")
	send(a)
	for n, r := range relays[1:] {
		eventually(t, patience, func() error { // what is known does not shut the host any more
			if out := r.mta(t, "hosts", "list", "mx.big.example"); strings.Contains(out, "another relay") {
				return fmt.Errorf("mta hosts list prints %s", out)
			}
			return nil
		})
		send(r)
		if err := allCome("messages", n+2, func() int { return int(record.Tally().Unique) }); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > 30*time.Second { // the others' wait is a minute
		t.Errorf("the last relay has reached the host after %v", took)
	}
}
