package mta

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestMetricsAreInTheManual: each metric has its place in docs/accounting.md.
func TestMetricsAreInTheManual(t *testing.T) {
	manual, err := os.ReadFile("../docs/accounting.md")
	if err != nil {
		t.Fatal(err)
	}
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		relayCollector{}.Describe(ch)
	}()
	name := regexp.MustCompile(`fqName: "(mta_[a-z_]+)"`)
	n := 0
	for desc := range ch {
		m := name.FindStringSubmatch(desc.String())
		if m == nil {
			t.Errorf("%v has no name", desc)
			continue
		}
		n++
		if !strings.Contains(string(manual), "`"+m[1]+"`") && !strings.Contains(string(manual), "`"+m[1]+"{") {
			t.Errorf("docs/accounting.md lacks %s", m[1])
		}
	}
	if n < 20 {
		t.Errorf("%d metrics are described", n)
	}
}
