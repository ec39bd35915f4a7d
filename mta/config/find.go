package config

import (
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Whereabouts is what a configuration file says about where its relay can be found. A field is
// empty when the file has the setting but its value can't be known here: it names an environment
// variable that is not set, say.
type Whereabouts struct {
	Hostname   string `json:"hostname"`
	DataDir    string `json:"data_dir"`
	Socket     string `json:"socket"`     // the control socket
	Accounting string `json:"accounting"` // the directory of the accounting log
	// SMTP is where listeners begin in clear, as sendmail does: those that demand no login first, and
	// otherwise in the order of the file.
	SMTP []string `json:"smtp"`
}

// Find looks for the relay's whereabouts in the file at path. It is lenient: only the settings
// that it needs are evaluated, and an error anywhere else in the file does not matter. The error
// says that the file can't be read at all.
func Find(path string, env func(string) string) (Whereabouts, error) {
	src, err := readFile(path)
	if err != nil {
		return Whereabouts{}, err
	}
	return find(src, env), nil
}

// DefaultWhereabouts are those of the built-in defaults.
func DefaultWhereabouts() Whereabouts { return find(nil, nil) }

// Maildrop is the directory in data_dir where sendmail leaves mail while the relay is away.
const Maildrop = "maildrop"

// Reachable is where a listener's address is reached from the machine itself: "" when it is none.
func Reachable(listener string) string {
	host, port, err := net.SplitHostPort(listener)
	if err != nil {
		return ""
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

func find(src []byte, env func(string) string) Whereabouts {
	defaults := builtIn()
	defaults.derive(systemHostname())
	w := Whereabouts{Hostname: defaults.Hostname, DataDir: defaults.DataDir, SMTP: defaults.Listeners[0].Address}
	eval, listeners := evaluation(env), []listenerPlace(nil)
	var socketSet, accountingSet bool
	demands := make(map[int][]string)
	for _, s := range statements(src) {
		switch s.block + "." + s.name {
		case ".hostname":
			w.Hostname = s.text(eval)
		case ".data_dir":
			w.DataDir = s.text(eval)
		case "control.socket":
			w.Socket, socketSet = s.text(eval), true
		case "accounting.path":
			w.Accounting, accountingSet = s.text(eval), true
		case "listener.address":
			if addresses := s.texts(eval); addresses != nil {
				listeners = append(listeners, listenerPlace{owner: s.owner, addresses: addresses})
			}
		case "listener.implicit", "listener.required":
			if v, diags := s.value.Value(eval); !diags.HasErrors() && v.Type() == cty.Bool && v.IsKnown() && !v.IsNull() && v.True() {
				demands[s.owner] = append(demands[s.owner], s.name)
			}
		}
	}
	if !socketSet && w.DataDir != "" {
		w.Socket = filepath.Join(w.DataDir, "control.sock")
	}
	if !accountingSet && w.DataDir != "" {
		w.Accounting = filepath.Join(w.DataDir, "log")
	}
	if len(listeners) > 0 {
		for i, l := range listeners {
			listeners[i].implicit = slices.Contains(demands[l.owner], "implicit")
			listeners[i].required = slices.Contains(demands[l.owner], "required")
		}
		w.SMTP = forSendmail(listeners)
	}
	return w
}

// listenerPlace is what sendmail has to know of a listener.
type listenerPlace struct {
	owner              int // which block it is, see statement
	addresses          []string
	implicit, required bool // TLS from the first octet; a login
}

// forSendmail lists the addresses for Whereabouts.SMTP.
func forSendmail(listeners []listenerPlace) []string {
	addresses := []string{} // nil would be "not known"
	for _, required := range []bool{false, true} {
		for _, l := range listeners {
			if !l.implicit && l.required == required {
				addresses = append(addresses, l.addresses...)
			}
		}
	}
	return addresses
}

// ForSendmail lists for Whereabouts.SMTP where the listeners are: addressesOf gives that of each.
func ForSendmail(listeners []*Listener, addressesOf func(*Listener) []string) []string {
	var all []listenerPlace
	for _, l := range listeners {
		all = append(all, listenerPlace{addresses: addressesOf(l), implicit: l.TLS.Implicit, required: l.Auth.Required})
	}
	return forSendmail(all)
}

// statement is one name = value of a file, in the top-level block that it belongs to; "" for none.
// The blocks within a listener count as part of it.
type statement struct {
	block, name string
	owner       int // tells one block from another of the same type
	value       hclsyntax.Expression
}

// statements gives the settings of a file: as the parser reads them or, where it can't, line by
// line as far as each makes sense.
func statements(src []byte) []statement {
	if _, deep := tooDeep(src, ""); deep {
		return nil
	}
	file, diags := hclsyntax.ParseConfig(src, "", hcl.InitialPos)
	if diags.HasErrors() {
		return statementsByLine(string(src))
	}
	body := file.Body.(*hclsyntax.Body)
	all := attributes("", 0, body)
	for i, b := range body.Blocks {
		all = append(all, attributes(b.Type, i, b.Body)...)
		if b.Type != "listener" {
			continue
		}
		for _, inner := range b.Body.Blocks {
			all = append(all, attributes(b.Type, i, inner.Body)...)
		}
	}
	return all
}

func attributes(block string, owner int, body *hclsyntax.Body) (all []statement) {
	for _, a := range inOrder(body.Attributes) {
		all = append(all, statement{block, a.Name, owner, a.Expr})
	}
	return all
}

var (
	blockComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	blockLine    = regexp.MustCompile(`^\s*(\w+)\s*(?:"[^"]*"\s*)?\{(.*)$`)
	settingLine  = regexp.MustCompile(`^\s*(\w+)\s*=\s*(.*)$`)
)

// statementsByLine reads a file that can't be parsed. Braces may be what is missing, so it goes by
// names: a setting that only the top of a file has is the top's wherever it stands, and each other
// belongs to the block that began last.
func statementsByLine(src string) (all []statement) {
	top := homes()
	block, owner := "", 0
	lines := strings.Split(blockComment.ReplaceAllString(src, ""), "\n")
	for i, line := range lines {
		if m := blockLine.FindStringSubmatch(line); m != nil {
			if top[m[1]] == isBlock {
				block = m[1]
				owner++
			}
			line = strings.TrimSuffix(strings.TrimSpace(m[2]), "}") // what a block on one line has
		}
		m := settingLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		expr, diags := hclsyntax.ParseExpression([]byte(wholeList(m[2], lines[i+1:])), "", hcl.InitialPos)
		if diags.HasErrors() {
			continue
		}
		home := block
		if top[m[1]] == isSetting {
			home = ""
		}
		all = append(all, statement{home, m[1], owner, expr})
	}
	return all
}

// wholeList adds the lines that a list goes on over.
func wholeList(value string, following []string) string {
	if !strings.HasPrefix(value, "[") {
		return value
	}
	for _, line := range following {
		if strings.Contains(value, "]") {
			break
		}
		value += "\n" + line
	}
	return value
}

func (s *statement) text(eval *hcl.EvalContext) string {
	if all := s.texts(eval); len(all) == 1 {
		return all[0]
	}
	return ""
}

// texts gives the value as a list of texts, empty when it is none.
func (s *statement) texts(eval *hcl.EvalContext) (all []string) {
	v, diags := s.value.Value(eval)
	if diags.HasErrors() || v.IsNull() || !v.IsWhollyKnown() {
		return nil
	}
	switch {
	case v.Type() == cty.String:
		return []string{v.AsString()}
	case v.Type().IsTupleType():
		for _, e := range v.AsValueSlice() {
			if e.Type() == cty.String && !e.IsNull() {
				all = append(all, e.AsString())
			}
		}
	}
	return all
}
