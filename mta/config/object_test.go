package config

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"example.org/mta/internal/settings"
)

func TestObjectHasWhatIsInForce(t *testing.T) {
	c, err := Parse([]byte(`
		hostname = "relay.example"
		source "out1" { address = "192.0.2.1" }
		pool "acme" { shared = ["out1"] }
		defaults { retry_interval = "7m" }
		domain "box.example" {
			route    = ["smtp://mx.box.example:587"]
			username = "robin"
			password = "hunter2"
		}`), "mta.conf", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(settings.Object(c))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "hunter2") {
		t.Error("the password is shown")
	}
	var o struct {
		Hostname string
		Source   []struct{ Name, Address string }
		Pool     []struct {
			Name   string
			Shared []string
		}
		Defaults struct {
			RetryInterval   string `json:"retry_interval"`
			ConnectionLimit int    `json:"connection_limit"`
			MaxAge          string `json:"max_age"`
		}
		Domain []struct{ Name, Username string }
	}
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	if o.Hostname != "relay.example" || o.Defaults.RetryInterval != "7m" || o.Defaults.ConnectionLimit == 0 || o.Defaults.MaxAge != "5d" {
		t.Errorf("settings %+v", o)
	}
	if len(o.Source) != 1 || o.Source[0].Name != "out1" || o.Source[0].Address != "192.0.2.1" {
		t.Errorf("sources %+v", o.Source)
	}
	if len(o.Domain) != 1 || o.Domain[0].Name != "box.example" || o.Domain[0].Username != "robin" {
		t.Errorf("domains %+v", o.Domain)
	}
}

// A label is called "name": no block with one may have a setting of that name.
func TestNoLabelledBlockHasASettingCalledName(t *testing.T) {
	blocks := 0
	for f := range settings.Fields(reflect.ValueOf(Default()).Elem()) {
		if f.Kind != settings.Many {
			continue
		}
		block := reflect.New(f.Value.Type().Elem().Elem()).Elem()
		labelled, called := false, false
		for g := range settings.Fields(block) {
			labelled, called = labelled || g.Kind == settings.Label, called || g.Name == "name"
		}
		if labelled && called {
			t.Errorf("%s has a setting called name", f.Name)
		}
		blocks++
	}
	if blocks < 5 {
		t.Errorf("only %d kinds of blocks were looked at", blocks)
	}
}
