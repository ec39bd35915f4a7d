package request

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Data are the values of variables.
type Data struct{ values map[string]any }

// NewData takes values from JSON: map[string]any, []any, string, bool, nil, float64 or json.Number. It
// copies them in the form that the library prints as JSON shows them: no <nil>, no 1e+06.
func NewData(values map[string]any) Data {
	if values == nil {
		return Data{map[string]any{}}
	}
	return Data{plainValue(values).(map[string]any)}
}

func plainValue(v any) any {
	switch v := v.(type) {
	case nil:
		return ""
	case string, bool:
		return v
	case map[string]any:
		m := make(map[string]any, len(v))
		for name, value := range v {
			m[name] = plainValue(value)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, value := range v {
			l[i] = plainValue(value)
		}
		return l
	case json.Number:
		if f, err := v.Float64(); err == nil && f == 0 {
			return 0 // false in a section
		}
		return v.String()
	case float64:
		if v == 0 {
			return 0
		}
		if math.Abs(v) < 1e21 {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}
