package router

import (
	"strings"
	"testing"
)

func TestSettingsAreValidated(t *testing.T) {
	for _, tc := range []struct {
		s    Settings
		want string
	}{
		{Settings{}, ""},
		{Settings{NoIPv4: true, NoIPv6: true}, "both IPv4 and IPv6"},
		{Settings{Self: []string{"a..b"}}, "own name"},
		{Settings{Smarthosts: []SmarthostRoute{{"*.*.test", hosts("a:25")}}}, "before the first dot"},
		{Settings{Smarthosts: []SmarthostRoute{{"", hosts("a:25")}}}, "empty"},
		{Settings{Smarthosts: []SmarthostRoute{{"a.test", nil}}}, "names no host"},
		{Settings{Smarthosts: []SmarthostRoute{{"a.test", hosts("a:25")}, {"A.test", hosts("b:25")}}}, "two routes"},
		{Settings{Smarthosts: []SmarthostRoute{{"*", hosts("a:25")}, {"*", hosts("b:25")}}}, "two routes"},
		{Settings{Smarthosts: []SmarthostRoute{{"[300.1.1.1]", hosts("a:25")}}}, "literal"},
		{Settings{Providers: []Provider{{"a", []string{"*.x.test"}}, {"b", []string{"*.X.test"}}}}, "another provider"},
		{Settings{Providers: []Provider{{"a", []string{"mx[1-3].x.test"}}}}, `provider "a"`},
	} {
		err := tc.s.Validate()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.s, err, tc.want)
		}
	}
}
