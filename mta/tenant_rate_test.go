package mta

import (
	"testing"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
)

func TestATenantsRateHoldsUpNobodyElse(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		tenant "slow" { max_message_rate = "1/d" }
		listener "slow" {
			address = "127.0.0.1:0"
			tenant  = "slow"
		}`)
	other, slow := w.listeners.Addresses(listen.SMTP)[0], w.listeners.Addresses(listen.SMTP)[1]
	w.sendTo(slow, "ann@client.example", letter, "first@box.example")
	w.arrived(1)
	w.sendTo(slow, "ann@client.example", letter, "second@box.example")
	w.sendTo(other, "ann@client.example", letter, "third@box.example")
	if ms := w.arrived(2); ms[1].Recipients[0] != "third@box.example" {
		t.Errorf("%s arrived, against the tenant's rate", ms[1].Recipients)
	}
	lanes := w.delivery.Sites("", 1)[0].Lanes
	if len(lanes) != 1 || lanes[0].Waiting != 1 || lanes[0].Why != "max_message_rate 1/d of tenant slow" {
		t.Errorf("what waits: %+v", lanes)
	}
}
