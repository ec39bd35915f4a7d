package warmup_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"example.org/mta/warmup"
)

// The kill test's plan has hours of two seconds.
const (
	killHour  = 2 * time.Second
	killCap   = 400
	killBegin = "begin"
	killLog   = "sent"
)

func killPlan() *warmup.Plan {
	p := warmup.DefaultPlan()
	p.Name, p.Hour = "kill", killHour
	p.Stages = []warmup.Stage{{Caps: warmup.Caps{Hourly: killCap, Daily: 24 * killCap}}}
	p.Health.MinSample = 0
	return &p
}

// TestKillChild is no test but the process that TestW11_KilledAtRandomMoments kills. It sends as
// fast as it is let, and a message is sent when its line is in the file.
func TestKillChild(t *testing.T) {
	dir := os.Getenv("MTA_WARMUP_KILL_DIR")
	if dir == "" {
		t.Skip("run by TestW11_KilledAtRandomMoments")
	}
	st, err := warmup.OpenFile(filepath.Join(dir, "warmup.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := warmup.New(warmup.Config{Node: "child", Store: st})
	if err := c.Assign(map[string]*warmup.Plan{"ip": killPlan()}); err != nil {
		t.Fatal(err)
	}
	go c.Run(context.Background())
	log, err := os.OpenFile(filepath.Join(dir, killLog), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	began := false
	for {
		if _, v := c.Allowance("ip", warmup.Ask{Provider: "google", Recipients: 1}); v == warmup.Granted && c.Begin("ip", "google", 1) {
			fmt.Fprintln(log, time.Now().UnixMilli())
			continue
		}
		if s, _ := c.Status("ip"); !began && !s.Started.IsZero() {
			began = true
			if err := os.WriteFile(filepath.Join(dir, killBegin), []byte(fmt.Sprint(s.Started.UnixMilli())), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(100 * time.Microsecond) // the sender's pace, not a wait for anything
	}
}

// TestW11_KilledAtRandomMoments kills a sending process with SIGKILL, again and again, and counts
// what it has sent in each hour of its plan and in any 60 minutes.
func TestW11_KilledAtRandomMoments(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(5, uint64(time.Now().UnixNano())))
	lives := 0
	for ; lives < rounds || lives < 10*rounds && killSent(dir) < rounds*10; lives++ { // a busy machine may kill it as it starts
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillChild$", "-test.v")
		cmd.Env = append(os.Environ(), "MTA_WARMUP_KILL_DIR="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.NewTimer(300*time.Millisecond + time.Duration(r.Int64N(int64(700*time.Millisecond))))
		<-timer.C // how long the process lives
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() // its error is the kill
	}
	begin, sent := killRecount(t, dir)
	if len(sent) < rounds*10 {
		t.Fatalf("only %d were sent in %d lives", len(sent), lives)
	}
	hours := make(map[int64]int)
	hour := killHour.Milliseconds()
	first := 0
	for i, at := range sent {
		hours[(at-begin)/hour]++
		for sent[first] <= at-hour {
			first++
		}
		if n := i - first + 1; n > killCap*11/10 {
			t.Fatalf("%d in the 60 minutes before %d, cap %d", n, at-begin, killCap)
		}
	}
	for h, n := range hours {
		if n > killCap {
			t.Errorf("hour %d: %d sent, cap %d", h, n, killCap)
		}
	}
	t.Logf("%d lives, %d sent, by hour: %v", lives, len(sent), hours)
}

// killSent counts what has been sent so far.
func killSent(dir string) int {
	text, _ := os.ReadFile(filepath.Join(dir, killLog)) // not there before the first
	return bytes.Count(text, []byte("\n"))
}

func killRecount(t *testing.T, dir string) (begin int64, sent []int64) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, killBegin))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(b), &begin); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, killLog))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var at int64
		if _, err := fmt.Sscan(in.Text(), &at); err != nil {
			t.Fatalf("line %q: %v", in.Text(), err)
		}
		sent = append(sent, at)
	}
	return begin, sent
}
