package config

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/settings"
	"example.org/mta/internal/spelling"
	"example.org/mta/mta/accounting"
)

// Stream is a receiver of events of the accounting log.
//
// A receiver of events: what happened to mail, sent to a program of yours. See [events.md](events.md).
type Stream struct {
	block
	Name string `conf:",label"`

	// Required; the receiver: the `https` URL of a [web hook](events.md), or a broker:
	// [`kafka+tls://`](events.md#kafka), [`nats+tls://`](events.md#nats-jetstream),
	// [`amqps://`](events.md#rabbitmq-and-others-by-amqp). Without TLS (`http`, `kafka`, `nats`, `amqp`) on this
	// machine only.
	To string `conf:"to"`
	// `to` may lead to another machine without TLS: the network in between must be yours.
	AllowClear bool `conf:"allow_clear"`
	// Of the login at a broker.
	User string `conf:"user"`
	// Of the login at a broker; without a user it is a token of NATS.
	Password Secret `conf:"password"`
	// The mechanism of a login at Kafka: `"plain"`, `"scram-sha-256"` or `"scram-sha-512"`.
	SASL string `conf:"sasl" oneof:"plain scram-sha-256 scram-sha-512"`

	// The [types](accounting.md#types) of records to send. Default: all.
	Types []string `conf:"types"`
	// The tenants whose records to send. Default: all.
	Tenants []string `conf:"tenants"`
	// The bounce classifications of records to send; records without one are left out then. Default: all.
	Classes []string `conf:"classes"`

	// `"records"`: a JSON array of records, as they stand in the [accounting log](accounting.md#fields);
	// [`"cloudevents"`](events.md#cloudevents); [`"sendgrid"`](events.md#sendgrids-format).
	Format string `conf:"format" oneof:"records cloudevents sendgrid"`
	// Of requests of 16 KiB or more; or `"off"`. Requests in the format `"sendgrid"` are never compressed.
	Compression string `conf:"compression" oneof:"gzip off"`
	// Keys that [sign requests](events.md#signatures), made by `mta streams key`. With several, each request has a
	// signature by each, so that a key can be replaced without a failure; the format `"sendgrid"` has one.
	Secrets []Secret `conf:"secrets"`
	// Further fields of requests, as `"Authorization: Bearer ..."`.
	Headers []Secret `conf:"headers"`
	// A PEM file of the only authorities that may have signed the receiver's certificate. Default: the system's.
	CA string `conf:"ca"`

	// Events in a request, at most (10,000).
	Batch int `conf:"batch" min:"1" max:"10000"`
	// How long the first event of a batch waits for others.
	Linger time.Duration `conf:"linger" min:"0" max:"1m"`
	// Requests at a time. All events of a message have the same lane, so they stay in order.
	Lanes int `conf:"lanes" min:"1" max:"64"`
	// Of a request with its answer.
	Timeout time.Duration `conf:"timeout" min:"100ms" max:"5m"`
	// How long events wait for a receiver that takes none; the files are kept that long.
	Hold time.Duration `conf:"hold" min:"1m" max:"365d"`
	// Where a new stream begins: with the next event, or with the `"oldest"` in the log.
	From string `conf:"from" oneof:"now oldest"`
}

// SetDefaults is called for each block of the file.
func (s *Stream) SetDefaults() {
	s.Format, s.Compression, s.From, s.SASL = "records", "gzip", "now", "plain"
	s.Batch, s.Linger, s.Lanes = 1000, time.Second, 1
	s.Timeout, s.Hold = 30*time.Second, 3*day
}

func (k checker) streams() {
	for _, s := range k.Streams {
		k.receiver(s)
		k.secrets(s)
		for _, name := range s.Tenants {
			if k.Tenant(name) == nil {
				k.reference(&s.block, "tenants", "tenant", name, tenantNames(k.Tenants))
			}
		}
		for _, name := range s.Types {
			if !slices.Contains(accounting.Types, accounting.Type(name)) {
				k.unknownType(s, name)
			}
		}
		for _, h := range s.Headers {
			name, value, ok := strings.Cut(string(h), ":")
			if !ok || name == "" || textproto.TrimString(name) != name || strings.ContainsAny(string(h), "\r\n\x00") || textproto.TrimString(value) == "" {
				k.problem(&s.block, "headers", `write it as "Authorization: Bearer ..."`, "headers of stream %q: a field is a name, a colon and a value", s.Name)
			}
		}
		if !k.Accounting.Enabled {
			k.problem(&s.block, "", "remove the stream, or write accounting { enabled = true }", "stream %q has no events: the accounting log is off", s.Name)
		}
	}
}

func (k checker) unknownType(s *Stream, name string) {
	words := make([]string, len(accounting.Types))
	for i, t := range accounting.Types {
		words[i] = string(t)
	}
	hint := "there are: " + strings.Join(words, ", ")
	if guess := spelling.Nearest(name, words); guess != "" {
		hint = fmt.Sprintf("did you mean %q?", guess)
	}
	k.problem(&s.block, "types", hint, "types of stream %q: no record has the type %s", s.Name, settings.Quoted(name))
}
