package config

import (
	"fmt"
	"slices"
	"testing"
)

// A source's limits and those of its pools stand beside one another; within each of them the most specific block wins.
func TestOwnLimits(t *testing.T) {
	c := mustParse(t, `
source "ip1" {
  provider "google" {
    connection_limit              = 4
    max_message_rate              = "10/min"
    max_deliveries_per_connection = 20
  }
  domain "*" { max_message_rate = "1/s" }
  domain "*.example.net" { max_recipients_per_batch = 5 }
  domain "mail.example.net" { max_message_rate = "2/s" }
}
source "ip2" {}
pool "news" {
  shared = ["ip1", "ip2"]
  domain "example.org" {
    max_message_rate            = "100/h"
    max_message_rate_per_source = "60/h"
  }
}
provider "google" { mx = ["*.google.com"] }
presets = false
`)
	for _, x := range []struct {
		source, domain, provider string
		want                     []string
	}{
		{"ip1", "gmail.com", "google", []string{`connection_limit 4: source "ip1", provider "google" (mta.conf:4)`, `max_deliveries_per_connection 20: source "ip1", provider "google" (mta.conf:6)`, `max_message_rate 1/s: source "ip1", domain "*" (mta.conf:8)`}},
		{"ip1", "mail.example.net", "", []string{`max_recipients_per_batch 5: source "ip1", domain "*.example.net" (mta.conf:9)`, `max_message_rate 2/s: source "ip1", domain "mail.example.net" (mta.conf:10)`}},
		{"ip1", "example.org", "", []string{`max_message_rate 1/s: source "ip1", domain "*" (mta.conf:8)`, `max_message_rate 100/h: pool "news", domain "example.org" (mta.conf:16)`, `max_message_rate_per_source 60/h: pool "news", domain "example.org" (mta.conf:17)`}},
		{"ip2", "example.org", "google", []string{`max_message_rate 100/h: pool "news", domain "example.org" (mta.conf:16)`, `max_message_rate_per_source 60/h: pool "news", domain "example.org" (mta.conf:17)`}},
		{"ip2", "gmail.com", "google", nil},
		{"gone", "example.org", "", nil},
	} {
		var got []string
		for _, own := range c.OwnLimits(x.source, x.domain, x.provider) {
			for _, s := range own.Settings() {
				got = append(got, fmt.Sprintf("%s %s: %s", s, own.Value(s), own.Origin(s)))
			}
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s to %s at %q:\ngot  %q\nwant %q", x.source, x.domain, x.provider, got, x.want)
		}
	}
	google := c.OwnLimits("ip1", "gmail.com", "google")[0]
	if google.Together.ConnectionLimit != 4 || google.OriginTogether("connection_limit") != `source "ip1", provider "google" (mta.conf:4)` {
		t.Errorf("the sites together: %+v by %s", google.Together, google.OriginTogether("connection_limit"))
	}
	whole := string(Effective(c))
	if again := mustParse(t, whole); len(again.OwnLimits("ip1", "example.org", "google")) != 2 {
		t.Errorf("it is printed as:\n%s", whole)
	}
}
