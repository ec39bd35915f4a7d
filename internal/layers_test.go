// Package internal_test states in which direction this program's packages may depend on each
// other.
package internal_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// module is the module's path, which the rules abbreviate to "mta".
const module = "example.org/mta"

// rules say what a package must not reach, and why. "X/..." is X and all below it; "mta/..." is every other package of
// this module, apart from the one that makes text for people.
var rules = []struct{ pkg, mustNotReach, why string }{
	{"mta/queue", "mta/delivery", "the queue knows durable states; who delivers is not its business"},
	{"mta/queue", "mta/submission", "the queue is handed messages; it doesn't know by which protocol"},
	{"mta/queue", "mta/router", "keys are opaque to the queue"},
	{"mta/queue/store", "mta/queue/view", "files know records and places, not who looks at them"},
	{"mta/queue", "net/http", "the queue has no interface to the outside"},
	{"mta/delivery", "mta/queue", "delivery is handed jobs and gives back results; only package mta joins the two"},
	{"mta/delivery", "mta/router", "routes come as values"},
	{"mta/delivery/smtpclient", "mta/destdb", "one connection knows nothing of the others"},
	{"mta/delivery/smtpclient", "go.etcd.io/bbolt", "the client could be lifted into another program"},
	{"mta/delivery/tlspolicy", "mta/router/resolver", "it asks a DNS that package mta supplies"},
	{"mta/delivery/tlspolicy", "github.com/miekg/dns", "records come as values"},
	{"mta/router", "mta/delivery", "where mail goes is decided without knowing how it gets there"},
	{"mta/router", "mta/queue", "the router sees domains, not messages"},
	{"mta/submission", "mta/queue", "what is accepted is handed to an interface"},
	{"mta/submission/intake", "github.com/emersion/go-smtp", "intake knows no protocol"},
	{"mta/submission/http", "mta/queue", "what it needs of the queue is handed to it as interfaces"},
	{"mta/submission/http", "mta/mta", "settings are made for it; it knows no configuration file"},
	{"mta/submission/intake", "net/http", "intake knows no protocol"},
	{"mta/submission/intake", "github.com/emersion/go-milter", "intake knows no protocol"},
	{"mta/submission/intake", "mta/queue", "what is accepted is handed to an interface"},
	{"mta/submission", "mta/bounce/inbox", "inbound mail is handed to an interface"},
	{"mta/bounce/inbox", "mta/submission", "a report is the same, whatever protocol brings it"},
	{"mta/bounce/inbox", "mta/suppression", "what a report has for consequences is decided above it"},
	{"mta/bounce/inbox", "mta/mta", "the records of messages are handed to it as an interface"},
	{"mta/submission", "mta/delivery", "submission ends with the durable 250"},
	{"mta/suppression", "net/http", "a token is made and read without knowing who carries it"},
	{"mta/submission/auth", "net/http", "a key or a password is good or not, whatever protocol brings it"},
	{"mta/submission/request", "net/http", "mail is read, filled in and built, whoever sent it"},
	{"mta/bounce/returnpath", "mta/queue", "a token is made and read without its message"},
	{"mta/bounce/returnpath", "net/http", "a token is good or not, whatever protocol brings it"},
	{"mta/warmup", "mta/queue", "what waits for tokens is parked by the caller"},
	{"mta/warmup", "mta/delivery", "tokens are charged without knowing who sends"},
	{"mta/admission", "mta/submission", "the controller knows priorities, not protocols"},
	{"mta/admission", "mta/queue", "what is made durable is the caller's business"},
	{"mta/admission", "net/http", "tokens serve any protocol"},
	{"mta/mta/admit", "mta/queue", "what it measures is given to it as functions"},
	{"mta/destdb", "mta/delivery", "destdb is what was learned; who uses it is above it"},
	{"mta/bounce/report", "mta/mta", "a report is read without knowing whose mail it is about"},
	{"mta/bounce/report", "mta/queue", "a report is read without its message"},
	{"mta/bounce", "net", "a reply is text, wherever it comes from"},
	{"mta/bounce", "mta/suppression", "what a reply means is known without knowing what follows from it"},
	{"mta/suppression", "mta/bounce/inbox", "it is given events, wherever they come from"},
	{"mta/suppression", "mta/warmup", "complaints are handed to a function"},
	{"mta/suppression", "mta/mta", "settings are made for it; it knows no configuration file"},
	{"mta/mta/exported", "mta/queue", "an archive is read without the queue that it goes into"},
	{"mta/mta/exported", "mta/mta/config", "what a relay takes is decided by who imports"},
	{"mta/mta/events", "mta/queue", "events are made of the accounting log alone"},
	{"mta/mta/events", "mta/mta", "events are sent without knowing who starts and stops the relay"},
	{"mta/mta/events", "mta/mta/config", "settings are made for it; it knows no configuration file"},
	{"mta/mta/accounting", "mta/mta/events", "the log knows no readers"},
	{"mta/operator/audit", "mta/mta", "actions are written down without knowing what they are"},
	{"mta/operator/audit", "mta/operator/api", "the audit log is asked by the API"},
	{"mta/operator/audit", "net/http", "an action is the same, whatever protocol brings it"},
	{"mta/suppression", "go.etcd.io/bbolt", "the list can stand on a store that nodes share"},
	{"mta/suppression", "mta/queue", "the list knows addresses, not messages"},
	{"mta/mta/config", "mta/mta", "the file is read before anything is built"},
	{"mta/internal/settings", "mta/...", "a file of settings is read without knowing what the settings are for"},
	{"mta/operator/api", "mta/mta", "the API names what it needs; package mta supplies it"},
	{"mta/dispatch", "mta/mta", "mail is carried without knowing who starts and stops the relay"},
	{"mta/dispatch", "mta/operator/answer/...", "mail doesn't wait for the answers that operators get"},
	{"mta/mta/wiring", "mta/mta", "settings are a function of the configuration, whoever is built from them"},
	{"mta/mta/wiring", "mta/queue", "settings know no mail"},
	{"mta/lab/bench", "mta/mta", "the relay is measured as a process of its own, as any other server"},
	{"mta/delivery/tlspolicy/sts", "mta/router", "the library could be lifted into another program: it is given a resolver"},
	{"mta/delivery/tlspolicy/sts", "mta/destdb", "policies are kept in any store of names and values"},
	{"mta/delivery/tlspolicy/sts", "mta/delivery/tlspolicy", "MTA-STS knows neither DANE nor the levels of the configuration"},
	{"mta/cmd/mta/draw", "mta/...", "tables and curves are drawn of text and numbers"},
	{"mta/cmd/mta/sendmail", "mta/mta/config", "it is told where the relay is, and submits as any client does"},
	{"mta/cmd/mta", "mta/internal/bubble", "it is for tests, and brings package testing with it"},
	{"mta/cmd/mta", "mta/mta/relaytest", "it is for tests, and brings package testing with it"},
	{"mta/cmd/mta", "mta/internal/testca", "it is for tests, and brings package testing with it"},
	{"mta/operator/api", "mta/queue", "the API has its own words for JSON, so that the queue may change"},
	{"mta/operator/answer/blocks", "mta/mta", "answers are made from the parts; package mta supplies those"},
	{"mta/operator/answer/connections", "mta/mta", "answers are made from the parts; package mta supplies those"},
	{"mta/operator/answer/kept", "mta/mta", "answers are made from the parts; package mta supplies those"},
	{"mta/operator/answer/messages", "mta/mta", "answers are made from the parts; package mta supplies those"},
	{"mta/operator/answer/sites", "mta/mta", "answers are made from the parts; package mta supplies those"},
	{"mta/operator/api", "mta/operator/answer/...", "the API is words and a server; who answers is handed to it"},
	{"mta/operator/answer/messages", "mta/dispatch", "it asks through an interface that it declares"},
	{"mta/operator/answer/sites", "mta/dispatch", "it asks through an interface that it declares"},
	{"mta/operator/answer/metrics", "mta/mta", "figures are given to it; package mta supplies the parts"},
	{"mta/operator/answer/metrics", "mta/operator/api", "a figure is the same, whoever asks for it"},
	{"mta/operator/answer/submitted", "mta/mta", "the queue and the log are given to it"},
	{"mta/operator/answer/connections", "mta/queue", "conversations are watched without knowing where mail is kept"},
	{"mta/operator/top", "mta/mta", "the screen needs a client of the control API, wherever the relay runs"},
	{"mta/operator/top", "mta/operator/answer/...", "the screen needs a client of the control API, wherever the relay runs"},
	{"mta/operator/top", "mta/mta/config", "what is configured is asked of the relay"},
	{"mta/operator/top", "mta/queue", "the screen shows what the control API says, in its words"},
	{"mta/operator/top", "mta/delivery", "the screen shows what the control API says, in its words"},
	{"mta/operator/top", "mta/cmd/mta/draw", "pages are printed by whoever starts the screen"},
	{"mta/dispatch/rules", "mta/operator/answer/...", "which rules there are is known without knowing who asks"},
	{"mta/dispatch/rules", "mta/queue", "it says whose mail waits; who parks it is above it"},
	{"mta/mta/wiring", "mta/operator/answer/...", "settings are made from the configuration alone"},
	{"mta/operator/web", "mta/mta", "pages ask by the API's client, in the relay as beside it"},
	{"mta/operator/web", "mta/operator/answer/...", "pages know the API's words, not who answers"},
	{"mta/operator/web", "mta/mta/config", "settings are made for it; it knows no configuration file"},
	{"mta/operator/web", "mta/queue", "pages know the API's words, not where mail is kept"},
	{"mta/operator/web", "mta/delivery", "pages know the API's words, not who delivers"},
	{"mta/operator/web", "mta/submission", "who may log in is asked through an interface"},
	{"mta/importer/postfix", "mta/mta/config", "a draft is text; its caller has it checked"},
	{"mta/operator/history", "mta/mta", "figures are given to it; package answer reads them"},
	{"mta/operator/history", "mta/queue", "figures are numbers, whatever they count"},
	{"mta/importer", "mta/...", "a draft is text; the command checks it as any other file"},
	{"mta/cluster/member", "net", "a node's part is arithmetic on messages; who carries them is above it"},
	{"mta/cluster/once", "mta/cluster/owner", "keys are claimed without knowing who decides about limits"},
	{"mta/cluster/share", "mta/cluster/owner", "units are counted without knowing where the book is kept"},
	{"mta/cluster/spool", "github.com/jackc/pgx/v5/pgconn", "an entry is the same, whichever engine keeps it"},
	{"mta/cluster/member", "mta/queue/vfs", "a node's part is arithmetic on messages; no file is needed for it"},
	{"mta/mta/tally", "mta/queue", "counting knows outcomes, not where mail is kept"},
}

