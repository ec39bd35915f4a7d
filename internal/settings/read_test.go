package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// house is a file's top, with one of each kind of field.
type house struct {
	Block
	Name   string             `conf:"name" default:"Home" check:"proper" reload:"restart"`
	Tags   []string           `conf:"tags"`
	Shares map[string]float64 `conf:"shares" example:"{ a = 1 }"`
	Store  store              `conf:"store,block" reload:"restart"`
	Doors  []*door            `conf:"door,block"`
	Steps  []*step            `conf:"step,block"`
	Common common             `conf:"common,block"`
}

type store struct {
	Block
	Cache Size  `conf:"cache" default:"1MiB" min:"1KiB" max:"1TiB"`
	Limit Rate  `conf:"limit"`
	Again Retry `conf:"again" default:"1m" was:"repeat"`
}

type common struct {
	Block
	Ways ways `conf:",inline"`
}

// ways is what door and common both have.
type ways struct {
	Width int `conf:"width" default:"80" min:"1"`
	Fixed int `conf:"fixed" default:"7" only:"common"`
	Times struct {
		Open time.Duration `conf:"open" default:"1m" min:"1s"`
	} `conf:"times,block"`
}

type door struct {
	Block
	Label string `conf:",label"`
	Key   Secret `conf:"key"`
	Kind  string `conf:"kind" oneof:"oak pine"`
	Ways  ways   `conf:",inline"`
}

type step struct {
	Block
	High int `conf:"high"`
}

func (d *door) SetDefaults() { d.Sparse() }

var rules = &Schema{
	Checks: map[string]func(string) error{"proper": func(s string) error {
		if s == "" || strings.ToUpper(s[:1]) == s[:1] {
			return nil
		}
		return Wrong("begin with a capital", "%s is not a proper name", Quoted(s))
	}},
	Retired: map[string]string{"door handle": "doors open by themselves", "bell": "knock"},
}

func start() *house {
	h := new(house)
	Defaults(h)
	return h
}

func read(src string, env map[string]string) (*house, error) {
	h, c := reading(src, env)
	return h, c.Err()
}

func reading(src string, env map[string]string) (*house, *Collector) {
	h := start()
	c, _ := rules.Read([]byte(src), "f", func(name string) string { return env[name] }, h)
	return h, c
}

const furnished = `name = "Mill"
tags = ["a", env("TAG")]
shares = { a = 2, b = 0.5 }
store {
  cache = 2048
  limit = "100/s"
  again = ["1m", "5m"]
}
door "front" {
  key   = env("KEY")
  kind  = "oak"
  width = 90
  times { open = "5s" }
}
door "back" { key = "hunter2" }
step { high = 18 }
step {}
`

var surroundings = map[string]string{"TAG": "b", "KEY": "swordfish"}

func TestRead(t *testing.T) {
	h, err := read(furnished, surroundings)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		what      string
		got, want any
	}{
		{"name", h.Name, "Mill"},
		{"tags", h.Tags, []string{"a", "b"}},
		{"shares", h.Shares, map[string]float64{"a": 2, "b": 0.5}},
		{"cache", h.Store.Cache, Size(2048)},
		{"limit", h.Store.Limit, Rate{100, time.Second}},
		{"again", h.Store.Again, Retry{List: []time.Duration{time.Minute, 5 * time.Minute}}},
		{"doors", len(h.Doors), 2},
		{"label", h.Doors[0].Label, "front"},
		{"key", string(h.Doors[0].Key), "swordfish"},
		{"open", h.Doors[0].Ways.Times.Open, 5 * time.Second},
		{"steps", len(h.Steps), 2},
		{"title of a step", h.Steps[1].Title(), "step 2"},
		{"origin", h.Store.Origin("cache"), "store (f:5)"},
		{"origin of a default", h.Common.Origin("width"), "default"},
	} {
		if !reflect.DeepEqual(x.got, x.want) {
			t.Errorf("%s: got %v, want %v", x.what, x.got, x.want)
		}
	}
}

