package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/lab/bench"
	"example.org/mta/lab/sink"
)

const (
	goodRate  = 20              // messages a second
	goodPause = 2 * time.Second // between rounds of what else is good
)

// TestFail2banFindsNobodyInGoodTraffic has clients that may relay send for the time of MTA_GOOD_TRAFFIC, some of it
// to addresses that don't exist, while others probe, log in, hang up and mistype in rounds: the filter of
// contrib/fail2ban finds nobody in the log, in either format.
func TestFail2banFindsNobodyInGoodTraffic(t *testing.T) {
	t.Parallel() // the parts take turns
	need(t, "fail2ban-regex")
	long := timeOf(t, "MTA_GOOD_TRAFFIC", 3*time.Second)
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			parallel(t)
			goodTraffic(t, format, long)
		})
	}
}

func goodTraffic(t *testing.T, format string, long time.Duration) {
	port, api := commonPort(t, "127.0.0.1"), commonPort(t, "127.0.0.1")
	host, took := moodyExchanger(t)
	r := newRelay(t, "127.0.0.1", "25", guarded(t, format, port, api)+fmt.Sprintf("domain \"*\" {\n  route = [\"smtp://%s\"]\n}\n", host))
	r.start(t)
	key := addSenders(t, r)
	began := time.Now()
	load := &bench.Load{Messages: int(long.Seconds() * goodRate), Connections: 2, PerConnection: 20, Size: 2048, Rate: goodRate, Sender: "ann@acme.example",
		To: func(n int) []string {
			return []string{fmt.Sprintf("%s%d@b.example", []string{"user", "user", "user", "nobody"}[n%4], n)}
		}}
	var sending sync.WaitGroup
	sending.Go(func() {
		if err := load.Run(t.Context(), "127.0.0.1:"+port); err != nil {
			t.Errorf("sending: %v", err)
		}
	})
	rounds := 0
	for pause := time.NewTicker(goodPause); rounds == 0 || time.Since(began) < long; <-pause.C {
		rounds++
		blameless(t, port, api)
		mailOfUser(t, from(fmt.Sprintf("127.71.3.%d", 1+rounds%250)), port)
		mailByHTTP(t, from(fmt.Sprintf("127.71.4.%d", 1+rounds%250)), api, key)
	}
	sending.Wait()
	r.drained(t, patience)
	clock := time.Since(began).Round(time.Second)
	log := logOf(t, r)
	t.Logf("%s: %v of good traffic: %d messages accepted from a network, %d refused for the time being; %d rounds of everything else; %d messages delivered; %d lines of log",
		format, clock, load.Accepted(), load.Later.Load(), rounds, took.Tally().Messages, strings.Count(log, "\n"))
	fail2ban(t, log, 0)
}

// moodyExchanger knows no "nobody", and puts some mail off.
func moodyExchanger(t *testing.T) (addr string, took *sink.Recorder) {
	t.Helper()
	took = sink.NewRecorder(sink.Hashes, 0)
	return mailHost(t, "127.0.0.1:0", sink.Config{Hostname: "mx.example", Recorder: took, Refusals: []sink.Refusal{sink.UnknownUsers("nobody"), sink.TemporaryFailures(0.05)}}), took
}

// mailOfUser sends a message of a user who logs in.
func mailOfUser(t *testing.T, d *net.Dialer, port string) {
	t.Helper()
	said := converse(t, d, port, "EHLO app.example", plainLogin("ann@acme.example"), "MAIL FROM:<ann@acme.example>", "RCPT TO:<a@b.example>", "DATA",
		"Subject: hello\r\n\r\nHello\r\n.", "QUIT")
	if !strings.Contains(said, "\r\n221 ") || strings.Count(said, "\r\n250 ") < 3 {
		t.Errorf("mail of a user: %q", said)
	}
}

// mailByHTTP sends a message with a key.
func mailByHTTP(t *testing.T, d *net.Dialer, port, key string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: d.DialContext}, Timeout: patience}
	defer client.CloseIdleConnections()
	req, err := http.NewRequest("POST", "http://127.0.0.1:"+port+"/v1/messages",
		strings.NewReader(`{"from": "ann@acme.example", "to": "a@b.example", "subject": "hello", "text": "Hello"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusAccepted {
		t.Errorf("mail by HTTP: %d %s", resp.StatusCode, answer)
	}
}