func TestDependenciesPointOneWay(t *testing.T) {
	deps := reachable(t)
	for _, r := range rules {
		for dep := range deps[r.pkg] {
			tree, all := strings.CutSuffix(r.mustNotReach, "/...")
			if dep == tree || all && strings.HasPrefix(dep, tree+"/") && (tree != "mta" || dep != "mta/internal/legible") {
				t.Errorf("%s reaches %s: %s", r.pkg, dep, r.why)
			}
		}
	}
	for pkg, reach := range deps {
		tool := strings.HasPrefix(pkg, "mta/lab/") || strings.HasPrefix(pkg, "mta/importer")
		for dep := range reach {
			if strings.HasPrefix(dep, "mta/lab/") || strings.HasPrefix(dep, "mta/importer") {
				if !tool && pkg != "mta/cmd/mta" && pkg != "mta/mta/relaytest" {
					t.Errorf("%s reaches %s: tools and importers are for the command and for tests", pkg, dep)
				}
			}
		}
		for dep := range reach {
			spool := reach["mta/queue/vfs/shipping"] // which says what an entry of a log is
			onDisk := pkg == "mta/cluster/secrets" || reach["go.etcd.io/bbolt"] || spool
			driver := (reach["net"] || onDisk) && strings.HasPrefix(dep, "mta/internal/") ||
				spool && strings.HasPrefix(dep, "mta/queue/vfs")
			if strings.HasPrefix(pkg, "mta/cluster/") && strings.HasPrefix(dep, "mta/") &&
				!strings.HasPrefix(dep, "mta/cluster/") && !driver {
				t.Errorf("%s reaches %s: the protocol is the same in the relay and in its simulation", pkg, dep)
			}
		}
		if !strings.HasPrefix(pkg, "mta/internal/") {
			continue
		}
		for dep := range reach {
			if strings.HasPrefix(dep, "mta/") && !strings.HasPrefix(dep, "mta/internal/") {
				t.Errorf("%s reaches %s: what is in internal is below all parts", pkg, dep)
			}
		}
	}
}

