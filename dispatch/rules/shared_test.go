package rules

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/parking"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
)

// sharing is the rules of a node of which a cluster hears.
type sharing struct {
	*Rules
	noted, resumed []string
	changed        int
}

func newSharing(t *testing.T, where string) *sharing {
	t.Helper()
	pol := func() *wiring.Policy { return &wiring.Policy{Config: &config.Config{}} }
	r, err := Read(t.TempDir(), time.Now, newest, pol, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &sharing{Rules: r}
	r.Where, r.Changed = where, func() { s.changed++ }
	r.Resumed = func(k parking.Key) { s.resumed = append(s.resumed, k.Name) }
	r.Note = func(keys []string) (func(), error) {
		s.noted = append(s.noted, keys...)
		return func() {}, nil
	}
	return s
}

func (s *sharing) values(t *testing.T) map[string][]byte {
	t.Helper()
	values, err := Shared{s.Rules}.Get(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// apply has s apply what all have, but for keys that stay.
func (s *sharing) apply(t *testing.T, values map[string][]byte, stays bool) {
	t.Helper()
	if err := (Shared{s.Rules}).Apply(t.Context(), values, func(string) bool { return stays }); err != nil {
		t.Fatal(err)
	}
}

func TestRulesAreShared(t *testing.T) {
	a, b := newSharing(t, " at node 1"), newSharing(t, " at node 2")
	begin := func(s *sharing, x api.Rule) api.Rule {
		t.Helper()
		x.Since = time.Now().Round(time.Second)
		x, err := s.Begin(x, false)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	begin(b, api.Rule{Action: api.RuleHold, Selection: api.Selection{Tenant: "news"}, By: "bob"})
	relays := begin(b, api.Rule{Action: api.RuleSuspend, Selection: api.Selection{Source: "out"}, By: ByRelay})
	begin(a, api.Rule{Action: api.RuleSlow, Selection: api.Selection{Tenant: "acme"}, Rate: "10/m", By: "ann"})
	x := begin(a, api.Rule{Action: api.RuleSuspend, Selection: api.Selection{Domain: "a.example"}, Reason: "theirs", By: "ann",
		Until: time.Now().Add(time.Hour)})
	if len(a.noted) != 2 || len(b.noted) != 1 || x.By != "ann at node 1" || relays.By != ByRelay {
		t.Errorf("noted: %q, %q; by %q, %q", a.noted, b.noted, x.By, relays.By)
	}
	key, values := nameOf(&x), a.values(t)
	if rank, until, err := (Shared{a.Rules}).Look(key, values[key]); rank != 1 || !until.Equal(x.Until) || err != nil {
		t.Errorf("rank %d, until %v, %v", rank, until, err)
	}
	changed := b.changed
	b.apply(t, values, true)
	for range 2 {
		b.apply(t, values, false)
	}
	if b.changed != changed+2 || len(b.noted) != 1 {
		t.Errorf("%d changes, noted %q", b.changed-changed, b.noted)
	}
	got, on := b.Get(Key(x.Selection))
	if !on || got.By != "ann at node 1" || got.Reason != "theirs" || !got.Until.Equal(x.Until) || got.ID != 4 {
		t.Errorf("the other has %+v", got)
	}
	if want := b.values(t); len(want) != 3 || string(want[key]) != string(values[key]) {
		t.Errorf("its values are %q", want)
	}

	b.resumed = nil
	// Its end, by another node, keeps what the relay suspends by itself, which ends for this one alone.
	if found, err := a.End(x.ID); !found || err != nil || len(a.noted) != 3 {
		t.Errorf("%v, %v; noted %q", found, err, a.noted)
	}
	b.apply(t, map[string][]byte{key: nil, nameOf(&relays): nil, "{": nil}, false)
	if _, on := b.Get(Key(x.Selection)); on || strings.Join(b.resumed, " ") != "domain a.example" || !b.Source("out") {
		t.Errorf("it has not ended alone: %q", b.resumed)
	}
	if _, err := b.End(relays.ID); err != nil || len(b.noted) != 1 {
		t.Errorf("%v, noted %q", err, b.noted)
	}
	var all []string
	err := Shared{b.Rules}.All(t.Context(), func(keys []string) error { all = append(all, keys...); return nil })
	if err != nil || len(all) != 2 {
		t.Errorf("all: %q, %v", all, err)
	}
}

// TestAPauseOfAllAfterDamage stands until an operator has ended it here, beside the pause that all nodes share.
func TestAPauseOfAllAfterDamage(t *testing.T) {
	a, b := newSharing(t, " at node 1"), newSharing(t, " at node 2")
	if b.Lost {
		t.Error("a relay without rules has lost them")
	}
	if err := os.WriteFile(b.path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged, err := Read(filepath.Dir(b.path), time.Now, newest, b.policy, b.log)
	if err != nil || !damaged.Lost {
		t.Fatalf("lost: %v, %v", damaged.Lost, err)
	}
	b.Rules = damaged
	x := api.Rule{Action: api.RuleSuspend, Selection: api.Selection{All: true}, By: "ann", Since: time.Unix(1e9, 0)}
	if x, err = a.Begin(x, false); err != nil {
		t.Fatal(err)
	}
	values := a.values(t)
	b.apply(t, values, false)
	if list := b.List(); len(list) != 2 || !maps.EqualFunc(b.values(t), values, slices.Equal) {
		t.Errorf("in force: %+v", list)
	}
	b.apply(t, map[string][]byte{nameOf(&x): nil}, false)
	if list := b.List(); len(list) != 1 || list[0].By != ByRelay {
		t.Errorf("in force: %+v", list)
	}
}

func TestARuleEndsAtEachNodeByItself(t *testing.T) {
	now := time.Now()
	s := newSharing(t, "")
	s.now = func() time.Time { return now }
	x, err := s.Begin(api.Rule{Action: api.RuleSuspend, Selection: api.Selection{All: true}, By: "ann", Until: now.Add(time.Minute)}, false)
	if err != nil {
		t.Fatal(err)
	}
	values := s.values(t)
	now = now.Add(time.Hour)
	if s.expire(); len(s.noted) != 1 || len(s.List()) > 0 {
		t.Errorf("noted %q", s.noted)
	}
	if s.apply(t, values, false); len(s.all()) > 0 {
		t.Errorf("a rule that is over has begun: %+v", s.all())
	}
	if text := string(values[nameOf(&x)]); !strings.Contains(text, `"all":true`) {
		t.Errorf("the value is %s", text)
	}
}

func TestValuesThatAreNoRules(t *testing.T) {
	s := newSharing(t, "")
	const key, good = `{"action":"slow","tenant":"acme"}`, `{"action":"slow","tenant":"acme","rate":"1/m","by":"ann"}`
	if _, _, err := (Shared{s.Rules}).Look(key, []byte(good)); err != nil {
		t.Error(err)
	}
	for _, change := range []string{`"slow"|"stop"`, `acme|other`, `1/m|x`, `"1/m"|"0"`, `"rate":"1/m",|`, `"ann"|""`,
		`"ann"|"the relay"`, `"by"|"host":"::","by"`, `"tenant":"acme",|`, `{|[`} {
		old, is, _ := strings.Cut(change, "|")
		values := map[string][]byte{key: []byte(strings.Replace(good, old, is, 1))}
		if _, _, err := (Shared{s.Rules}).Look(key, values[key]); err == nil {
			t.Errorf("%s is a rule", values[key])
		}
		if err := (Shared{s.Rules}).Apply(t.Context(), maps.Clone(values), func(string) bool { return false }); err == nil || len(s.List()) > 0 {
			t.Errorf("%s is applied: %v", values[key], err)
		}
	}
}

func TestThereAreNoMoreRulesThanFit(t *testing.T) {
	s := newSharing(t, "")
	values := make(map[string][]byte)
	for i := range Most + mostPauses + 50 {
		x := api.Rule{Action: api.RuleSuspend, Selection: api.Selection{Domain: strings.Repeat("x", i%200+1) + string(rune('a'+i/200))}, By: "ann"}
		_, one, err := (Shared{}).of([]api.Rule{x})
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(values, one)
	}
	if s.apply(t, values, false); len(s.List()) != Most+mostPauses {
		t.Errorf("%d rules", len(s.List()))
	}
}
