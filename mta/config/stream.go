package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/textproto"
	"net/url"
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

// receiver looks at where a stream leads.
func (k checker) receiver(s *Stream) {
	const remedy = `write an address such as to = "https://hooks.example.com/mail", or ` +
		`"kafka+tls://broker.example.com/mail-events"`
	switch {
	case s.To == "":
		k.problem(&s.block, "to", remedy, "stream %q has no receiver", s.Name)
		return
	case events.IsBroker(s.To):
		k.broker(s)
		return
	}
	for name, set := range map[string]bool{"user": s.User != "", "password": s.Password != ""} {
		if set {
			k.problem(&s.block, name, `write headers = [env("NAME")], a field such as "Authorization: Basic ..."`,
				"stream %q has a %s, which is for brokers, and leads to a web hook", s.Name, name)
		}
	}
	u, err := url.Parse(s.To)
	switch {
	case err != nil || u.Hostname() == "" || u.Fragment != "":
		k.problem(&s.block, "to", remedy, "to of stream %q is not a URL of a receiver", s.Name)
	case u.User != nil:
		k.problem(&s.block, "to", `write headers = [env("NAME")], a field such as "Authorization: Basic ..."`,
			"to of stream %q has a user, which every log would show", s.Name)
	case u.Scheme == "http" && !s.AllowClear && !onThisMachine(u.Hostname()):
		k.problem(&s.block, "to", `write https://, or allow_clear = true if the network is yours`,
			"to of stream %q: events would go over the network in clear, and anybody there could answer for the "+
				"receiver", s.Name)
	case u.Scheme != "https" && u.Scheme != "http":
		k.problem(&s.block, "to", remedy, "to of stream %q: there are no streams to %s URLs", s.Name, u.Scheme)
	}
}

// broker looks at a stream to a broker.
func (k checker) broker(s *Stream) {
	a, err := events.ParseAddress(s.To)
	if err == nil {
		err = checkPlace(a)
	}
	if err != nil {
		k.problem(&s.block, "to", brokerRemedy[schemeOf(s.To)], "to of stream %q: %v", s.Name, err)
		return
	}
	clear := !a.TLS && slices.ContainsFunc(a.Hosts, func(h string) bool {
		host, _, _ := net.SplitHostPort(h)
		return !onThisMachine(host)
	})
	if clear && !s.AllowClear {
		k.problem(&s.block, "to", fmt.Sprintf(`write %s://, or allow_clear = true if the network is yours`,
			withTLS[a.Scheme]), "to of stream %q: events would go over the network in clear, and so would a password",
			s.Name)
	}
	if s.User != "" && s.Password == "" {
		k.problem(&s.block, "password", `write password = env("NAME")`,
			"stream %q has a user without a password", s.Name)
	}
	if s.Password != "" && s.User == "" && a.Scheme != "nats" {
		k.problem(&s.block, "user", `write user = "mta"`, "stream %q has a password without a user", s.Name)
	}
	if s.Format == "sendgrid" {
		k.problem(&s.block, "format", `write format = "records" or "cloudevents"`,
			"stream %q: SendGrid's format is for web hooks", s.Name)
	}
	if len(s.Secrets) > 0 {
		k.problem(&s.block, "secrets", "remove them: a broker has a login, by user and password",
			"stream %q: signatures are for web hooks", s.Name)
	}
	if len(s.Headers) > 0 {
		k.problem(&s.block, "headers", "remove them", "stream %q: further fields are for web hooks", s.Name)
	}
}

// withTLS are the schemes of encrypted connections.
var withTLS = map[string]string{"kafka": "kafka+tls", "nats": "nats+tls", "amqp": "amqps"}

// brokerRemedy has an address of each kind.
var brokerRemedy = map[string]string{
	"kafka": `write "kafka+tls://b1.example.com,b2.example.com/TOPIC"`,
	"nats":  `write "nats+tls://n1.example.com,n2.example.com/SUBJECT"`,
	"amqp":  `write "amqps://mq.example.com/VHOST?exchange=NAME&key=KEY"`,
}

func schemeOf(to string) string {
	name, _, _ := strings.Cut(strings.ToLower(to), ":")
	name = strings.TrimSuffix(name, "+tls")
	if name == "amqps" {
		return "amqp"
	}
	return name
}

// checkPlace looks at what an address has after its hosts.
func checkPlace(a *events.Address) error {
	for name, values := range a.Query {
		switch known := a.Scheme == "amqp" && (name == "exchange" || name == "key"); {
		case !known:
			return fmt.Errorf("it has no parameter %q", name)
		case len(values) > 1:
			return fmt.Errorf("it has the parameter %q twice", name)
		}
	}
	switch a.Scheme {
	case "kafka":
		if a.Path == "" || strings.Contains(a.Path, "/") {
			return errors.New("it names no topic")
		}
	case "nats":
		if a.Path == "" || strings.ContainsAny(a.Path, "/ *>") || slices.Contains(strings.Split(a.Path, "."), "") {
			return errors.New("it names no subject, which has no space, / or wildcard")
		}
		return events.CheckName(a.Path)
	case "amqp":
		if a.Query.Get("exchange") == "" && a.Query.Get("key") == "" {
			return errors.New("it names neither an exchange nor, by its key, a queue")
		}
		return events.CheckName(a.Query.Get("key"))
	}
	return nil
}

func onThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}
