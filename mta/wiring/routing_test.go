package wiring

import (
	"testing"

	"example.org/mta/mta/config"
)

func TestRouterSettingsOfTheFile(t *testing.T) {
	cfg, err := config.Parse([]byte(`router {
		refuse_private = true
		ipv6           = false
	}`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Router(cfg, nil)
	if err != nil || !s.RefusePrivate || !s.NoIPv6 || s.NoIPv4 {
		t.Errorf("the router has %+v, %v", s, err)
	}
}
