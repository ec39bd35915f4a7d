package rules

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

// Shared is the rules as the nodes of a cluster share them: values of JSON by key, which names action and selection.
// Numbers are each node's own, as are the rules that a relay has made by itself, and each ends by itself what has an
// end. It implements changes.Kind.
type Shared struct{ Rules *Rules }

// nameOf is the key of a rule.
func nameOf(x *api.Rule) string {
	text, _ := json.Marshal(struct { // strings are always valid JSON
		Action api.RuleAction `json:"action"`
		api.Selection
	}{x.Action, x.Selection})
	return string(text)
}

// of returns those of a list that are shared, by key, with their values.
func (s Shared) of(list []api.Rule) (by map[string]api.Rule, values map[string][]byte, err error) {
	by, values = make(map[string]api.Rule), make(map[string][]byte)
	for _, x := range list {
		if x.By == ByRelay {
			continue
		}
		name, plain := nameOf(&x), x
		plain.ID = 0
		if by[name] = x; err == nil {
			values[name], err = json.Marshal(plain)
		}
	}
	return by, values, err
}

// All calls each with the keys of all rules.
func (s Shared) All(_ context.Context, each func(keys []string) error) error {
	by, _, err := s.of(s.Rules.List())
	if err != nil {
		return err
	}
	return each(slices.Sorted(maps.Keys(by)))
}

// Get returns the rules that are in force.
func (s Shared) Get(context.Context, []string) (map[string][]byte, error) {
	_, values, err := s.of(s.Rules.List())
	return values, err
}

func parseShared(key string, value []byte) (x api.Rule, err error) {
	if err = json.Unmarshal(value, &x); err != nil {
		return x, err
	}
	if err = (&api.AddRule{Action: x.Action, Selection: x.Selection, Rate: x.Rate, Host: x.Host}).Check(); err != nil {
		return x, err
	}
	var rate settings.Rate
	if x.Rate != "" {
		err = rate.UnmarshalText([]byte(x.Rate))
	}
	if err == nil && x.Host != "" {
		err = new(config.Smarthost).UnmarshalText([]byte(x.Host))
	}
	if err == nil && (nameOf(&x) != key || x.By == "" || x.By == ByRelay || x.Rate != "" && rate.Count == 0) {
		err = errors.New("it is not the rule of its key")
	}
	return x, err
}

// Look returns the rank of a rule, and when it ends.
func (Shared) Look(key string, value []byte) (rank int, until time.Time, err error) {
	x, err := parseShared(key, value)
	return 1, x.Until, err
}

// Apply begins and ends rules, unless they stay.
func (s Shared) Apply(_ context.Context, values map[string][]byte, stays func(key string) bool) error {
	r := s.Rules
	r.mu.Lock()
	defer r.mu.Unlock()
	list, last := r.all(), r.last
	there, same, err := s.of(list)
	if err != nil {
		return err
	}
	var begun, ended []api.Rule
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		if stays(name) || string(value) == string(same[name]) {
			continue
		}
		old, was := there[name]
		x := old
		if value != nil {
			if x, err = parseShared(name, value); err != nil {
				return err
			}
		}
		if value == nil || r.over(&x) {
			if was {
				list = slices.DeleteFunc(list, func(o api.Rule) bool { return o.ID == old.ID })
				ended = append(ended, old)
			}
			continue
		}
		_, plain := pauseOf(&x)
		list = slices.DeleteFunc(list, func(o api.Rule) bool {
			ofAll := o.By == ByRelay && o.All // after damage: until an operator has looked here
			return o.Action == x.Action && o.Selection == x.Selection && !ofAll
		})
		if len(list) >= Most+mostPauses || r.format() == 1 && !plain {
			r.log.Error("a rule of another node is left out: there are too many, or 'mta upgrade finish' is missing",
				"does", x.Does(), "by", x.By)
			continue
		}
		if x.ID = old.ID; !was {
			last++
			x.ID = last
		}
		list, begun = append(list, x), append(begun, x)
	}
	if len(begun)+len(ended) == 0 {
		return nil
	}
	number := r.last
	r.last = last
	if err := r.change(list); err != nil {
		r.last = number
		return err
	}
	for i := range ended {
		r.log.Info("a rule has ended, by another node", "rule", ended[i].ID, "does", ended[i].Does())
		r.ended(&ended[i])
	}
	for i := range begun {
		r.log.Info("a rule has begun, by another node", "rule", begun[i].ID, "does", begun[i].Does(), "by", begun[i].By)
		r.begun(&begun[i])
	}
	return nil
}
