package rules

import (
	"log/slog"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// A rule is for mail that all of its names fit, whichever of them it is found by.
func TestARuleFitsByAllOfItsNames(t *testing.T) {
	whole := Mail{Tenant: "acme", Campaign: "spring", Domain: "a.example", Provider: "google", Pool: "bulk", Source: "out"}
	for _, x := range []struct {
		rule  api.Selection
		other func(*Mail)
	}{
		{api.Selection{Tenant: "acme"}, func(m *Mail) { m.Tenant = "news" }},
		{api.Selection{Tenant: "acme", Campaign: "spring"}, func(m *Mail) { m.Campaign = "autumn" }},
		{api.Selection{Tenant: "acme", Domain: "a.example"}, func(m *Mail) { m.Domain = "b.example" }},
		{api.Selection{Tenant: "acme", Provider: "google"}, func(m *Mail) { m.Provider = "yahoo" }},
		{api.Selection{Tenant: "acme", Pool: "bulk"}, func(m *Mail) { m.Pool = "codes" }},
		{api.Selection{Pool: "bulk", Tenant: "acme"}, func(m *Mail) { m.Tenant = "" }},
		{api.Selection{Provider: "google", Source: "out"}, func(m *Mail) { m.Source = "spare" }},
	} {
		r, err := Read(t.TempDir(), time.Now, newest, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Begin(api.Rule{Action: api.RuleBounce, Selection: x.rule, Since: time.Now()}, false); err != nil {
			t.Fatal(err)
		}
		if list := r.For(whole); len(list) != 1 {
			t.Errorf("%v is for %d mails like it", x.rule, len(list))
		}
		m := whole
		if x.other(&m); len(r.For(m)) != 0 {
			t.Errorf("%v is for %+v", x.rule, m)
		}
	}
}
