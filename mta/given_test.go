package mta

import (
	"testing"

	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
)

func parsePolicy(t *testing.T, text string) *wiring.Policy {
	t.Helper()
	cfg, err := config.Parse([]byte(text), "test.conf", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return wiring.New(cfg)
}
