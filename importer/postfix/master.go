package postfix

import (
	"fmt"
	"strings"

	"example.org/mta/importer"
)

// service is an entry of master.cf.
type service struct {
	name, kind string // kind: inet, unix, pass, fifo
	maxproc    string
	command    string
	args       []string
	own        map[string]parameter // by -o
	at         importer.Origin
}

// readMaster reads master.cf.
func (im *importing) readMaster(data []byte) {
	for _, l := range logicalLines(data) {
		at := importer.Origin{File: "master.cf", Line: l.number}
		fields := split(l.text, " \t")
		if len(fields) < 8 {
			at.Directive = l.text
			im.fail(at, "an entry needs eight fields: name, type, private, unpriv, chroot, wakeup, maxproc and command")
			im.partial = true
			continue
		}
		s := &service{name: fields[0], kind: fields[1], maxproc: fields[6], command: fields[7],
			own: make(map[string]parameter)}
		at.Directive = strings.Join(fields[:2], " ") + " " + s.command
		s.at = at
		if err := s.arguments(fields[8:]); err != nil {
			im.fail(at, "%v", err)
		}
		im.services = append(im.services, s)
	}
}

// arguments reads those of a command, -o among them.
func (s *service) arguments(args []string) error {
	for i := 0; i < len(args); i++ {
		text, is := strings.CutPrefix(args[i], "-o")
		if !is || s.command == "pipe" {
			s.args = append(s.args, args[i])
			continue
		}
		if text == "" {
			if i++; i == len(args) {
				return fmt.Errorf("-o has no parameter after it: write name=value")
			}
			text = args[i]
		}
		text = unbrace(text)
		name, value, ok := strings.Cut(text, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" {
			return fmt.Errorf("-o %s is not name=value: correct or remove it", importer.Short(text))
		}
		at := s.at
		at.Directive = fmt.Sprintf("%s -o %s=%s", s.name, name, shown(name, value))
		s.own[name] = parameter{unbrace(value), at}
	}
	return nil
}

// shown is a value as comments may repeat it: without the passwords of tables that stand in it, and of databases.
func shown(name, value string) string {
	secret := strings.Contains(name, "password") || strings.Contains(name, "secret") || strings.HasSuffix(name, "_pw")
	if secret && (!strings.HasSuffix(name, "_maps") || strings.Contains(value, "static:") ||
		strings.Contains(value, "inline:")) {
		return "***"
	}
	return value
}

// readMain reads main.cf.
func (im *importing) readMain(data []byte) {
	for _, l := range logicalLines(data) {
		name, value, ok := strings.Cut(l.text, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		at := importer.Origin{File: "main.cf", Line: l.number, Directive: name + " = " + shown(name, value)}
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			at.Directive = l.text
			im.fail(at, "this is not \"name = value\": correct or remove it")
			continue
		}
		if before, twice := im.main[name]; twice {
			im.used[before.at] = true
			im.top.Noted(before.at, fmt.Sprintf("line %d sets it again, and counts", l.number))
		} else {
			im.order = append(im.order, name)
		}
		im.main[name] = parameter{value, at}
	}
}
