package events

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"example.org/mta/mta/accounting"
)

// object writes the members of a JSON object.
type object struct{ b []byte }

// begin returns an object that is appended to to.
func begin(to []byte) *object { return &object{append(to, '{')} }

func (o *object) key(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(AppendString(o.b, name), ':')
}

func (o *object) text(name, value string) {
	o.key(name)
	o.b = AppendString(o.b, value)
}

// filled writes a text unless it is empty.
func (o *object) filled(name, value string) {
	if value != "" {
		o.text(name, value)
	}
}

func (o *object) number(name string, value int64) {
	o.key(name)
	o.b = strconv.AppendInt(o.b, value, 10)
}

// category writes the message's labels: one as a text, several as a list.
func (o *object) category(tags []string) {
	switch len(tags) {
	case 0:
		return
	case 1:
		o.text("category", tags[0])
		return
	}
	o.key("category")
	list := byte('[')
	for _, tag := range tags {
		o.b = AppendString(append(o.b, list), tag)
		list = ','
	}
	o.b = append(o.b, ']')
}

// pool writes the source pool.
func (o *object) pool(name string) {
	if name == "" {
		return
	}
	o.key("pool")
	o.b = append(AppendString(append(o.b, `{"name":`...), name), '}')
}

// connection writes what is known of the connection to the recipient's host.
func (o *object) connection(r record) {
	if r.Local.Addr().IsValid() {
		o.text("ip", r.Local.Addr().String())
	}
	if r.TLS.Version == "" {
		o.number("tls", 0)
	} else {
		o.number("tls", 1)
	}
}

// arguments writes the sender's data as members beside the others, as SendGrid does with its unique arguments. Those
// with the name of a member of SendGrid's are left out: a sender's data must not pass for what became of the mail.
func (o *object) arguments(meta accounting.Object) error {
	if meta == "" {
		return nil
	}
	d := jsontext.NewDecoder(strings.NewReader(string(meta)))
	if d.PeekKind() != '{' {
		return fmt.Errorf("it is not an object")
	}
	for {
		token, err := d.ReadToken()
		switch {
		case err != nil:
			return err
		case token.Kind() == '{':
			continue
		case token.Kind() == '}':
			return nil
		}
		name := token.String()
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		if !slices.Contains(members, name) {
			o.key(name)
			o.b = append(o.b, value...)
		}
	}
}

// members are the names that SendGrid's events have.
var members = []string{
	"email", "timestamp", "event", "smtp-id", "category", "sg_event_id", "sg_message_id", "response",
	"attempt", "reason",
	"status", "type", "bounce_classification", "ip", "tls", "cert_err", "pool", "send_at", "asm_group_id",
	"useragent", "url",
	"url_offset", "marketing_campaign_id", "marketing_campaign_name", "sg_template_id",
	"sg_template_name", "unique_args",
	"sg_machine_open", "sg_content_type", "post_type",
}
