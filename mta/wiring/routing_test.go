package wiring

import (
	"testing"
	"time"

	"example.org/mta/mta/config"
)

func TestRouterSettingsOfTheFile(t *testing.T) {
	cfg, err := config.Parse([]byte(`router {
		refuse_private = true
		timeout        = "7s"
		max_route_age  = "3m"
	}`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Router(cfg, nil)
	if err != nil || !s.RefusePrivate || s.Timeout != 7*time.Second || s.MaxRouteAge != 3*time.Minute {
		t.Errorf("the router has %+v, %v", s, err)
	}
}
