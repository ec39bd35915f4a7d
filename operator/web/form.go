package web

import (
	"slices"
	"strings"

	"example.org/mta/operator/api"
)

// input is a field of a form: a text, a box to tick, or a choice.
type input struct {
	Name, Label, Value, Hint string
	Flag                     bool
	Options                  []option
}

type option struct {
	Value, Text string
	Selected    bool
}

// params are a request's parameters, apart from those of its page.
func params(request any) []api.Param {
	return slices.DeleteFunc(api.Params(request), func(p api.Param) bool {
		return p.Name == "after" || p.Name == "limit"
	})
}

// inputs makes the fields of a form from the parameters of a request, see api.Param, with their values; boxes come
// last.
func inputs(request any, without ...string) (all []input) {
	var boxes []input
	for _, p := range params(request) {
		if slices.Contains(without, p.Name) {
			continue
		}
		value, _ := p.Text()
		in := input{Name: p.Name, Label: p.Tag.Get("label"), Value: value, Hint: p.Tag.Get("hint"), Flag: p.IsFlag()}
		switch {
		case in.Label != "":
		case in.Flag:
			in.Label = p.Name
		default:
			in.Label = capital(p.Name)
		}
		if p.IsList() {
			in.Value = strings.ReplaceAll(value, ",", ", ")
		}
		if len(p.Words) > 0 {
			in.Options = options(p, value)
		}
		if in.Flag {
			boxes = append(boxes, in)
		} else {
			all = append(all, in)
		}
	}
	return append(all, boxes...)
}

// options are the words of a parameter. A tag has others for people.
func options(p api.Param, value string) (all []option) {
	if p.Default == "" {
		all = append(all, option{"", "any", value == ""})
	}
	texts := p.Words
	if own := p.Tag.Get("options"); own != "" {
		texts = strings.Split(own, ",")
	}
	for i, word := range p.Words {
		all = append(all, option{word, texts[i], word == value})
	}
	return all
}

// paramsOf are the names of a request's parameters, and more.
func paramsOf(request any, more ...string) (names []string) {
	for _, p := range params(request) {
		names = append(names, p.Name)
	}
	return append(names, more...)
}

// read reads the parameters of a request.
func (r *request) read(request any) error {
	for _, p := range params(request) {
		value := r.get(p.Name)
		switch {
		case p.IsFlag():
			value = ""
			if r.flag(p.Name) {
				value = "true"
			}
		case p.IsList():
			value = strings.Join(r.list(p.Name), ",")
		}
		if value == "" {
			continue
		}
		if err := p.Set(value); err != nil {
			return api.Invalid("", "%s: %v", p.Name, err)
		}
	}
	return nil
}
