package router

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"example.org/mta/internal/reply"
)

// The operator's page has all codes, and no others.
func TestPageNamesAllTroubles(t *testing.T) {
	page, err := os.ReadFile("../docs/routing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## When there is no route")
	table, _, _ = strings.Cut(table, "\n## ")
	known := make(map[string]bool)
	for _, r := range []*reply.Reply{
		noSuchDomain("d"), nullMX("d"), noAddress("d"), noUsableExchanger("d", "w"), dnsFailure("d", "w"), loop("d"),
		badLiteral("d", errors.New("w")), badDomain(), smarthostFailure("d", "w"), stopping(),
	} {
		code := fmt.Sprintf("| %d %s |", r.Code, r.Enhanced)
		known[code] = true
		if !strings.Contains(table, code) {
			t.Errorf("the page does not name %s %s", code, r.Text)
		}
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) > 2 && strings.ContainsAny(cells[2], "0123456789") && !known["|"+cells[2]+"|"] {
			t.Errorf("nothing is answered with %s", cells[2])
		}
	}
}
