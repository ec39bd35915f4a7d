package delivery

import (
	"fmt"
	"strings"
	"testing"

	"example.org/mta/destdb"
	"example.org/mta/internal/route"
)

// Mail for a smarthost shares connections when its accounts are equal, also after a reload, and the keys of
// lanes and paths hold no password that a log could show.
func TestLanesOfAccounts(t *testing.T) {
	host := route.Host{Name: "smart.example"}
	keys := func(auth *route.Auth) (laneKey, destdb.PathKey) {
		k := laneOf(&Job{Source: "out1", Route: &route.Route{Site: "smart.example", Auth: auth}})
		return k, destdb.PathKey{Source: "out1", Policy: k.policy(host)}
	}
	lane, path := keys(&route.Auth{Username: "me", Password: "secret"})
	if again, p := keys(&route.Auth{Username: "me", Password: "secret"}); again != lane || p != path {
		t.Error("equal accounts have different lanes or paths")
	}
	for what, auth := range map[string]*route.Auth{
		"another password": {Username: "me", Password: "other"}, "another user": {Username: "you", Password: "secret"}, "no account": nil,
	} {
		if other, p := keys(auth); other == lane || p == path {
			t.Errorf("%s has the same lane or path", what)
		}
	}
	if text := fmt.Sprintf("%+v %#v %+v %#v", lane, lane, path, path); strings.Contains(text, "secret") {
		t.Errorf("a key holds the password: %s", text)
	}
}
