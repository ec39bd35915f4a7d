package request

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"
)

// parameters are the fields of a request that can stand in a query, and their form there.
var parameters = map[string]func(values []string) any{
	"from": single, "sender": single, "to": several, "cc": several, "bcc": several,
	"send_at": single, "spread": literal, "expires_at": single, "timezone": single, "pace": single,
	"campaign": single, "tags": several, "meta": literal, "priority": literal, "pool": single,
	"notify": several, "envid": single, "ret": single, "dry_run": literal,
}

func single(values []string) any {
	if len(values) > 1 {
		return values
	}
	return values[0]
}

func several(values []string) any { return values }

// literal is a value in JSON: a number, true, or an object.
func literal(values []string) any {
	if len(values) == 1 && json.Valid([]byte(values[0])) {
		return json.RawMessage(values[0])
	}
	return single(values)
}

// DecodeQuery reads the envelope of a raw message, whose content comes separately, from a query: the fields
// of Decode, where those with several values are repeated. Pointers in faults name the parameter. Raw of the
// request is empty and not nil.
func DecodeQuery(query url.Values, now time.Time, l Limits) (*Request, Faults) {
	known := slices.Sorted(maps.Keys(parameters))
	doc := map[string]any{"raw": ""}
	var faults Faults
	for _, name := range slices.Sorted(maps.Keys(query)) {
		form, ok := parameters[name]
		switch {
		case !ok:
			faults.add("", meant(name, known), "there is no parameter %s here", shown(name))
		case !allUTF8(query[name]):
			faults.add("/"+name, "send UTF-8, percent-encoded", "not valid UTF-8")
		default:
			doc[name] = form(query[name])
		}
	}
	body, err := json.Marshal(doc)
	if err != nil {
		return nil, append(faults, Fault{Detail: err.Error()})
	}
	q, more := Decode(body, now, l)
	faults.merge(more)
	return q, faults
}

func allUTF8(values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) })
}
