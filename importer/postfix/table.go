package postfix

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"example.org/mta/importer"
)

// table is a look-up table that was read whole.
type table struct {
	entries []entry
	first   map[string]int // of the entries with a key
	// any is what every key has: of static: and randmap: tables.
	any *entry
}

type entry struct {
	key, value string   // the key in lower case
	values     []string // of randmap:, one of which is chosen for each message
	at         importer.Origin
}

// answersAll returns the first entry for all keys. Postfix looks a whole address up in all tables before it looks its
// domain up in any, so that domains have no effect in these tables.
func answersAll(tables []*table) *entry {
	for _, t := range tables {
		if t.any != nil {
			return t.any
		}
	}
	return nil
}

// find returns the entry of a key.
func (t *table) find(key string) *entry {
	if i, ok := t.first[strings.ToLower(key)]; ok {
		return &t.entries[i]
	}
	return t.any
}

func (t *table) add(e entry) {
	if t.first == nil {
		t.first = make(map[string]int)
	}
	if _, twice := t.first[e.key]; !twice {
		t.first[e.key] = len(t.entries)
	}
	t.entries = append(t.entries, e)
}

// tablesOf reads the tables that a parameter names, in their order. Those that can't be read without a server, and
// those of patterns, are noted as not carried. secret has values kept out of all notes.
func (s scope) tablesOf(name string, secret bool) (tables []*table) {
	value, at, set := s.text(name)
	if !set {
		return nil
	}
	for _, spec := range list(value) {
		t, reason, err := s.im.table(spec, at, secret)
		switch {
		case err != nil:
			s.im.fail(at, "%s: %v", name, err)
		case reason != "":
			if secret {
				spec, _, _ = strings.Cut(spec, ":")
			}
			s.im.top.Lost(at, fmt.Sprintf("%s: %s", spec, reason), true)
		default:
			tables = append(tables, t)
		}
	}
	return tables
}

// table reads one. reason is why it can't be carried.
func (im *importing) table(spec string, at importer.Origin, secret bool) (t *table, reason string, err error) {
	kind, name, ok := strings.Cut(spec, ":")
	if kind == "proxy" && ok {
		return im.table(name, at, secret)
	}
	if !ok {
		kind, name = scope{im: im}.defaultType(), spec
	}
	if im.depth++; im.depth > 10 {
		return nil, "", fmt.Errorf("tables stand in one another more than ten deep: write them as one")
	}
	defer func() { im.depth-- }()
	switch kind {
	case "texthash", "hash", "btree", "lmdb", "dbm", "cdb", "sdbm":
		t, err := im.tableFile(name, secret)
		return t, "", err
	case "static":
		return &table{any: &entry{key: "*", value: unbrace(name), at: at}}, "", nil
	case "randmap":
		in, ok := balanced(name)
		if values := list(in); ok && len(values) > 0 {
			return &table{any: &entry{key: "*", values: values, at: at}}, "", nil
		}
		return nil, "", errors.New("write it as randmap:{ value, ... }")
	case "inline":
		t, err := inline(name, at)
		return t, "", err
	case "pipemap", "unionmap":
		return im.composed(kind, name, at, secret)
	case "regexp", "pcre":
		return nil, im.patterns(name), nil
	case "cidr":
		t, err := im.tableFile(name, secret)
		return t, "", err
	}
	return nil, kind +
		" tables are not read: they may need a server. Write their entries into a texthash file, and import again", nil
}

func (s scope) defaultType() string { v, _, _ := s.text("default_database_type"); return v }

// inline reads "{ key = value, { key = value } }".
func inline(s string, at importer.Origin) (*table, error) {
	in, ok := balanced(s)
	if !ok {
		return nil, errors.New("write it as inline:{ key=value, ... }")
	}
	t := &table{}
	for _, item := range list(strings.ReplaceAll(in, " = ", "=")) {
		key, value, ok := strings.Cut(unbrace(item), "=")
		if !ok {
			return nil, errors.New("inline: an entry is not key=value: write it so")
		}
		t.add(entry{key: strings.ToLower(strings.TrimSpace(key)), value: strings.TrimSpace(value), at: at})
	}
	return t, nil
}

