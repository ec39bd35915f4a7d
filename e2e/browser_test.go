package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a tab of a Chromium of its own, whose every complaint is kept.
type browser struct {
	t   *testing.T
	ctx context.Context
	axe string

	mu     sync.Mutex // guards the rest
	host   string     // that it may ask, with the port
	faults []string   // errors on its console, violations of the policy, requests to other hosts
}

// newBrowser starts Chromium without a window, until the test's end.
func newBrowser(t *testing.T, host string) *browser {
	t.Helper()
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(need(t, "chromium")[0]), chromedp.WindowSize(1280, 900), chromedp.UserDataDir(scratch(t))}
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewContext(context.Background(), chromedp.WithAllocatorOptions(options...))
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		cancel()
	})
	b := &browser{t: t, ctx: ctx, host: host, axe: readAxe(t)}
	b.listen()
	return b
}

// tab opens another tab, with the same cookies.
func (b *browser) tab() *browser {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	b.t.Cleanup(cancel)
	another := &browser{t: b.t, ctx: ctx, host: b.host, axe: b.axe}
	another.listen()
	return another
}

func (b *browser) close() {
	b.t.Helper()
	if err := chromedp.Cancel(b.ctx); err != nil {
		b.t.Error(err)
	}
}

func (b *browser) listen() {
	b.t.Helper()
	if err := chromedp.Listen(b.ctx, b.hear); err != nil {
		b.t.Fatal(err)
	}
}

// axeSum is that of axe-core 4.14.1 in the npm registry.
const axeSum = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"

func readAxe(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != axeSum {
		t.Fatalf("axe.min.js is not the published one: %x", sum)
	}
	return string(text)
}

// hear keeps what a page must not do.
func (b *browser) hear(event any) {
	var fault string
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			fault = fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		fault = "exception: " + e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			fault += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			fault = fmt.Sprintf("console.%s", e.Type)
			for _, a := range e.Args {
				fault += " " + string(a.Value) + a.Description
			}
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Host != b.host {
			fault = "request to elsewhere: " + e.Request.URL
		}
	}
	if fault != "" {
		b.mu.Lock()
		b.faults = append(b.faults, fault)
		b.mu.Unlock()
	}
}

// sound fails the test when the page has complained of anything but what is allowed, and forgets it.
func (b *browser) sound(where string, allowed ...string) {
	b.t.Helper()
	b.mu.Lock()
	faults := b.faults
	b.faults = nil
	b.mu.Unlock()
	for _, f := range faults {
		if !slices.ContainsFunc(allowed, func(a string) bool { return strings.Contains(f, a) }) {
			b.t.Errorf("%s: %s", where, f)
		}
	}
}

// within bounds a step: a page that doesn't come must not stop the test.
func (b *browser) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.ctx, patience)
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := b.within()
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// leads runs steps that go to another page, and returns its status.
func (b *browser) leads(steps ...chromedp.Action[chromedp.Void]) int64 {
	b.t.Helper()
	ctx, cancel := b.within()
	defer cancel()
	answer, err := chromedp.RunResponse(ctx, steps...)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer.Status
}

func (b *browser) open(address string) int64 {
	b.t.Helper()
	return b.leads(chromedp.Navigate(address))
}

// click follows a link, or presses a button that leads to a page.
func (b *browser) click(selector string) int64 {
	b.t.Helper()
	return b.leads(chromedp.Click(chromedp.CSS(selector)))
}

// call runs a command of the browser's protocol in the tab.
func call[P, R any](b *browser, c cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, cancel := b.within()
	defer cancel()
	if _, err := chromedp.Call(ctx, c, params); err != nil {
		b.t.Fatal(err)
	}
}

// scripts switches the page's own scripts; what the test evaluates runs in either case.
func (b *browser) scripts(on bool) {
	b.t.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// theme switches between light and dark.
func (b *browser) theme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// eval gives the value of an expression in the page.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := b.within()
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression[:min(len(expression), 200)], err)
	}
	return v
}

func (b *browser) text() string { b.t.Helper(); return eval[string](b, `document.body.innerText`) }

// shows waits until the page has all texts.
func (b *browser) shows(texts ...string) {
	b.t.Helper()
	eventually(b.t, time.Minute, func() error {
		page := b.text()
		for _, want := range texts {
			if !strings.Contains(page, want) {
				return fmt.Errorf("the page lacks %q:\n%s", want, page)
			}
		}
		return nil
	})
}

// press types keys to whatever has the focus.
func (b *browser) press(keys string) { b.t.Helper(); b.do(chromedp.KeyEvent(keys)) }

// tabTo presses the tabulator until an element has the focus, as somebody without a mouse does.
func (b *browser) tabTo(selector string) {
	b.t.Helper()
	for range 300 {
		b.press("\t")
		if eval[bool](b, fmt.Sprintf(`document.activeElement !== null && document.activeElement.matches(%q)`, selector)) {
			return
		}
	}
	b.t.Fatalf("the keyboard does not reach %s on %s", selector, eval[string](b, `location.href`))
}

// accessible runs axe-core in the page, with some rules only when they are named, and fails the test for each violation.
func (b *browser) accessible(where string, rules ...string) {
	b.t.Helper()
	if !eval[bool](b, `typeof axe !== "undefined"`) {
		b.do(chromedp.Evaluate[chromedp.Void](b.axe))
	}
	only := `"wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"`
	kind := "tag"
	if len(rules) > 0 {
		kind, only = "rule", `"`+strings.Join(rules, `", "`)+`"`
	}
	for _, v := range eval[[]string](b, fmt.Sprintf(`axe.run(document, {resultTypes: ["violations"], runOnly: {type: %q, values: [%s]}}).then((r) =>
		r.violations.map((v) => v.id + ": " + v.help + "\n" + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + "\n  " + n.failureSummary).join("\n")))`, kind, only)) {
		b.t.Errorf("%s: %s", where, v)
	}
}
