package check

import (
	"strings"
	"testing"

	"example.org/mta/mta/config"
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
	if len(got) != 1 || !strings.Contains(got[0], `"there" (test.conf:5)`) || !strings.Contains(got[0], "192.0.2.77") {
		t.Errorf("%q", got)
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
