package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestReceivers: each kind of receiver with what it needs, and the faults with their remedies.
func TestReceivers(t *testing.T) {
	for _, c := range []struct{ settings, problem string }{
		{`to = "https://app.example.com/hook"`, ""},
		{`to = "http://127.0.0.1:8080/hook"`, ""},
		{`to = "http://app.example.com/hook"`, "allow_clear = true"},
		{"to = \"http://app.example.com/hook\"\nallow_clear = true", ""},
		{"to = \"https://app.example.com/hook\"\nuser = \"x\"", "leads to a web hook"},
		{`to = "https://u:p@app.example.com/hook"`, "every log would show"},
		{`to = "gopher://app.example.com/"`, "no streams to gopher"},
		{`to = ""`, "has no receiver"},

		{`to = "kafka+tls://b1.example.com,b2.example.com:1/mail-events"`, ""},
		{`to = "kafka://127.0.0.1/mail-events"`, ""},
		{`to = "kafka://127.0.0.1,b2.example.com/mail-events"`, "kafka+tls://"},
		{"to = \"kafka://b1.example.com/mail-events\"\nallow_clear = true", ""},
		{`to = "kafka+tls://b1.example.com"`, "names no topic"},
		{`to = "kafka+tls://b1.example.com/a/b"`, "names no topic"},
		{`to = "kafka+tls://b1.example.com/t?x=1"`, "no parameter"},
		{`to = "kafka+tls://u:p@b1.example.com/t"`, "write user and password beside it"},
		{"to = \"kafka+tls://b1.example.com/t\"\nuser = \"mta\"\npassword = \"x\"\nsasl = \"scram-sha-512\"", ""},
		{"to = \"kafka+tls://b1.example.com/t\"\nuser = \"mta\"", "without a password"},
		{"to = \"kafka+tls://b1.example.com/t\"\npassword = \"x\"", "without a user"},
		{"to = \"kafka+tls://b1.example.com/t\"\nuser = \"mta\"\npassword = \"x\"\nsasl = \"gssapi\"", "sasl"},
		{"to = \"kafka+tls://b1.example.com/t\"\nformat = \"sendgrid\"", "is for web hooks"},
		{"to = \"kafka+tls://b1.example.com/t\"\nheaders = [\"X: y\"]", "are for web hooks"},
		{"to = \"kafka+tls://b1.example.com/t\"\nsecrets = [\"whsec_hunter2hunter2hunter2hunter2hunter2\"]", "are for web hooks"},

		{`to = "nats+tls://n1.example.com/mail.{tenant}.{type}"`, ""},
		{"to = \"nats+tls://n1.example.com/mail\"\npassword = \"token\"", ""},
		{`to = "nats+tls://n1.example.com/mail.*"`, "names no subject"},
		{`to = "nats+tls://n1.example.com/mail..x"`, "names no subject"},
		{`to = "nats+tls://n1.example.com/mail.{tennant}"`, "brace"},

		{`to = "amqps://mq.example.com/?exchange=mail&key={type}"`, ""},
		{`to = "amqps://mq.example.com/vhost?key=queue"`, ""},
		{`to = "amqps://mq.example.com/vhost"`, "neither an exchange nor"},
		{`to = "amqps://mq.example.com/vhost?key=a&key=b"`, "twice"},
		{`to = "amqps://mq.example.com/vhost?routing_key=a"`, "no parameter"},
	} {
		_, err := Parse(fmt.Appendf(nil, "stream \"s\" {\n%s\n}", c.settings), "mta.conf", noEnv)
		switch {
		case c.problem == "" && err != nil:
			t.Errorf("%s: %v", c.settings, err)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("%s: the error is %v, and should say %q", c.settings, err, c.problem)
		}
	}
}
