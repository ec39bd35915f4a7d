package mta

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/submission/auth"
)

// TestConsole: users with a role log in at the relay's console, those without look as if they were unknown, and
// a session ends with the role that it had.
func TestConsole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	text := userLine(t, "ada", "role=admin") + userLine(t, "shop", "tenant=acme")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, sink.Config{}, `tenant "acme" { }
		console {
			address = "127.0.0.1:`+freePort(t)+`"
			users   = "`+path+`"
		}`)
	base := "http://" + w.console.socket.Addr().String()
	refused := loginAt(t, base, "shop", "secret")
	for name, text := range map[string]string{"a wrong password": loginAt(t, base, "ada", "guess"), "an unknown user": loginAt(t, base, "eve", "secret")} {
		if want := strings.NewReplacer("shop", "NAME").Replace(refused); strings.NewReplacer("ada", "NAME", "eve", "NAME").Replace(text) != want {
			t.Errorf("%s is told apart from a user without a role:\n%s\n%s", name, text, want)
		}
	}
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar}
	get := func() (string, string) {
		t.Helper()
		a, err := browser.Get(base + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		page, _ := io.ReadAll(a.Body)
		return a.Request.URL.Path, string(page)
	}
	if _, err := browser.PostForm(base+"/login", url.Values{"user": {"ada"}, "password": {"secret"}}); err != nil {
		t.Fatal(err)
	}
	if at, page := get(); at != "/" || !strings.Contains(page, "ada, admin") {
		t.Fatalf("at %s:\n%s", at, page)
	}
	client := api.NewClient(w.cfg.Control.Socket)
	defer client.Close()
	record, err := api.OpActions.Call(t.Context(), client, api.ActionQuery{Action: "login", Limit: 10})
	if err != nil || len(record.Actions) != 4 {
		t.Fatalf("%d logins are on record, want 4; %v", len(record.Actions), err)
	}
	if got := record.Actions[0]; got.User != "ada" || got.Kind != api.ByConsole || got.Address != "127.0.0.1" || got.Outcome != "done" {
		t.Errorf("the login: %+v", got)
	}
	for _, refused := range record.Actions[1:] {
		if refused.Outcome != "refused" || refused.User == "eve" {
			t.Errorf("a refused one: %+v", refused)
		}
	}
	if err := auth.UpdateUsers(path, func(u *auth.UserTable) error {
		ada := *u.User("ada")
		ada.Role = "viewer"
		return u.Put(&ada)
	}); err != nil {
		t.Fatal(err)
	}
	w.until("the session has ended with the role", func() bool { at, _ := get(); return at == "/login" })
}

// loginAt tries to log in and gives the page that says no.
func loginAt(t *testing.T, base, user, password string) string {
	t.Helper()
	a, err := http.PostForm(base+"/login", url.Values{"user": {user}, "password": {password}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	page, _ := io.ReadAll(a.Body)
	if a.StatusCode != http.StatusForbidden {
		t.Errorf("%s: %s", user, a.Status)
	}
	return fmt.Sprint(a.StatusCode, string(page))
}

// TestConsoleByProxy: a user whom the proxy has logged in follows the log as others do, until they have no role.
func TestConsoleByProxy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte(userLine(t, "ada", "role=admin")), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, sink.Config{}, `console {
			address         = "127.0.0.1:`+freePort(t)+`"
			users           = "`+path+`"
			trusted_proxies = ["127.0.0.1"]
			user_header     = "X-Remote-User"
		}`)
	ask, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+w.console.socket.Addr().String()+"/log/follow", nil)
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := (wiring.ConsoleLogins{Users: w.console.logins.Load, Now: w.now}).Known("Ada"); ok {
		t.Errorf("Ada, whom the proxy knows, is %s", id.User)
	}
	ask.Header.Set("X-Remote-User", "ada")
	a, err := http.DefaultClient.Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	lines := bufio.NewScanner(a.Body)
	if !lines.Scan() || lines.Text() != "retry: 3000" {
		t.Fatalf("%s: %q, %v", a.Status, lines.Text(), lines.Err())
	}
	if err := os.WriteFile(path, []byte(userLine(t, "ada", "tenant=acme")), 0o600); err != nil {
		t.Fatal(err)
	}
	w.until("the role is gone", func() bool {
		_, ok := (wiring.ConsoleLogins{Users: w.console.logins.Load, Now: w.now}).Known("ada")
		return !ok
	})
	w.send("ann@client.example", letter, "bob@box.example")
	for lines.Scan() {
		if strings.Contains(lines.Text(), "bob@box.example") {
			t.Fatal("it goes on without the role")
		}
		if strings.Contains(lines.Text(), "The session has ended") {
			return
		}
	}
	t.Error("the stream has ended without a word")
}

// TestConsoleReload: names, proxies and users change by a reload; who has logged in with the users before has no session with
// the others, also when their file can't be read.
func TestConsoleReload(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"before": userLine(t, "ada", "role=admin"), "after": userLine(t, "eve", "role=admin")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port := freePort(t)
	block := func(users, more string) string {
		return "console {\n address = \"127.0.0.1:" + port + "\"\n users = \"" + filepath.Join(dir, users) + "\"\n" + more + "\n}\n"
	}
	w := newWorld(t, sink.Config{}, block("before", ""))
	reload := func(users, more string) {
		t.Helper()
		w.rewrite("console", block(users, more))
		if done, err := w.Reload(t.Context()); err != nil || slices.ContainsFunc(done.Restart, func(s string) bool { return strings.HasPrefix(s, "console") }) {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	base := "http://127.0.0.1:" + port
	if a, err := browser.PostForm(base+"/login", url.Values{"user": {"ada"}, "password": {"secret"}}); err != nil || a.StatusCode != http.StatusSeeOther {
		t.Fatalf("%+v, %v", a, err)
	}
	get := func(what string, want int, fields ...string) {
		t.Helper()
		ask, err := http.NewRequest("GET", base+"/queue", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(fields); i += 2 {
			if ask.Header.Set(fields[i], fields[i+1]); fields[i] == "Host" {
				ask.Host = fields[i+1]
			}
		}
		a, err := browser.Do(ask)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("%s: %s, want %d", what, a.Status, want)
		}
	}
	get("logged in", 200)
	get("a name to come", 421, "Host", "ops.example.com")
	reload("before", `hosts = ["ops.example.com", "127.0.0.1"]`)
	get("still logged in", 200)
	get("the new name, without the cookie", 303, "Host", "ops.example.com")
	get("a name that has gone", 421, "Host", "localhost")
	reload("after", "trusted_proxies = [\"127.0.0.1\"]\nuser_header = \"X-Remote-User\"")
	get("a user of the file before", 303)
	get("by the proxy", 200, "X-Remote-User", "eve")
	get("the proxy names a user of the file before", 303, "X-Remote-User", "ada")
	reload("before", "")
	get("the session of before", 303)
	if a, err := browser.PostForm(base+"/login", url.Values{"user": {"ada"}, "password": {"secret"}}); err != nil || a.StatusCode != http.StatusSeeOther {
		t.Fatalf("%+v, %v", a, err)
	}
	get("logged in again", 200)
	reload("missing", "")
	get("the users can't be read", 303)
	get("the proxy is trusted no longer", 303, "X-Remote-User", "eve")
}