func TestProblemsHavePlaceAndRemedy(t *testing.T) {
	for src, want := range map[string][]string{
		`name = "mill"`:                {"f:1:8", "is not a proper name", "begin with a capital"},
		"store {\n  width = 1\n}":      {"f:2:3", "it belongs in a door or common block"},
		`naem = "X"`:                   {`did you mean "name"?`},
		"door \"a\" {\n  fixed = 1\n}": {"f:2:3", "fixed can't be different", "write it in the common block"},
		`store { cache = "1B" }`:       {"f:1:17", "1B is too small", "must be from 1KiB to 1TiB"},
		`door "a" { kind = "pin" }`:    {`did you mean "pine"?`, "oak, pine"},
		"door \"a\" {}\ndoor \"a\" {}": {"f:2:1", "the first is in line 1"},
		`shares = 7`:                   {"must be an object of numbers, not a number", "{ a = 1 }"},
		`step "1" {}`:                  {"block step takes no name"},
		`tags = [env("NONE")]`:         {"NONE", "is not set", "add a fallback"},
		"store {\ndoor \"a\" {\n}\n":   {"f:2:1", "store, opened in line 1"},
		`store { again = [] }`:         {"again is empty"},
		"door \"a\" { key = hunter2\n": {"f:1"},
	} {
		_, err := read(src, nil)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: got %v, want %q", src, err, w)
			}
		}
	}
}

func TestRetiredSettingsAreReadWithAWarning(t *testing.T) {
	h, c := reading("bell = 1\ndoor \"a\" {\n  handle = 1\n  key = \"k\"\n}\n", nil)
	want := []string{"f:1: bell is not a setting any more and has no effect: remove it; knock",
		"f:3: handle is not a setting any more and has no effect: remove it; doors open by themselves"}
	if c.Err() != nil || len(h.Doors) != 1 || !slices.Equal(c.Warnings, want) {
		t.Errorf("got %v, %q", c.Err(), c.Warnings)
	}
}

func TestFormerNamesAreReadWithAWarning(t *testing.T) {
	h, c := reading(`store { repeat = "5m" }`, nil)
	if c.Err() != nil || h.Store.Again.First != 5*time.Minute || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "f:1: repeat is called again now") {
		t.Errorf("got %v, %v, %v", h.Store.Again, c.Warnings, c.Err())
	}
}

// What is printed reads to the same, and shows no secret.
func TestPrintReadsBack(t *testing.T) {
	h, err := read(furnished, surroundings)
	if err != nil {
		t.Fatal(err)
	}
	printed := string(Print(h, nil))
	for _, want := range []string{"# line 5", `env("KEY")`, `"********"`, "width = 80"} {
		if !strings.Contains(printed, want) {
			t.Errorf("there is no %s in\n%s", want, printed)
		}
	}
	again, err := read(printed, surroundings)
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	again.Doors[1].Key = h.Doors[1].Key
	if changes := Diff(h, again); len(changes) > 0 {
		t.Errorf("printed and read again it differs: %v", changes)
	}
	for _, shown := range []string{printed, fmt.Sprint(Object(h)), fmt.Sprint(Diff(start(), h))} {
		if strings.Contains(shown, "hunter2") || strings.Contains(shown, "swordfish") {
			t.Errorf("a secret is shown in %s", shown)
		}
	}
}

// A block that comes or goes is listed by what the file has, not by its defaults.
func TestDiffOfWholeBlocks(t *testing.T) {
	none, err := read(``, nil)
	if err != nil {
		t.Fatal(err)
	}
	doors, err := read("door \"a\" { key = \"swordfish\" }\ndoor \"b\" {}\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		old, new any
		want     string
	}{
		{none, doors, `[door "a": key = "********" (new) door "b" {} (new)]`},
		{doors, none, `[door "a": key = "********" (removed) door "b" {} (removed)]`},
	} {
		if got := fmt.Sprint(Diff(x.old, x.new)); got != x.want {
			t.Errorf("got %s, want %s", got, x.want)
		}
	}
}

