package top

import (
	"cmp"
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3/vt"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/relaytest"
	"example.org/mta/operator/api"
)

// alarmed has an alarm, a pause, and a source without its address.
var alarmed = sample{
	more: `source "spare" { address = "198.51.100.7" }`,
	change: func(s *relaytest.Sample) {
		s.Missing = map[string]error{"198.51.100.7": os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)}
	},
	after: func(r *relay) {
		b := api.AddRule{Action: api.RuleSuspend, Selection: api.Selection{Tenant: "acme"}, Reason: "their list is stolen", By: "root"}
		if _, err := api.OpAddRule.Call(context.Background(), r.Client, b); err != nil {
			panic(err)
		}
		time.Sleep(time.Minute)
	},
}

// TestTables: the screen of each table, at 80 by 24 and wide.
func TestTables(t *testing.T) {
	for suffix, size := range map[string]vt.MockOptSize{"": {X: 80, Y: 24}, "-wide": {X: 150, Y: 30}} {
		watchedWith(t, size, "sites", alarmed, func(x *terminal) {
			x.golden("sites" + suffix)
			for i, kind := range kinds[1:] {
				x.press(strconv.Itoa(i + 2))
				x.golden(kind.name + suffix)
			}
		})
	}
}

// TestKeysOnTables: order, filter and cursor.
func TestKeysOnTables(t *testing.T) {
	const big = "(mx1|mx2).big.e…" // as it fits
	watched(t, sample{}, func(x *terminal) {
		first := func() string {
			for line := range strings.Lines(x.text()) {
				if rest, ok := strings.CutPrefix(line, "> "); ok {
					return strings.Fields(rest)[0]
				}
			}
			return ""
		}
		if got := first(); got != big {
			t.Errorf("the cursor begins on %q", got)
		}
		x.press(down)
		if got := first(); got != "mx.grey.example" {
			t.Errorf("below is %q", got)
		}
		x.press("g", "o") // the order is reversed, the cursor stays with its row
		if got := first(); got != big {
			t.Errorf("the cursor has moved to %q", got)
		}
		x.press(left)
		x.shows("sorted by PROVIDER", "PROVIDER▲")
		x.press("/", "s", "l", "o", "w")
		x.shows("rows with: slow_")
		if got := first(); got != "mx1.slow.example" {
			t.Errorf("the filter shows %q", got)
		}
		x.press(enterKey)
		x.shows("only rows with slow; Esc: all")
		x.press("/", "x", enterKey)
		x.shows("no row fits the filter")
		x.press(escape)
		x.shows("(mx1|mx2)")
		x.press("2")
		x.shows("[2 providers]", "p99")
		x.press("\t", "\t", "\x1b[Z")
		x.shows("[3 sources]")
		x.press("?")
		x.golden("help")
		x.press("q", "q")
		if err := <-x.ended; err != nil {
			t.Error(err)
		}
		x.ended <- nil
	})
}

// TestPages: an explanation and a trace.
func TestPages(t *testing.T) {
	watched(t, sample{}, func(x *terminal) {
		x.press("e")
		x.shows("(mx1|mx2).big.example", `explanation of big.example for "shop"`, "q:back")
		x.press("q", "t")
		x.shows("conversations with (mx1|mx2).big.example", "(watching)")
		x.press("q")
		x.shows("[1 sites]")
		x.press("4", "e")
		x.shows("The oldest message of tenant acme:", "explanation of "+x.relay.sample.IDs[1])
		x.press("q", "5", "e")
		x.shows("warm-up of ")
		x.press("q", "3", down, "e")
		x.shows("source", "news-1", "address", "2001:db8::20", "warm-up: paused")
		x.press("q", "a")
		x.shows("no alarm is on, and there is no rule")
	})
}