// composed reads pipemap: and unionmap: tables whose parts can be read.
func (im *importing) composed(kind, name string, at importer.Origin, secret bool) (*table, string, error) {
	in, ok := balanced(name)
	if !ok {
		return nil, "", fmt.Errorf("write it as %s:{ table, ... }", kind)
	}
	var all *table
	for _, spec := range list(in) {
		t, reason, err := im.table(unbrace(spec), at, secret)
		switch {
		case err != nil || reason != "":
			return nil, reason, err
		case all == nil:
			all = t
		case all.any != nil || t.any != nil && kind == "unionmap":
			return nil, kind + " of such tables has no counterpart", nil
		case kind == "pipemap":
			all = piped(all, t)
		default:
			all = united(all, t)
		}
	}
	if all == nil {
		return nil, "", fmt.Errorf("%s names no table: write one in the braces", kind)
	}
	return all, "", nil
}

// piped looks the values of a up in b.
func piped(a, b *table) *table {
	out := &table{}
	for _, e := range a.entries {
		if to := b.find(e.value); to != nil {
			e.value, e.values = to.value, to.values
			out.add(e)
		}
	}
	return out
}

// united has the values of both.
func united(a, b *table) *table {
	out := &table{}
	for _, e := range slices.Concat(a.entries, b.entries) {
		if has := out.find(e.key); has != nil {
			has.value += "," + e.value
		} else {
			out.add(e)
		}
	}
	return out
}

// tableFile reads the text from which Postfix makes an indexed file, and not that file.
func (im *importing) tableFile(path string, secret bool) (*table, error) {
	data, shown, err := im.file(path, maxTable)
	if err != nil {
		return nil, err
	}
	t := &table{}
	for _, l := range logicalLines(data) {
		at := importer.Origin{File: shown, Line: l.number, Directive: l.text}
		key, value, ok := strings.Cut(strings.ReplaceAll(l.text, "\t", " "), " ")
		if secret {
			at.Directive = key
		}
		if !ok {
			im.fail(at, "the entry has a key and no value: write one, or remove the line")
			continue
		}
		if im.entries++; im.entries > maxEntries {
			im.entries = maxEntries
			im.fail(at, "the tables have more than %d entries together: import a part of them", maxEntries)
			return &table{}, nil
		}
		t.add(entry{key: strings.ToLower(strings.Trim(key, `"`)), value: strings.TrimSpace(value), at: at})
	}
	return t, nil
}

// patterns returns why a table of regular expressions is not carried.
func (im *importing) patterns(name string) string {
	n := 0
	if strings.HasPrefix(name, "{") {
		in, _ := balanced(name)
		n = len(list(in))
	} else {
		data, _, err := im.file(name, maxTable)
		if err != nil {
			return fmt.Sprintf("patterns are not carried, and %v", err)
		}
		n = len(logicalLines(data))
	}
	return fmt.Sprintf("patterns are not carried (%d entries): the relay knows domains by name or by \"*.name\"", n)
}

// file reads a file that the configuration names. Files below /etc/postfix are those of the folder that is imported.
func (im *importing) file(path string, limit int64) (data []byte, shown string, err error) {
	shown = path
	if rest, ok := strings.CutPrefix(path, "/etc/postfix/"); ok {
		path, shown = filepath.Join(im.dir, rest), rest
	} else if !filepath.IsAbs(path) {
		path = filepath.Join(im.dir, path)
	}
	im.faults.Reads(shown)
	data, err = readFile(path, limit)
	if missing := (*fs.PathError)(nil); errors.As(err, &missing) {
		err = errors.New(importer.Unreadable(err))
	}
	return data, shown, err
}

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
