package check

import (
	"os/user"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
)

func TestFaultsKeepTheRelayFromStarting(t *testing.T) {
	cfg, err := config.Parse([]byte(`
		hostname = "relay.example"
		data_dir = "/nowhere/at/all"
		listener "here"  { address = ["127.0.0.1:2525", ":2526", "[::1]:2527"] }
		listener "there" { address = "192.0.2.77:25" }
		http { address = "" }
	`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := Faults(cfg)
	cfg.DataDir = t.TempDir()
	if err := (datadir.Adopted{By: 2, Ended: time.Now()}).Write(cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	if more := Faults(cfg); len(more) != 2 || !strings.Contains(more[0], "was adopted by node 2") {
		t.Errorf("an adopted directory: %q", more)
	}
	if len(got) != 1 || !strings.Contains(got[0], `"there" (test.conf:5)`) || !strings.Contains(got[0], "192.0.2.77") {
		t.Errorf("%q", got)
	}
}

func TestMailThatIsNeverSent(t *testing.T) {
	cfg, err := config.Parse([]byte(`
		hostname = "relay.example"
		defaults { max_age = "3d" }
		mail "monday" {
			match { campaign = ["a"] }
			window  = "Mon 08:00-08:01 UTC"
			max_age = "1h"
		}
		mail "weekdays" {
			match { campaign = ["b"] }
			window = "Mon-Fri 08:00-20:00 UTC"
			pace   = "1/d"
		}
		mail "slow" {
			match { campaign = ["c"] }
			pace    = "2/d"
			max_age = "6h"
		}
	`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(neverSent(cfg), "\n")
	for _, want := range []string{`mail "monday"`, "(6d", "(1h", `mail "slow"`, "(12h"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if strings.Contains(got, "weekdays") {
		t.Error(got)
	}
}

func TestMailThatIsNeverRetried(t *testing.T) {
	cfg, err := config.Parse([]byte(`
		hostname = "relay.example"
		domain "codes.example" { max_age = "5m" }
		domain "quick.example" {
			max_age        = "5m"
			retry_interval = "1m"
		}
		domain "slow.example" { retry_interval = "3h" }
		domain "listed.example" {
			max_age        = "5m"
			retry_interval = ["10m", "20m"]
		}
	`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := neverRetried(cfg)
	if len(got) != 2 || !strings.Contains(got[0], "codes.example") || !strings.Contains(got[1], "listed.example") {
		t.Errorf("%q", got)
	}
}

// TestBeforeTheFirstStart: without a queue the relay's user is that of the configuration, or else the caller.
func TestBeforeTheFirstStart(t *testing.T) {
	dir := t.TempDir()
	text := "hostname = \"relay.example\"\ndata_dir = \"" + dir + "/data\"\n"
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	const caller = 4711
	for _, x := range []struct{ more, owner string }{
		{`user = "nobody"`, nobody.Uid}, {"", "4711"}, {`user = "no-such-user"`, "4711"},
	} {
		if f := foldersOf(parsed(t, text+x.more), caller); strconv.Itoa(f.owner) != x.owner {
			t.Errorf("%s: the owner is %d, want %s", x.more, f.owner, x.owner)
		}
	}
	got := strings.Join(Faults(parsed(t, text+`user = "no-such-user"`)), "\n")
	if !strings.Contains(got, "user (f:3): the system has no user no-such-user") {
		t.Errorf("no fault of the user: %q", got)
	}
}

func TestWarmingIsWarnedOf(t *testing.T) {
	const text = `hostname = "relay.example"
source "new"  { address = "127.0.0.1" }
source "warm" { address = "127.0.0.2" }
source "rest" { address = "127.0.0.3" }
plan "eager" {
  preset = "standard"
  health { min_fill = 0 }
}
pool "new" {
  MORE
  dedicated "new" { plan = "eager" }
}
`
	for more, want := range map[string]string{
		"":                    `pool "new" (f:9): all sources of the pool warm up`,
		`shared = ["warm"]`:   "",
		`overflow = "hold"`:   "",
		`dedicated "warm" {}`: "",
	} {
		got := warmingWarnings(parsed(t, strings.Replace(text, "MORE", more, 1)))
		if want != "" && !strings.HasPrefix(got[0], want) || len(got) != strings.Count(want, "pool")/2+1 ||
			!strings.HasPrefix(got[len(got)-1], `plan "eager" (f:7): min_fill = 0 `) {
			t.Errorf("%s: %q", more, got)
		}
	}
}

// TestDroppedMailIsWarnedOf: what drops the mail to everybody is for tests.
func TestDroppedMailIsWarnedOf(t *testing.T) {
	for text, want := range map[string]int{`domain "*" { route = ["discard"] }`: 1, `domain "*.load.example" { route = ["discard"] }`: 0, `domain "*" { route = ["smtp://mx.example"] }`: 0} {
		got := strings.Join(Warnings(parsed(t, "hostname = \"relay.example\"\n"+text), time.Now()), "\n")
		if n := strings.Count(got, `domain "*" (f:2): route = ["discard"] accepts mail and drops it: for tests only`); n != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}