func TestKeep(t *testing.T) {
	old, _ := read(`store { limit = "5/s" }`, nil)
	fresh, _ := read("name = \"Mill\"\ntags = [\"x\"]\nstore { limit = \"6/s\" }", nil)
	var kept []any
	waiting := Keep(fresh, old, func(s any) { kept = append(kept, s) })
	if len(waiting) != 2 || waiting[0].String() != `name = "Mill" (was "Home"), needs a restart` {
		t.Errorf("waiting: %v", waiting)
	}
	if fresh.Name != "Home" || fresh.Store.Limit != (Rate{5, time.Second}) || len(fresh.Tags) != 1 {
		t.Errorf("kept %q, %v, %v", fresh.Name, fresh.Store.Limit, fresh.Tags)
	}
	if len(kept) != 2 || kept[0] != any(&fresh.Name) || fresh.Origin("name") != "kept until a restart" {
		t.Errorf("kept %v", kept)
	}
}

func TestLayers(t *testing.T) {
	h, err := read("common { width = 100 }\ndoor \"a\" {\n  times { open = \"2s\" }\n}", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, origins := start().Common.Ways, make(Origins)
	origins.Lay(&got, &h.Common.Ways, &h.Common.Block)
	origins.Lay(&got, &h.Doors[0].Ways, &h.Doors[0].Block)
	if got.Width != 100 || got.Fixed != 7 || got.Times.Open != 2*time.Second {
		t.Errorf("got %+v", got)
	}
	for setting, want := range map[string]string{"width": "common (f:1)", "times.open": `door "a" (f:3)`, "fixed": "default"} {
		if from := origins.Of(setting); from != want {
			t.Errorf("%s is from %s, want %s", setting, from, want)
		}
	}
	if got := Names(&got); !reflect.DeepEqual(got, []string{"width", "fixed", "times.open"}) {
		t.Errorf("names: %v", got)
	}
}

func TestPresets(t *testing.T) {
	var known house
	rules.Presets([]byte(`door "a" {
  kind  = "pine"
  width = 70
}`), &known)
	h, _ := read(`door "a" { kind = "oak" }`, nil)
	d := h.Doors[0]
	Inherit(d, known.Doors[0])
	if d.Kind != "oak" || d.Ways.Width != 70 || !d.Set("width") || d.Sets("width") || !d.Sets("kind") {
		t.Errorf("got %+v", d)
	}
}

// Scan finds what it can in a file that has any errors.
func TestScan(t *testing.T) {
	got := make(map[string]string)
	for _, s := range Scan([]byte("store {\n  cache = \"1MiB\"\nname = \"Mill\"\ndoor \"a\" {\n kind = env(\"KIND\")\n times { open = \"1s\" }\n"), func(string) string { return "oak" }, start()) {
		got[s.Block+"."+s.Name] = s.Text()
	}
	if want := map[string]string{"store.cache": "1MiB", ".name": "Mill", "door.kind": "oak", "door.open": "1s"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDeepNestingIsRefused(t *testing.T) {
	for _, level := range []string{"(", "[", "{a=", "!", "-", "1?", `"${`, "%{if true}", "a {\n", "(-\n", "-(", "[for x in ", "f("} {
		for _, head := range []string{"", "x = ", `x = "`, "x = <<E\n"} {
			src := head + strings.Repeat(level, 4_000/len(level))
			if _, err := read(src, nil); err == nil {
				t.Errorf("%s%s... was read", head, level)
			}
		}
	}
	if _, err := read("store { cache = "+strings.Repeat("(", 50)+"1048576"+strings.Repeat(")", 50)+" }", nil); err != nil {
		t.Errorf("fifty parentheses: %v", err)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	_, err := read(strings.Repeat("x {}\n", 120), nil)
	var problems Problems
	if !errors.As(err, &problems) || len(problems) != mostProblems+1 || problems[mostProblems].Message != "and 70 more problems" {
		t.Errorf("got %d problems", len(problems))
	}
}
