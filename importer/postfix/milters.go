package postfix

import (
	"net"
	"path"
	"slices"
	"strings"

	"example.org/mta/importer"
)

// milter is one that listeners ask.
type milter struct {
	name      string
	address   string
	at        importer.Origin
	listeners []string
}

var slug = strings.NewReplacer("/", "-", ":", "-")

// milters notes those of a listener.
func (im *importing) milters(listener string, p scope) {
	value, at, _ := p.text("smtpd_milters")
	if strings.Contains(value, "{") {
		im.top.Lost(at, "a milter with settings of its own: write a milter block with address, timeout and on_error",
			true)
		return
	}
	for _, item := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
		kind, where, _ := strings.Cut(item, ":")
		_, _, err := net.SplitHostPort(where)
		switch {
		case (kind == "unix" || kind == "local") && where != "":
			if item = "unix:" + where; !path.IsAbs(where) {
				queue, _, _ := p.text("queue_directory")
				item = "unix:" + path.Join("/", queue, where)
			}
		case kind != "inet" || err != nil:
			im.fail(at, "smtpd_milters: %q is not an address: write one such as inet:localhost:8891",
				importer.Short(item))
			continue
		}
		i := slices.IndexFunc(im.asked, func(m *milter) bool { return m.address == item })
		if i < 0 {
			name := strings.Trim(slug.Replace(where), "-")
			i, im.asked = len(im.asked), append(im.asked, &milter{name: name, address: item, at: at})
		}
		im.asked[i].listeners = append(im.asked[i].listeners, listener)
	}
}

// writeMilters writes them, when all listeners are known.
func (im *importing) writeMilters(listeners int) {
	if len(im.asked) == 0 {
		return
	}
	whole := scope{im: im}
	onError, onErrorAt, set := whole.text("milter_default_action")
	local, localAt, alone := whole.text("non_smtpd_milters")
	if smtpd, _, _ := whole.text("smtpd_milters"); alone && local != smtpd {
		im.top.Lost(localAt, "mail of sendmail goes to the milters of the first listener", true)
	}
	for _, m := range im.asked {
		b := im.top.Inner("milter", m.name)
		b.Set("address", m.address, m.at)
		switch onError {
		case "accept":
			b.Set("on_error", "accept", onErrorAt)
		case "reject", "quarantine", "shutdown":
			b.Noted(onErrorAt, "mail that a milter can't decide on gets a 451")
		default:
			if set {
				b.From(onErrorAt)
			}
		}
		if len(m.listeners) < listeners {
			b.Set("listeners", m.listeners, importer.Origin{})
		}
	}
}