func TestRulesNameRealPackages(t *testing.T) {
	deps := reachable(t)
	for _, r := range rules {
		if _, ok := deps[r.pkg]; !ok {
			t.Errorf("the rule about %s guards nothing: there is no such package", r.pkg)
		}
	}
}

// TestTheTableOfFoldersIsWhole: each package stands in the architecture page, each file that it names exists.
func TestTheTableOfFoldersIsWhole(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range reachable(t) {
		if folder := strings.TrimPrefix(pkg, "mta/"); folder != "internal" && !bytes.Contains(page, []byte("`"+folder+"`")) {
			t.Errorf("docs/architecture.md: the table of folders lacks %s", folder)
		}
	}
	for _, m := range regexp.MustCompile("`([a-z0-9_/]+/[a-z0-9_]+\\.go)`").FindAllSubmatch(page, -1) {
		if _, err := os.Stat("../" + string(m[1])); err != nil {
			t.Errorf("docs/architecture.md: %v", err)
		}
	}
}

// TestVirtualTimeByBubble keeps the race detector's runs whole: package bubble says why.
func TestVirtualTimeByBubble(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "layers_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte("synctest.Test(")) {
			t.Errorf("%s calls synctest.Test itself, instead of bubble.Test", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// reachable gives for each package of this module all packages that it depends on.
func reachable(t *testing.T) map[string]map[string]bool {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, module+"/...").Output()
	if err != nil {
		t.Fatalf("listing packages: %v", err)
	}
	deps := make(map[string]map[string]bool)
	for line := range strings.Lines(strings.ReplaceAll(string(out), module+"/", "mta/")) {
		f := strings.Fields(line)
		deps[f[0]] = make(map[string]bool, len(f))
		for _, d := range f[1:] {
			deps[f[0]][d] = true
		}
	}
	return deps
}
