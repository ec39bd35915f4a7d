package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"example.org/mta/mta/events"
)

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