// TestSuspendAndResume: what would wait is shown before the question, and the question names all that will be done.
func TestSuspendAndResume(t *testing.T) {
	watched(t, sample{}, func(x *terminal) {
		x.press("s")
		x.shows("suspend site (mx1|mx2).big.example: it serves 1 known domain; 2 recipients queu", "> for how long: 30m_")
		x.press("\x15", "x", enterKey)
		x.shows(`"x" is not an age`)
		x.press("\x15", "2", "h", enterKey, "s", "l", "o", "w", enterKey)
		x.golden("suspend")
		x.press("x") // is no answer
		if x.actions("(mx1|mx2).big.example") != nil {
			t.Fatal("it was suspended before it was confirmed")
		}
		x.press("y")
		x.wait(3 * time.Second)
		x.shows("suspend site (mx1|mx2).big.example: done", "suspended for 2h more: slow")
		x.press("r", enterKey, "y")
		x.wait(3 * time.Second)
		x.shows("resume site (mx1|mx2).big.example: done")
		if a := x.actions("(mx1|mx2).big.example"); len(a) != 0 {
			t.Errorf("resumed, there is %v", a)
		}
		x.press("s", enterKey, enterKey, "n")
		x.shows("nothing was changed")
		x.press("2", "s")
		x.shows("a provider can't be suspended")
		x.press("5", "s", enterKey, "y")
		x.wait(3 * time.Second)
		x.shows("pause the warm-up of source", "paused")
	})
}

// TestKeysWaitForTheCount: what is typed before the question is there does nothing, and Esc leaves it.
func TestKeysWaitForTheCount(t *testing.T) {
	m := newModel(time.Now(), 2*time.Second, sites)
	m.update(answered{data: &Data{Time: m.now, Sites: []api.Site{{Name: "a.example"}, {Name: "b.example"}}}})
	todo := m.update(Key("s"))
	count, ok := todo[0].(dryRun)
	if !ok {
		t.Fatalf("s leads to %v", todo)
	}
	for _, k := range []Key{keyEnter, "y", "q", "2", keyDown} {
		if todo := m.update(k); len(todo) > 0 || m.dialog == nil || m.page != nil || m.table != sites {
			t.Fatalf("%s leads to %v", k, todo)
		}
	}
	m.update(keyEscape)
	m.update(counted{action: count.action, found: found{count: 7}})
	if m.dialog != nil {
		t.Error("the question comes after it was left")
	}
}

// TestAnotherCountIsAskedAbout: what was confirmed is not done when it would be something else.
func TestAnotherCountIsAskedAbout(t *testing.T) {
	m := newModel(time.Now(), 2*time.Second, sites)
	m.update(answered{data: &Data{Time: m.now, Sites: []api.Site{{Name: "a.example"}}}})
	count := m.update(Key("r"))[0].(dryRun)
	m.update(counted{count.action, found{7, "7 suspensions would end"}, nil})
	m.update(keyEnter)
	act := m.update(Key("y"))[0].(carry)
	if act.action.expect != 7 {
		t.Errorf("%d are expected", act.action.expect)
	}
	m.update(counted{act.action, found{8, "8 suspensions would end"}, nil})
	if text := m.draw().text(); !strings.Contains(text, "8 suspensions would end") || !strings.Contains(text, "it was 7 when you confirmed") {
		t.Errorf("the screen is\n%s", text)
	}
	if act := m.update(Key("y"))[0].(carry); act.action.expect != 8 {
		t.Errorf("then %d are expected", act.action.expect)
	}
}

