package e2e

import (
	"context"
	"fmt"
	"net"
	"net/smtp"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// link is what 'mta console' prints.
var link = regexp.MustCompile(`(?m)^http://(127\.0\.0\.1:\d+)/\S+$`)

// runConsole runs 'mta console' beside a relay until the test's end, and returns the link and its host.
func runConsole(t *testing.T, r *relay, args ...string) (address, host string) {
	t.Helper()
	_, address, host = startConsole(t, r, args...)
	return address, host
}

// startConsole is runConsole that returns the process, too.
func startConsole(t *testing.T, r *relay, args ...string) (p *process, address, host string) {
	t.Helper()
	p = start(t, "console", slices.Concat([]string{"env"}, r.env, []string{binary, "console", "--config", r.config}, args)...)
	eventually(t, patience, func() error {
		text, err := os.ReadFile(p.log)
		if err != nil {
			return err
		}
		m := link.FindStringSubmatch(string(text))
		if m == nil {
			return fmt.Errorf("'mta console' prints no link:\n%s", text)
		}
		address, host = m[0], m[1]
		return nil
	})
	return p, address, host
}

// hostileMail is a message whose every part tries to be more than text.
const hostileMail = "Subject: <script>alert(1)</script>\r\nContent-Type: text/html\r\n\r\n<img src=http://elsewhere.example/x onerror=alert(2)>\x1b[2J\r\n"

// consoleSetup has some of all that pages show: sources, pools, a tenant, a provider, a warm-up.
const consoleSetup = `
source "out-1" { address = "127.82.0.11" }
source "out-2" { address = "127.82.0.12" }
source "new-1" { address = "127.82.0.13" }
pool "default" {
  shared   = ["out-1", "out-2"]
  patience = "0s"
  dedicated "new-1" { plan = "standard" }
}
pool "backup" { shared = ["out-2"] }
tenant "acme" {
  networks            = ["127.0.0.0/8"]
  max_queued_messages = 1000
}
provider "bad" { mx = ["mx.bad.example"] }
`

// consoleField is a relay that keeps mail for a host that defers everything with a hostile reply, and delivers to
// another one.
func consoleField(t *testing.T) *relay {
	t.Helper()
	const host, good = "127.82.0.2", "127.82.0.3"
	port := commonPort(t, host, good)
	hostileHost(t, net.JoinHostPort(host, port))
	mailHost(t, net.JoinHostPort(good, port), sink.Config{Hostname: "mx.good.example"})
	dns, _ := nsd(t, "bad MX 10 mx.bad\nmx.bad A "+host+"\ngood MX 10 mx.good\nmx.good A "+good+"\n")
	r := newRelay(t, dns, port, consoleSetup)
	r.start(t)
	return r
}

// fill sends messages, one of them for tomorrow, puts an address onto the list of those that get none, and waits until
// the hostile host has deferred mail.
func fill(t *testing.T, r *relay) {
	t.Helper()
	for _, m := range []struct{ to, fields string }{ // the oldest is the first of the page
		{"user@bad.example", ""}, {`"<b>x</b>{{.}}"@bad.example`, ""}, {"third@bad.example", ""}, {"user@good.example", ""},
		{"tomorrow@good.example", "X-Hold-For: 86400\r\n"},
	} {
		if err := smtp.SendMail(r.addr, nil, "a@client.example", []string{m.to}, []byte(m.fields+hostileMail)); err != nil {
			t.Fatal(err)
		}
	}
	c := r.client(t)
	if _, err := api.OpSuppress.Call(context.Background(), c, api.Suppress{Suppressions: []api.Suppression{{Address: "gone@good.example", Reason: "asked us"}}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		list, err := api.OpList.Call(context.Background(), c, api.ListQuery{Filter: api.Filter{State: api.StateDeferred}})
		if err == nil && len(list.Messages) < 4 { // that of tomorrow counts
			err = fmt.Errorf("%d messages are deferred", len(list.Messages))
		}
		return err
	})
}

// TestConsoleInChromium: a browser walks all pages and actions, full; and some of the pages empty, in the dark, without
// scripts and without the relay, or all of them with MTA_CONSOLE set: that takes five minutes.
func TestConsoleInChromium(t *testing.T) {
	parallel(t)
	r := consoleField(t)
	address, host := runConsole(t, r)
	b := newBrowser(t, host)
	if status := b.open(address); status != 200 {
		t.Fatalf("the link answers %d", status)
	}
	b.shows("Overview")
	w := &walk{browser: b, home: "http://" + host, thorough: os.Getenv("MTA_CONSOLE") != ""}
	if w.thorough {
		w.all("empty")
	} else {
		w.page("empty", w.home+"/")
		w.page("empty", w.home+"/queue")
	}
	fill(t, r)
	b.threeClicks(w.home)
	w.all("full")
	b.byKeyboard(t, r, w.home)
	b.sound("by keyboard")
	w.carryOut(t, r)
	b.withoutScripts(w)
	b.narrow(w)
	b.manyTabs(w.home)
	b.withoutRelay(r, w)
	other := b.tab()
	if again := other.open(address); again == 200 {
		t.Error("the link is good twice")
	}
	other.accessible("the used link")
}

// threeClicks goes from the overview to why a message waits, with and without scripts.
func (b *browser) threeClicks(home string) {
	b.t.Helper()
	for _, scripts := range []bool{true, false} {
		b.scripts(scripts)
		b.open(home + "/")
		b.click(`body > nav a[href="/queue"]`)
		b.click(`main tbody a[href^="/messages/"]`)
		b.shows("Why it waits", "450", `\u202eretal yrt`)
	}
	b.scripts(true)
	b.sound("from the link to the reason")
}

// walk goes to each page that the console links to.
type walk struct {
	*browser
	home  string
	pages []string // one address of each kind of page
	acted map[string]bool
	// thorough has each page looked at in each way.
	thorough bool
}

// sample is the pages that are looked at in a further way.
func (w *walk) sample() (pages []string) {
	for i, page := range w.pages {
		if w.thorough || i%5 == 0 {
			pages = append(pages, page)
		}
	}
	return pages
}

// noPages are links that no page is behind.
var noPages = regexp.MustCompile(`/(download|export|assets/|logout)`)

// messagePath is that of a message, whatever its id.
var messagePath = regexp.MustCompile(`^/messages/[^/]+`)

// kind is what pages of one kind have in common: the path, and the names of parameters.
func kind(u *url.URL) string {
	path := messagePath.ReplaceAllString(u.Path, "/messages/*")
	names := []string{}
	for name := range u.Query() {
		names = append(names, name)
	}
	slices.Sort(names)
	return path + "?" + strings.Join(names, "&")
}

// maxPages bounds a walk.
const maxPages = 60

// all walks from the overview, and demands of each page that it is sound and accessible.
func (w *walk) all(how string) {
	w.t.Helper()
	began := time.Now()
	w.pages, w.acted = []string{w.home + "/"}, map[string]bool{}
	seen := map[string]bool{"/?": true}
	for i := 0; i < len(w.pages) && i < maxPages; i++ {
		page := w.pages[i]
		w.page(how, page)
		w.pages = append(w.pages, w.links(w.home, seen)...)
		w.actions(how, page)
	}
	w.t.Logf("%s: %d pages and %d actions in %v: %s", how, len(w.pages), len(w.acted), time.Since(began).Round(time.Second), strings.Join(w.pages, " "))
}

// links gives those of the page that lead to a kind of page that was not seen yet. Two filters make the same page as one.
func (b *browser) links(home string, seen map[string]bool) (pages []string) {
	b.t.Helper()
	for _, to := range eval[[]string](b, `[...document.querySelectorAll("a[href]")].map((a) => a.href)`) {
		u, err := url.Parse(to)
		if err != nil || u.Scheme+"://"+u.Host != home {
			b.t.Errorf("%s links to %s", eval[string](b, `location.href`), to)
			continue
		}
		if u.Fragment = ""; !noPages.MatchString(u.Path) && len(u.Query()) < 2 && !seen[kind(u)] {
			seen[kind(u)] = true
			pages = append(pages, u.String())
		}
	}
	return pages
}

// page opens a page in both themes.
func (w *walk) page(how, page string) {
	w.t.Helper()
	where := how + " " + strings.TrimPrefix(page, w.home)
	w.theme("light")
	if status := w.open(page); status != 200 {
		w.t.Errorf("%s: %d\n%s", where, status, w.text())
	}
	w.accessible(where)
	if slices.Contains(w.sample(), page) {
		w.theme("dark")
		w.accessible(where+" in the dark", "color-contrast", "link-in-text-block")
	}
	w.sound(where)
	if text := w.text(); strings.ContainsAny(text, "\x1b\u202e") {
		w.t.Errorf("%s: hidden characters of strangers", where)
	}
}

// actions asks for each action that the page has and no page before, as far as the confirmation.
func (w *walk) actions(how, page string) {
	w.t.Helper()
	const buttons = `[...document.querySelectorAll('main form[method="post"] button')]`
	for i, to := range eval[[]string](w.browser, buttons+`.map((b) => new URL(b.getAttribute("formaction") || b.form.getAttribute("action"), location).href)`) {
		if w.acted[to] {
			continue
		}
		w.acted[to] = true
		where := how + " " + strings.TrimPrefix(to, w.home)
		w.theme("light")
		status := w.leads(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{
			const b = %s[%d];
			for (const i of b.form.querySelectorAll("[required]")) if (!i.value) i.value = i.type === "number" ? 1 : "user@other.example";
			b.form.querySelector('tbody input[type="checkbox"]')?.click();
			b.form.requestSubmit(b);
		}`, buttons, i)))
		if status != 200 && status != 400 && status != 404 && status != 409 {
			w.t.Errorf("%s: %d\n%s", where, status, w.text())
		}
		if w.thorough {
			w.accessible(where)
		}
		w.sound(where, "Failed to load resource")
		w.open(page)
	}
}

// byKeyboard holds a message without a mouse, while the page is refreshed; and pauses a pool, a domain and a host, and
// resumes them.
func (b *browser) byKeyboard(t *testing.T, r *relay, home string) {
	t.Helper()
	b.open(home + "/queue")
	b.tabTo(`tbody input[name="id"]`)
	b.press(" ")
	id := eval[string](b, `document.activeElement.value`)
	made := eval[string](b, `document.querySelector("#made").dateTime`)
	eventually(t, time.Minute, func() error {
		if eval[string](b, `document.querySelector("#made").dateTime`) == made {
			return fmt.Errorf("the page of %s is not refreshed", made)
		}
		return nil
	})
	if !eval[bool](b, fmt.Sprintf(`document.activeElement.value === %q && document.activeElement.checked`, id)) {
		t.Errorf("the refresh has lost the tick or the focus: %s", eval[string](b, `document.activeElement.outerHTML`))
	}
	b.confirmByKeys(`#ticked button[formaction="/queue/hold"]`, "Done: 1 recipient")
	c := r.client(t)
	if list, err := api.OpList.Call(context.Background(), c, api.ListQuery{Filter: api.Filter{State: api.StateHeld}}); err != nil || len(list.Messages) != 1 || list.Messages[0].ID != id {
		t.Errorf("held are %+v, %v; want %s", list.Messages, err, id)
	}
	b.open(home + "/pools")
	b.confirmByKeys(`tr[id="p-backup"] form[action="/rules/pause"] button`, "Done")
	b.open(home + "/rules")
	b.tabTo(`select[name="action"]`)
	b.press("sus")
	b.tabTo(`input[name="domain"]`)
	b.press("bad.example")
	b.confirmByKeys(`form[action="/rules/add"] button`, "Done")
	b.open(home + "/hosts?name=127.82.0.2")
	b.confirmByKeys(`form[action="/hosts/suspend"] button:not([formaction])`, "Done: 1 host")
	paused, err := api.OpRules.Call(t.Context(), c, api.None{})
	if err != nil || len(paused.Rules) != 2 {
		t.Errorf("paused are %+v, %v", paused.Rules, err)
	}
	b.open(home + "/hosts?name=127.82.0.2")
	b.confirmByKeys(`button[formaction="/hosts/resume"]`, "Done: 1 suspension")
	for range paused.Rules {
		b.open(home + "/rules")
		b.confirmByKeys(`form[action="/rules/end"] button`, "Done")
	}
	if paused, err := api.OpRules.Call(t.Context(), c, api.None{}); err != nil || len(paused.Rules) != 0 {
		t.Errorf("paused are still %+v, %v", paused.Rules, err)
	}
}

// confirmByKeys goes to the button of an action with the tabulator, and confirms it with a reason.
func (b *browser) confirmByKeys(button, done string) {
	b.t.Helper()
	b.tabTo(button)
	b.leads(chromedp.KeyEvent("\r"))
	b.shows("Reason")
	b.tabTo(`#reason`)
	b.press("by keyboard")
	b.tabTo(`button.main`)
	b.leads(chromedp.KeyEvent("\r"))
	b.shows(done)
}

// withoutScripts opens all pages again: each has its content, plots and streams apart.
func (b *browser) withoutScripts(w *walk) {
	b.t.Helper()
	b.scripts(false)
	for _, page := range w.sample() {
		status := b.open(page)
		if n := eval[int](b, `document.querySelector("main").innerText.length`); status != 200 || n < 40 {
			b.t.Errorf("without scripts %s is %d with %d characters", page, status, n)
		}
		b.sound("without scripts " + page)
	}
	b.scripts(true)
}

// narrow opens all pages on a telephone: tables scroll in their frames, pages don't.
func (b *browser) narrow(w *walk) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(360, 740))
	for _, page := range w.pages {
		b.open(page)
		if width := eval[int](b, `document.documentElement.scrollWidth`); width > 360 {
			wide := eval[[]string](b, `[...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > 361 && !e.closest(".scroll")).slice(0, 3).map((e) => e.outerHTML.slice(0, 200))`)
			b.t.Errorf("at 360 px %s is %d px wide: %q", page, width, wide)
		}
	}
	b.do(chromedp.ResetViewport())
	b.sound("at 360 px")
}

// manyTabs opens eight tabs, half of which follow something, over the six connections of HTTP/1.1: all have their
// content, and the fifth stream is refused.
func (b *browser) manyTabs(home string) {
	b.t.Helper()
	var tabs []*browser
	for i := range 8 {
		tab := b.tab()
		page := "/log"
		if i%2 == 1 {
			page = "/queue"
		}
		if status := tab.open(home + page); status != 200 {
			b.t.Errorf("tab %d: %d", i, status)
		}
		if page == "/log" {
			tab.shows("Following.")
		}
		tabs = append(tabs, tab)
	}
	fifth := b.tab()
	fifth.open(home + "/trace?watch=true")
	fifth.shows("too many streams")
	fifth.sound("the fifth stream", "429")
	for i, tab := range tabs {
		tab.sound(fmt.Sprintf("tab %d of 8", i))
		tab.close()
	}
	fifth.close()
}

// withoutRelay stops the relay: the page that is open says so, and the others have words and a remedy.
func (b *browser) withoutRelay(r *relay, w *walk) {
	b.t.Helper()
	b.open(w.home + "/queue")
	r.stop(patience)
	b.shows("The relay does not answer")
	b.accessible("gone /queue")
	for _, page := range w.sample() {
		status := b.open(page)
		if status >= 500 && status != 502 && status != 503 && status != 504 {
			b.t.Errorf("without the relay %s is %d:\n%s", page, status, b.text())
		}
		b.accessible("gone " + page)
	}
	b.sound("without the relay", "Failed to load resource", "Response Status Error Code 50")
}
