package importer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.org/mta/importer"
	"example.org/mta/mta/config"
)

func at(line int, directive string) importer.Origin {
	return importer.Origin{File: "old.conf", Line: line, Directive: directive}
}

// sample uses all that a draft can hold.
func sample() *importer.Draft {
	d := importer.New("From old.conf.\nSecond line.\n")
	d.Set("hostname", "mta1.example.com", at(1, "host-name mta1.example.com"))
	d.Inner("source", "a").From(at(2, "<virtual-mta a>")).Set("address", "192.0.2.1", at(3, "smtp-source-host 192.0.2.1"))
	d.Lost(at(4, "teleport yes"), "mail is not moved by teleport", false)
	p := d.Inner("plan", "slow").From(at(5, "cold-virtual-mta"))
	for i := range 2 {
		s := p.Add("stage")
		s.Set("hourly", 10*(i+1), importer.Origin{})
		s.Set("daily", 100*(i+1), importer.Origin{})
	}
	p.Set("weights", map[string]float64{"google": 2, "yahoo": 1}, importer.Origin{})
	t := d.Inner("defaults")
	t.Set("retry_interval", "1m", at(6, "retry-after 1m"))
	t.Set("retry_interval", []string{"1m", "${not} a \"template\""}, at(6, "retry-after 1m"))
	t.Set("retry_interval", []string{"1m", "5m"}, at(7, "retry-after\x1b 1m,5m\nhostname = 1"))
	t.Noted(at(7, "retry-after\x1b 1m,5m\nhostname = 1"), "jittered")
	t.Lost(at(8, "max-teleports 1/h"), "no rate of teleports", true)
	d.Inner("source", "a").Lost(at(8, "max-teleports 1/h"), "nor for a source", true)
	b := d.Inner("backoff", "x")
	b.Set("codes", []int{421}, importer.Origin{})
	b.Set("by_source", true, importer.Origin{})
	b.Set("suspend", "10m", importer.Origin{})
	return d
}

func TestTheDraftIsAConfiguration(t *testing.T) {
	text := string(sample().Bytes())
	c, err := config.Parse([]byte(text), "mta.conf", func(string) string { return "" })
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if c.Hostname != "mta1.example.com" || c.Source("a") == nil || len(c.Plans[0].Stages) != 2 || len(c.Defaults.Traffic.RetryInterval.List) != 2 || !c.Backoffs[0].BySource {
		t.Errorf("the configuration lacks something of\n%s", text)
	}
	for _, want := range []string{
		"# From old.conf.\n# Second line.\n",
		`hostname = "mta1.example.com" # old.conf:1 host-name mta1.example.com`,
		"# old.conf:2 <virtual-mta a>\nsource \"a\" {\n",
		"\n# old.conf:4 teleport yes: not carried: mail is not moved by teleport\n",
		"# old.conf:7 retry-after  1m,5m hostname = 1: note: jittered\n",
		"\n  # old.conf:8 max-teleports 1/h: not carried, and it protects: no rate of teleports\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the draft lacks %q:\n%s", want, text)
		}
	}
	if again := string(sample().Bytes()); again != text {
		t.Error("two equal drafts give two texts")
	}
}

func TestSummaryCountsDirectives(t *testing.T) {
	s := sample().Summary()
	if s.Carried != 5 || s.Noted != 1 || s.Lost != 2 || s.Protects != 1 || len(s.Notes) != 4 {
		t.Errorf("summary: %+v", s)
	}
	for i := 1; i < len(s.Notes); i++ {
		if s.Notes[i].Line < s.Notes[i-1].Line {
			t.Errorf("notes are not in the order of the file: %+v", s.Notes)
		}
	}
}

// The notes on one file stand together, in the order of its lines.
func TestNotesInOrder(t *testing.T) {
	d := importer.New("")
	for _, o := range []importer.Origin{{File: "a", Line: 5}, {File: "b", Line: 2}, {File: "a", Line: 1}, {File: "b", Line: 1}, {File: "a", Line: 3}} {
		d.Noted(o, "why")
	}
	var got []string
	for _, n := range d.Summary().Notes {
		got = append(got, fmt.Sprint(n.File, n.Line))
	}
	if want := []string{"a1", "a3", "a5", "b1", "b2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
