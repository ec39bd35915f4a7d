package mta

import (
	"fmt"
	"net/smtp"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"

	"example.org/mta/operator/api"
)

// A relay with no memory left refuses nearly everything, reports and a postmaster's mail excepted, says
// so to its operator, and takes everything again after a reload.
func TestAdmissionOfARelay(t *testing.T) {
	const shop = `
		defaults { smtp_port = 1 } # nobody listens there
		tenant "acme" {
			networks = ["127.0.0.0/8"]
			tier     = 4
		}`
	w := newWorld(t, sink.Config{}, `admission { memory_limit = "1KiB" }`+shop)
	submit := func(from string) string {
		err := smtp.SendMail(w.listeners.Addresses(listen.SMTP)[0], nil, from, []string{"bob@box.example"}, []byte(letter))
		return strings.ReplaceAll(fmt.Sprint(err), `"`, "")
	}
	refused := 0
	for end := time.Now().Add(time.Minute); refused == 0 && time.Now().Before(end); { // the gate has not looked yet
		if reply := submit("a@client.example"); strings.HasPrefix(reply, "451 4.3.2 ") {
			refused++
		} else if reply != "<nil>" {
			t.Fatal(reply)
		}
	}
	if refused == 0 {
		t.Fatal("nothing is refused")
	}
	if reply := submit("postmaster@client.example"); reply != "<nil>" {
		t.Errorf("a postmaster's mail: %s", reply)
	}
	a, err := w.api.Admissions.Admission(t.Context())
	if err != nil || a.Share < .9 || a.Reason != "memory" || a.Tiers[4].Refused == 0 || len(a.Refusals) != 1 || a.Refusals[0].Tenant != "acme" {
		t.Errorf("%+v", a)
	}
	for _, who := range []string{"acme", "127.0.0.1", "a@client.example"} {
		v, err := w.api.Admissions.WhyRefused(t.Context(), api.WhyQuery{Who: who})
		if err != nil || v.Tenant != "acme" || v.Tier != 4 || v.Refused == 0 || v.Admitted > .5 || v.Reason != "memory" {
			t.Errorf("%s: %+v, %v", who, v, err)
		}
	}
	if _, err := w.api.Admissions.WhyRefused(t.Context(), api.WhyQuery{Who: "nobody"}); err == nil {
		t.Error("a tenant that does not exist is explained")
	}
	if page := w.scrape(); !strings.Contains(page, `mta_admission_refused_total{reason="memory",tenant="acme",tier="4"} `) || !strings.Contains(page, "mta_admission_refused_share 0.98") {
		t.Error("the metrics do not have it")
	}
	w.rewrite("off", `admission { mode = "off" }`+shop)
	if _, err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if reply := submit("a@client.example"); reply != "<nil>" {
			t.Errorf("after the reload: %s", reply)
		}
	}
}
