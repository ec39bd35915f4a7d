package wiring

import (
	"testing"

	"example.org/mta/mta/config"
)

// TestMarksAreLookedForOnce: each header field that selectors name, in whatever case.
func TestMarksAreLookedForOnce(t *testing.T) {
	cfg, err := config.Parse([]byte(`
		source "pool-1" { address = "192.0.2.10" }
		source "acme-1" { address = "192.0.2.20" }
		pool "acme" {
			shared = ["pool-1"]
			dedicated "acme-1" {
				plan = "standard"
				prefer { header = ["X-MTA-Engaged: yes", "Precedence"] }
				except { header = ["x-mta-engaged:YES"] }
			}
		}`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	if all := marks(cfg); len(all) != 2 || all[0].Text != "x-mta-engaged: yes" || all[1].Value != "" {
		t.Errorf("marks: %+v", all)
	}
}
