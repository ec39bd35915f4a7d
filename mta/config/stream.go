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
type Stream struct {
	block
	Name string `conf:",label"`

	// To is the receiver: the URL of a web hook or of a broker.
	To string `conf:"to"`
	// AllowClear lets To be on another machine without TLS.
	AllowClear bool `conf:"allow_clear"`
	// User and Password are the login at a broker.
	User     string `conf:"user"`
	Password Secret `conf:"password"`
	// SASL is the mechanism of a login at Kafka.
	SASL string `conf:"sasl" oneof:"plain scram-sha-256 scram-sha-512"`

	// Types, Tenants and Classes select records: those with one of the values of each setting that is there.
	Types   []string `conf:"types"`
	Tenants []string `conf:"tenants"`
	Classes []string `conf:"classes"`

	Format      string   `conf:"format" oneof:"records cloudevents sendgrid"`
	Compression string   `conf:"compression" oneof:"gzip off"` // of requests
	Secrets     []Secret `conf:"secrets"`                      // that sign requests, each of them
	Headers     []Secret `conf:"headers"`                      // fields of requests, as "Name: value"
	CA          string   `conf:"ca"`                           // PEM: the authorities that sign the receiver's certificate; "": the system's

	Batch   int           `conf:"batch" min:"1" max:"10000"`    // events in a request, at most
	Linger  time.Duration `conf:"linger" min:"0" max:"1m"`      // how long the first event of a batch waits for others
	Lanes   int           `conf:"lanes" min:"1" max:"64"`       // requests at a time; the events of a message have one lane
	Timeout time.Duration `conf:"timeout" min:"100ms" max:"5m"` // of a request with its answer
	Hold    time.Duration `conf:"hold" min:"1m" max:"365d"`     // how long events wait for a receiver that takes none
	From    string        `conf:"from" oneof:"now oldest"`      // the first event of a new stream
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
