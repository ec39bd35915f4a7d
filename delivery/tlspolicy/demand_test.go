package tlspolicy

import (
	"testing"

	"example.org/mta/internal/route"
)

func TestDecide(t *testing.T) {
	enforce := route.STS{Mode: route.STSEnforce, MX: "mx.example"}
	testing_ := route.STS{Mode: route.STSTesting, MX: "mx.example"}
	both := func(l Level) Settings { return Settings{Level: l, STS: true, DANE: true} }
	for _, test := range []struct {
		name     string
		settings Settings
		route    route.Route
		message  Message
		want     Demand
	}{
		{"opportunistic", both(Opportunistic), route.Route{}, Message{}, Demand{}},
		{"required", both(Required), route.Route{}, Message{}, Demand{Level: Required}},
		{"verified", both(Verified), route.Route{}, Message{}, Demand{Level: Verified}},
		{"off", both(Off), route.Route{STS: enforce, Secure: true}, Message{}, Demand{Level: Off, Unreported: true}},
		{"a configured route", both(Opportunistic), route.Route{Configured: true}, Message{}, Demand{DANE: true, Unreported: true}},
		{"secure MX", both(Opportunistic), route.Route{Secure: true}, Message{}, Demand{DANE: true}},
		{"smarthost", both(Opportunistic), route.Route{Configured: true}, Message{}, Demand{DANE: true, Unreported: true}},
		{"DANE switched off", Settings{STS: true}, route.Route{Secure: true}, Message{}, Demand{}},
		{"enforce", both(Opportunistic), route.Route{STS: enforce}, Message{}, Demand{Level: Verified, STS: enforce}},
		{"enforce and required", both(Required), route.Route{STS: enforce}, Message{}, Demand{Level: Verified, STS: enforce}},
		{"enforce and verified", both(Verified), route.Route{STS: enforce}, Message{}, Demand{Level: Verified, STS: enforce}},
		{"enforce switched off", Settings{DANE: true}, route.Route{STS: enforce}, Message{}, Demand{}},
		{"testing", both(Opportunistic), route.Route{STS: testing_}, Message{}, Demand{STS: testing_}},
		{"a user", both(Opportunistic), route.Route{Auth: &route.Auth{}}, Message{}, Demand{Level: Verified}},
		{"a user, TLS not needed", both(Required), route.Route{Auth: &route.Auth{}}, Message{NotNeeded: true}, Demand{Level: Verified, Unreported: true}},
		{"smtps", both(Opportunistic), route.Route{Implicit: true}, Message{}, Demand{Level: Verified, Implicit: true}},
		{"smtps, any certificate", both(Required), route.Route{Implicit: true}, Message{}, Demand{Level: Required, Implicit: true}},
		{"REQUIRETLS", both(Opportunistic), route.Route{Secure: true}, Message{RequireTLS: true}, Demand{Level: Verified, DANE: true, RequireTLS: true}},
		{"REQUIRETLS where TLS is off", both(Off), route.Route{}, Message{RequireTLS: true}, Demand{Level: Verified, RequireTLS: true, Doubtful: true}},
		{"REQUIRETLS and testing", both(Opportunistic), route.Route{STS: testing_}, Message{RequireTLS: true}, Demand{Level: Verified, STS: testing_, RequireTLS: true, Doubtful: true}},
		{"REQUIRETLS and TLS-Required", both(Opportunistic), route.Route{STS: enforce}, Message{RequireTLS: true, NotNeeded: true}, Demand{Level: Verified, STS: enforce, RequireTLS: true}},
		{"REQUIRETLS of a report", both(Opportunistic), route.Route{}, Message{RequireTLS: true, Report: true}, Demand{}},
		{"TLS-Required", both(Opportunistic), route.Route{STS: enforce, Secure: true}, Message{NotNeeded: true}, Demand{Unreported: true}},
		{"TLS-Required where it is required", both(Required), route.Route{STS: enforce}, Message{NotNeeded: true}, Demand{Level: Required, Unreported: true}},
	} {
		if got := Decide(test.settings, &test.route, test.message); got != test.want {
			t.Errorf("%s: %+v; want %+v", test.name, got, test.want)
		}
	}
}
