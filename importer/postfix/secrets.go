package postfix

import (
	"strings"

	"example.org/mta/importer"
)

// password is an entry of smtp_sasl_password_maps.
type password struct {
	*entry
	user, secret string
	used         bool
}

// saslPasswords reads smtp_sasl_password_maps, where it is in use.
func (im *importing) saslPasswords(whole scope) (all []*password) {
	tables := whole.tablesOf("smtp_sasl_password_maps", true)
	enabled, _ := whole.flag("smtp_sasl_auth_enable")
	for _, s := range im.services {
		if s.command == "smtp" {
			own, _ := scope{im, s.own}.flag("smtp_sasl_auth_enable")
			enabled = enabled || own
		}
	}
	if !enabled {
		return nil
	}
	for _, t := range tables {
		entries := t.entries
		if t.any != nil {
			entries = append(entries, *t.any)
		}
		for i := range entries {
			e := &entries[i]
			user, secret, ok := strings.Cut(e.value, ":")
			if !ok || user == "" || secret == "" {
				im.fail(e.at, "the value is not user:password: write it so")
				continue
			}
			p := &password{e, user, secret, false}
			all = append(all, p)
			if im.passwordOf[p.key] == nil {
				im.passwordOf[p.key] = p
			}
		}
	}
	return all
}

// login writes user and password of a route.
func (im *importing) login(b *importer.Block, h *hop, want map[string]setting) {
	p := im.passwordFor(h)
	if p == nil {
		return
	}
	p.used = true
	b.Set("username", p.user, p.at)
	b.SetSecret("password", p.key, p.secret, p.at)
	if level := want["tls"].value; level != "verified" && level != nil {
		delete(want, "tls")
		want["tls"] = setting{"verified", p.at}
		im.top.Noted(p.at, "passwords go over TLS only, to a host with a certificate for its name")
	}
}

// passwordFor finds the login for the first host of a route: by the next hop as it is written, by host and port, by
// host.
func (im *importing) passwordFor(h *hop) *password {
	if len(h.names) == 0 {
		return nil
	}
	host, port, _, err := nexthop(h.names[0])
	if err != nil {
		return nil
	}
	for _, key := range []string{h.names[0], "[" + host + "]:" + port, host + ":" + port, "[" + host + "]", host, "*"} {
		if p := im.passwordOf[strings.ToLower(key)]; p != nil {
			return p
		}
	}
	return nil
}

// unusedPasswords notes those that belong to no route.
func (im *importing) unusedPasswords() {
	for _, p := range im.passwords {
		switch {
		case p.used || p.key == "*":
		case strings.Contains(p.key, "@"):
			im.top.Lost(p.at, "logins are by route, not by sender: write sender_domain with a route", true)
		default:
			im.top.Lost(p.at, "no route leads there, so the login has no use", false)
		}
	}
}
