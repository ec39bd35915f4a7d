package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// simulated runs 'mta warmup simulate' on a trace and gives what it prints, cut into rows.
func simulated(t *testing.T, trace string, args ...string) []map[string]string {
	t.Helper()
	var out, errs bytes.Buffer
	c := &cli{in: strings.NewReader(trace), out: &out, err: &errs, env: func(string) string { return "" }, now: time.Now}
	if code := run(c, append([]string{"mta", "warmup", "simulate", "--trace", "-"}, args...)); code != exitDone || errs.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	lines, err := csv.NewReader(&out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]string
	for _, line := range lines[1:] {
		row := make(map[string]string)
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func number(t *testing.T, row map[string]string, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(row[name], 10, 64)
	if err != nil {
		t.Fatalf("%s of %v: %v", name, row, err)
	}
	return n
}

// shortPlan has hours of two minutes, so that days are not long to simulate.
const (
	shortPlan = `{"version": 1, "hour_seconds": 120, "stages": [{"hourly": 31, "daily": 250}, {"hourly": 50, "daily": 400}]}`
	shortHour = 120
	shortDay  = 24 * shortHour
)

// shortTrace is a trace of so many short hours, with more mail each second than the plan has room for.
func shortTrace(hours int) (trace string, offered int64) {
	var b strings.Builder
	b.WriteString("t,event,provider,value\n0,nodes,,2\n0,lag,,7\n0,defer,google,0.05\n0,bounce,*,0.01\n")
	for at := range hours * shortHour {
		n := int64(1 + at/shortHour%3)
		offered += n
		fmt.Fprintf(&b, "%d,offer,%s,%d\n", at, []string{"google", "yahoo", ""}[at%3], n)
		if at == 2*shortHour+70 {
			fmt.Fprintf(&b, "%d,crash,,1\n", at)
		}
	}
	fmt.Fprintf(&b, "%d,end,,\n", hours*shortHour)
	return b.String(), offered
}

// TestSimulateAddsUp recounts the totals from the printed rows, and the hours and days of all
// providers together against the plan's caps, without anything of the simulator's own.
func TestSimulateAddsUp(t *testing.T) {
	const hours = 26 // into the second day
	plan := filepath.Join(t.TempDir(), "short.json")
	if err := os.WriteFile(plan, []byte(shortPlan), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, overflow := range []string{"shared", "hold"} {
		trace, offered := shortTrace(hours)
		rows := simulated(t, trace, "--plan", plan, "--seed", "42", "--interval", "10", "--overflow", overflow, "--patience", "0s")
		var sum, sent, away, answered int64
		held := make(map[string]int64)
		type window struct{ sent, cap int64 }
		sums, days := make(map[int64]window), make(map[int64]window)
		last := ""
		for _, row := range rows {
			at, n := number(t, row, "t"), number(t, row, "sent")
			sum, sent, away = sum+number(t, row, "offered"), sent+n, away+number(t, row, "diverted")
			answered += number(t, row, "deferred") + number(t, row, "bounced")
			if last = row["t"]; last != "" {
				held[row["t"]] += number(t, row, "waiting")
			}
			h, d := sums[at/shortHour], days[at/shortDay]
			// The plan as written, not as printed.
			stage := number(t, row, "stage") - 1
			hourly, daily := []int64{31, 50}[stage], []int64{250, 400}[stage]
			if number(t, row, "cap_hour") != hourly || number(t, row, "cap_day") != daily {
				t.Errorf("%s: %v, the plan has %d an hour and %d a day", overflow, row, hourly, daily)
			}
			sums[at/shortHour] = window{h.sent + n, hourly}
			days[at/shortDay] = window{d.sent + n, daily}
		}
		if sum != offered {
			t.Errorf("%s: %d offered, the trace has %d", overflow, sum, offered)
		}
		rest := held[last]
		if overflow == "shared" && rest > 0 || overflow == "hold" && away > 0 {
			t.Errorf("%s: %d diverted, %d waiting", overflow, away, rest)
		}
		if sent+away+rest != sum {
			t.Errorf("%s: %d sent, %d diverted and %d waiting are not the %d offered", overflow, sent, away, rest, sum)
		}
		if answered == 0 || answered > sent/5 {
			t.Errorf("%s: %d of %d deferred or bounced", overflow, answered, sent)
		}
		for d, w := range days {
			if full := int(d+1)*24 <= hours; w.sent > w.cap || full && w.sent < w.cap*98/100 {
				t.Errorf("%s: day %d has %d sent of %d", overflow, d, w.sent, w.cap)
			}
		}
		for h, w := range sums {
			if w.sent > w.cap {
				t.Errorf("%s: hour %d has %d sent of %d", overflow, h, w.sent, w.cap)
			}
		}
		if len(sums) != hours {
			t.Errorf("%s: %d hours of %d", overflow, len(sums), hours)
		}
	}
}

// TestSimulateAWeeklyNewsletter: --on has the mail come on one day of the week, and what a plan holds for longer than
// max_age of the configuration expires.
func TestSimulateAWeeklyNewsletter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mta.conf")
	if err := os.WriteFile(file, []byte(`
		defaults { max_age = "6h" }
		source "new-1" { address = "192.0.2.20" }
		plan "begin" { # as "standard" begins
			stage {
				hourly = 31
				daily  = 250
			}
			stage {
				hourly = 50
				daily  = 400
			}
		}
		pool "default" {
			overflow = "hold"
			dedicated "new-1" { plan = "begin" }
		}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	simulate := func(args ...string) (int, []string) {
		out.Reset()
		errs.Reset()
		c := &cli{out: &out, err: &errs, env: func(string) string { return "" }, now: time.Now}
		code := run(c, append([]string{"mta", "--config", file, "warmup", "simulate", "--plan", "begin", "--interval", "86400"}, args...))
		return code, strings.Split(strings.TrimSpace(out.String()), "\n")
	}
	code, rows := simulate("--demand", "2000/day", "--shape", "campaign", "--on", "tue")
	if code != exitDone || len(rows) != 1+3 {
		t.Fatalf("exit code %d, %d rows: %s", code, len(rows), &errs)
	}
	for i, want := range []string{"0,1,*,normal,31,250,2000,190,0,0,0,0,0,1810", "604800,2,*,normal,50,400,2000,307,0,0,0,0,0,1693"} {
		if rows[1+i] != want {
			t.Errorf("row %d: %s, want %s", i+1, rows[1+i], want)
		}
	}
	for want, args := range map[string][]string{
		`on "tues": write days as mon-fri`: {"--demand", "2000/day", "--on", "tues"},
		"--on is for --demand":             {"--trace", "-", "--on", "tue"},
	} {
		if code, _ := simulate(args...); code != exitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: exit code %d, %s", args, code, &errs)
		}
	}
}

// TestPresetsNeedNoSecrets: a user who may not read the keys that mta.conf names simulates a preset all the same.
func TestPresetsNeedNoSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mta.conf")
	if err := os.WriteFile(file, []byte("dkim \"d\" {\ndomain = \"a.test\"\nselector = \"s\"\nkey = \"/nowhere/key.pem\"\n}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for plan, want := range map[string]int{"standard": exitDone, "mine": exitFailed} {
		var out, errs bytes.Buffer
		trace := strings.NewReader("t,event,provider,value\n0,offer,,1\n60,end,,\n")
		c := &cli{in: trace, out: &out, err: &errs, env: func(string) string { return "" }, now: time.Now}
		code := run(c, []string{"mta", "--config", file, "warmup", "simulate", "--plan", plan, "--trace", "-"})
		if code != want || !strings.Contains(errs.String(), file) {
			t.Errorf("%s: exit code %d, want %d: %s", plan, code, want, &errs)
		}
	}
}
