package config

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/legible"
	"example.org/mta/internal/settings"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/events"
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
	SASL string `conf:"sasl" default:"plain" oneof:"plain scram-sha-256 scram-sha-512"`

	// The [types](accounting.md#types) of records to send. Default: all.
	Types []string `conf:"types"`
	// The tenants whose records to send. Default: all.
	Tenants []string `conf:"tenants"`
	// The bounce classifications of records to send; records without one are left out then. Default: all.
	Classes []string `conf:"classes"`

	// `"records"`: a JSON array of records, as they stand in the [accounting log](accounting.md#fields);
	// [`"cloudevents"`](events.md#cloudevents); [`"sendgrid"`](events.md#sendgrids-format).
	Format string `conf:"format" default:"records" oneof:"records cloudevents sendgrid"`
	// Of requests of 16 KiB or more; or `"off"`. Requests in the format `"sendgrid"` are never compressed.
	Compression string `conf:"compression" default:"gzip" oneof:"gzip off"`
	// Keys that [sign requests](events.md#signatures), made by `mta streams key`. With several, each request has a
	// signature by each; the format `"sendgrid"` has one.
	Secrets []Secret `conf:"secrets"`
	// Further fields of requests, as `"Authorization: Bearer ..."`.
	Headers []Secret `conf:"headers"`
	// A PEM file of the only authorities that may have signed the receiver's certificate. Default: the system's.
	CA string `conf:"ca"`

	// Events in a request, at most (10,000).
	Batch int `conf:"batch" default:"1000" min:"1" max:"10000"`
	// How long the first event of a batch waits for others.
	Linger time.Duration `conf:"linger" default:"1s" min:"0" max:"1m"`
	// Requests at a time. The events of a message stay in order.
	Lanes int `conf:"lanes" default:"1" min:"1" max:"64"`
	// Of a request with its answer.
	Timeout time.Duration `conf:"timeout" default:"30s" min:"100ms" max:"5m"`
	// How long events wait for a receiver that takes none, as the log's files do.
	Hold time.Duration `conf:"hold" default:"3d" min:"1m" max:"365d"`
	// Where a new stream begins: with the next event, or with the `"oldest"` in the log.
	From string `conf:"from" default:"now" oneof:"now oldest"`
}

func (k checker) streams() {
	for _, s := range k.Streams {
		k.receiver(s)
		k.secrets(s)
		k.names(&s.block, "tenants", "tenant", s.Tenants, k.Names("tenant"))
		for _, name := range s.Types {
			if !slices.Contains(accounting.Types, accounting.Type(name)) {
				k.unknownType(s, name)
			}
		}
		for _, h := range s.Headers {
			name, value, ok := strings.Cut(string(h), ":")
			if !ok || name == "" || textproto.TrimString(name) != name || strings.ContainsAny(string(h), "\r\n\x00") ||
				textproto.TrimString(value) == "" {
				k.problem(&s.block, "headers", `write it as "Authorization: Bearer ..."`,
					"headers of stream %q: a field is a name, a colon and a value", s.Name)
			}
		}
		if !k.Accounting.Enabled {
			k.problem(&s.block, "", "remove the stream, or write accounting { enabled = true }",
				"stream %q has no events: the accounting log is off", s.Name)
		}
	}
}

func (k checker) unknownType(s *Stream, name string) {
	words := make([]string, len(accounting.Types))
	for i, t := range accounting.Types {
		words[i] = string(t)
	}
	hint := "there are: " + strings.Join(words, ", ")
	if guess := legible.Nearest(name, words); guess != "" {
		hint = fmt.Sprintf("did you mean %q?", guess)
	}
	k.problem(&s.block, "types", hint, "types of stream %q: no record has the type %s", s.Name, settings.Quoted(name))
}

// Signer returns what signs the stream's requests, nil when it has no secrets.
func (s *Stream) Signer() (events.Signer, error) {
	signer, _, err := s.readSecrets()
	return signer, err
}

// PublicKeys returns what receivers verify the signature of each secret by, "" for a secret that both sides share.
func (s *Stream) PublicKeys() ([]string, error) {
	_, public, err := s.readSecrets()
	return public, err
}

func (s *Stream) readSecrets() (signer events.Signer, public []string, err error) {
	if len(s.Secrets) == 0 {
		return nil, nil, nil
	}
	if s.Format == "sendgrid" {
		if len(s.Secrets) > 1 {
			return nil, nil,
				fmt.Errorf("a request in SendGrid's format has one signature, and there are %d secrets", len(s.Secrets))
		}
		key, err := events.ParseSendGridKey(string(s.Secrets[0]))
		if err != nil {
			return nil, nil, err
		}
		return key, []string{key.Public()}, nil
	}
	keys := make([]events.WebhookKey, len(s.Secrets))
	for i, secret := range s.Secrets {
		if keys[i], err = events.ParseSecret(string(secret)); err != nil {
			return nil, nil, err
		}
		public = append(public, keys[i].Public())
	}
	return events.NewStandardWebhooks(keys...), public, nil
}

// secrets looks at the keys that sign requests.
func (k checker) secrets(s *Stream) {
	if _, err := s.Signer(); err != nil {
		k.problem(&s.block, "secrets", "make one with 'mta streams key'", "secrets of stream %q: %v", s.Name, err)
	}
}
