package queue

import (
	"testing"

	"example.org/mta/internal/envelope"
)

func TestFilterMatches(t *testing.T) {
	m := &envelope.Message{Sender: "Ann@Client.example", Tenant: "acme"}
	r := &envelope.Recipient{Address: "bob@mail.box.example"}
	for _, c := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true},
		{Filter{Sender: "ann@client.example"}, true},
		{Filter{Sender: "@client.EXAMPLE"}, true},
		{Filter{Sender: "@example"}, false},
		{Filter{Sender: "<>"}, false},
		{Filter{Tenant: "acme"}, true},
		{Filter{Tenant: "other"}, false},
		{Filter{Recipient: "@mail.box.example"}, true},
		{Filter{Recipient: "bob@box.example"}, false},
		{Filter{Domain: "mail.box.example"}, true},
		{Filter{Domain: "*.box.example"}, true},
		{Filter{Domain: "*.mail.box.example"}, false},
		{Filter{Domain: "box.example"}, false},
	} {
		if got := c.f.message(m) && c.f.recipient(r); got != c.want {
			t.Errorf("%+v: %v", c.f, got)
		}
	}
	if f := (Filter{Sender: "<>"}); !f.message(&envelope.Message{}) {
		t.Error("<> doesn't select the null sender")
	}
}
