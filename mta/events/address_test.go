package events

import (
	"net/url"
	"reflect"
	"testing"
)

func TestParse(t *testing.T) {
	for to, want := range map[string]*Address{
		"kafka://b1.example.com/mail-events": {Scheme: "kafka", Hosts: []string{"b1.example.com:9092"}, Path: "mail-events"},
		"kafka+tls://b1,b2:19093,[::1]:1,[2001:db8::1]/t": {
			Scheme: "kafka", TLS: true, Hosts: []string{"b1:9093", "b2:19093", "[::1]:1", "[2001:db8::1]:9093"}, Path: "t",
		},
		"nats://127.0.0.1/mail.{tenant}.{type}": {Scheme: "nats", Hosts: []string{"127.0.0.1:4222"}, Path: "mail.{tenant}.{type}"},
		"AMQPS://mq.example.com/%2Fa?exchange=e&key=k": {
			Scheme: "amqp", TLS: true, Hosts: []string{"mq.example.com:5671"}, Path: "/a", Query: url.Values{"exchange": {"e"}, "key": {"k"}},
		},
		"amqp://mq": {Scheme: "amqp", Hosts: []string{"mq:5672"}},

		"":                     nil,
		"http://b/t":           nil,
		"kafka:///t":           nil,
		"kafka://b1,,b2/t":     nil,
		"kafka://u:p@b1/t":     nil,
		"kafka://b1:0/t":       nil,
		"kafka://b1:x/t":       nil,
		"kafka://:9092/t":      nil,
		"kafka://2001:db8::/t": nil,
		"kafka://b1/t#f":       nil,
		"kafka://b1/%zz":       nil,
		"kafka://b1?x=1":       nil,
	} {
		got, err := ParseAddress(to)
		if want != nil && want.Query == nil {
			want.Query = url.Values{}
		}
		if (err == nil) != (want != nil) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", to, got, err, want)
		}
		if want != nil && !IsBroker(to) {
			t.Errorf("%s is not known", to)
		}
	}
}

func TestExpand(t *testing.T) {
	for name, want := range map[string]string{"mail.{tenant}.{type}": "mail.a_b__.Delivery", "fixed": "fixed", "{type}{type}": "DeliveryDelivery"} {
		if got := ExpandName(name, &Event{Type: "Delivery", Tenant: "a.b*>"}); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
	if got := ExpandName("{tenant}", &Event{}); got != "_" {
		t.Errorf("no tenant is %q", got)
	}
	if CheckName("mail.{tennant}") == nil {
		t.Error("a misspelled name is accepted")
	}
}