// TestTheRelayHasAnotherCount: the relay refuses what was confirmed about another count, and the question is asked again.
func TestTheRelayHasAnotherCount(t *testing.T) {
	watched(t, sample{}, func(x *terminal) {
		x.press("r")
		x.shows("nothing to do: 0 suspensions would end")
		x.press(down, "r", enterKey)
		x.shows("1 suspension would end", "resume site mx.grey.example?")
		if _, err := api.OpSuspend.Call(x.t.Context(), x.relay.Client, api.Suspend{Site: "mx.grey.example", Source: "out1", For: api.Age(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		x.press("y")
		x.shows("2 suspensions would end", "it was 1 when you confirmed")
		if a := x.actions("mx.grey.example"); len(a) != 2 {
			t.Errorf("the site has %v", a)
		}
		x.press("y")
		x.shows("resume site mx.grey.example: done")
		if a := x.actions("mx.grey.example"); len(a) != 0 {
			t.Errorf("then it has %v", a)
		}
	})
}

// TestTheRelayGoes: what was known stays, with its age, and the screen recovers by itself.
func TestTheRelayGoes(t *testing.T) {
	watched(t, sample{}, func(x *terminal) {
		x.relay.goes(errGone)
		x.wait(14 * time.Second)
		x.golden("gone")
		x.relay.goes(nil)
		x.wait(3 * time.Second)
		if got := x.text(); strings.Contains(got, "NO RELAY") {
			t.Errorf("the relay is back:\n%s", got)
		}
	})
}

// TestNoRelayAtTheStart: there is nothing to show yet.
func TestNoRelayAtTheStart(t *testing.T) {
	m := newModel(time.Now(), 2*time.Second, sites)
	m.update(tick(m.now))
	m.update(answered{err: errGone})
	text := m.draw().text()
	if !strings.Contains(text, "NO RELAY: connecting to the relay") {
		t.Errorf("the screen is\n%s", text)
	}
	if todo := m.update(tick(m.now.Add(2 * time.Second))); len(todo) != 1 {
		t.Errorf("the relay isn't asked again: %v", todo)
	}
}

// TestRefreshIsCheap: the relay is asked every two seconds, for its history less often, and much less often when it takes
// long to answer. A stopped screen asks for nothing.
func TestRefreshIsCheap(t *testing.T) {
	watched(t, sample{}, func(x *terminal) {
		x.wait(60 * time.Second)
		if n := x.relay.requests("status"); n < 29 || n > 32 {
			t.Errorf("in a minute the relay was asked %d times", n)
		}
		if n := x.relay.requests("history"); n > 7 {
			t.Errorf("in a minute it was asked for its history %d times", n)
		}
		x.relay.mu.Lock()
		x.relay.slow, x.relay.asked = 400*time.Millisecond, map[string]int{}
		x.relay.mu.Unlock()
		x.wait(60 * time.Second)
		if n := x.relay.requests("status"); n > 4 {
			t.Errorf("a relay that takes 400 ms was asked %d times in a minute", n)
		}
		x.shows("every 20s")
		x.press(" ")
		x.wait(25 * time.Second)
		before := x.relay.requests("status")
		x.wait(time.Minute)
		if n := x.relay.requests("status"); n != before {
			t.Errorf("the stopped screen has asked %d times", n-before)
		}
		x.shows("STOPPED")
	})
}

// TestResize: the screen follows its terminal, down to sizes at which nothing is of use.
func TestResize(t *testing.T) {
	watched(t, alarmed, func(x *terminal) {
		for _, size := range []vt.Coord{{X: 40, Y: 12}, {X: 120, Y: 50}, {X: 10, Y: 3}, {X: 1, Y: 1}, {X: 80, Y: 24}} {
			x.mock.SetSize(size)
			x.wait(time.Second)
			if size.X == 40 {
				x.golden("small")
			}
			x.press(down, "?", "q", "s", escape)
		}
		x.shows("[1 sites]", "mta top  relay.example")
	})
}

// TestNoColour: states are words, so that a terminal without colours lacks nothing.
func TestNoColour(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	watched(t, alarmed, func(x *terminal) {
		x.golden("sites") // the same text as with colours
		x.press("3", "5", "6")
		if i := strings.Index(string(x.wrote.out), "\x1b[3"); i >= 0 && strings.ContainsAny(string(x.wrote.out[i+3:i+4]), "0123456789") {
			t.Errorf("a colour was set: %q", x.wrote.out[i:i+10])
		}
	})
}

// TestTheManualHasAllKeys: docs/cli.md has a row for each key.
func TestTheManualHasAllKeys(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## mta top\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, b := range bindings {
		if label := b.label; !strings.Contains(section, "\n- "+label) && !strings.Contains(section, ", "+label) {
			t.Errorf("docs/cli.md lacks the key %s", label)
		}
	}
	for _, name := range Tables() {
		if !strings.Contains(section, name) {
			t.Errorf("docs/cli.md lacks the table of %s", name)
		}
	}
}

// evil is a text of strangers that would drive a terminal.
const evil = "a\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[31mred\u009b2J\u202etxt.exe\r\nb\x00\u200b"

// hostile has it where a host can put it, as the relay passes it on, and where none can, as it is.
var hostile = sample{after: func(r *relay) {
	r.named = func(s *api.Site) { s.Why, s.Provider = evil, evil }
	text, _, _ := strings.Cut(evil, "\r")
	r.sample.Host("mx.post.example", sink.Config{Refusals: []sink.Refusal{{Phase: sink.Rcpt, Reply: "450 4.7.1 " + text}}}, "192.0.2.2:25")
	for _, a := range []api.Action{api.Release, api.Retry} {
		if _, err := api.OpChange.Call(context.Background(), r.Client, api.Change{Action: a, Filter: api.Filter{Recipient: "боб@почта.example"}, Now: a == api.Retry}); err != nil {
			panic(err)
		}
	}
	time.Sleep(time.Minute)
}}

// TestStrangersDriveNothing: what strangers wrote is shown, and no terminal obeys it.
func TestStrangersDriveNothing(t *testing.T) {
	watchedWith(t, vt.MockOptSize{X: 200, Y: 40}, "sites", hostile, func(x *terminal) {
		x.shows(`\u001b]0;owned\u0007`, `\u009b2J`, `\u202etxt.exe / b\u0000\u200b`)
		x.press(down, down)
		x.shows(`a?]0;owned??`, `\u202etxt.exe`)
		for _, table := range []string{"1", "2", "3", "4", "5", "6"} {
			x.press(table)
			for _, page := range []string{"e", enterKey, "t", "a"} {
				x.press(page, "q", "g", down, up)
			}
			x.press("s", escape, "c", escape, "/", "\u202e", "\u009b", escape)
		}
		out := string(x.wrote.out)
		for _, bad := range []string{"\x1b]0;", "\x1b]52;", "\x07", "\x1b[31mred", "\u009b", "\u202e", "\u200b", "\x00"} {
			if strings.Contains(out, bad) {
				t.Errorf("the terminal was sent %q", bad)
			}
		}
		if x.mock.GetTitle() != "" || x.mock.Bells() != 0 {
			t.Errorf("the title is %q, and the bell has rung %d times", x.mock.GetTitle(), x.mock.Bells())
		}
	})
}

// TestWideCharacters: names in any script keep the columns in line.
func TestWideCharacters(t *testing.T) {
	names := map[string]string{
		"(mx1|mx2).big.example": "日本語ドメイン名の例.example",
		"mx.grey.example":       "\u0301e\u0301te\u0301.example",                       // begins with a mark
		"mx.silent.example":     "a" + strings.Repeat("\u0301", 100) + "👍🏽한국어.example", // a tower of marks
	}
	named := func(s *api.Site) { s.Name = cmp.Or(names[s.Name], s.Name) }
	watched(t, sample{after: func(r *relay) { r.named = named }}, func(x *terminal) {
		x.golden("wide-characters")
		x.mock.SetSize(vt.Coord{X: 33, Y: 24}) // names are cut, also in the middle of a wide character
		x.wait(time.Second)
		x.golden("wide-characters-cut")
	})
}

// TestOnce: one screen as text.
func TestOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		text, err := Once(t.Context(), Config{Relay: alarmed.relay(t).Client, Now: time.Now, Every: 2 * time.Second, Table: "tenants"}, 80, 24)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"ALARM", "[4 tenants]", "acme", "mta top  relay.example"} {
			if !strings.Contains(text, want) {
				t.Errorf("the screen lacks %q:\n%s", want, text)
			}
		}
		if n := strings.Count(text, "\n"); n > 24 {
			t.Errorf("%d lines:\n%s", n, text)
		}
	})
}
