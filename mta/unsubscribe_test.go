package mta

import (
	"io"
	"net/http"
	"net/mail"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/check"
	"example.org/mta/operator/answer/kept"
	"example.org/mta/operator/answer/submitted"
	"example.org/mta/operator/api"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/request"
	"example.org/mta/suppression"
)

const unsubscribeURL = "https://mail.acme.example/unsubscribe"

// linkOf is the path of the link in a message's List-Unsubscribe, "" without one.
func linkOf(t *testing.T, content []byte) string {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(string(content)))
	if err != nil {
		t.Fatal(err)
	}
	link := m.Header.Get("List-Unsubscribe")
	if link == "" {
		return ""
	}
	path, ok := strings.CutPrefix(strings.Trim(link, "<>"), "https://mail.acme.example")
	if !ok {
		return link
	}
	if post := m.Header["List-Unsubscribe-Post"]; len(post) != 1 || post[0] != "List-Unsubscribe=One-Click" {
		t.Errorf("List-Unsubscribe-Post is %q", post)
	}
	return path
}

// A message to one recipient gets a signed link; a GET of it changes nothing, however often; a POST has the
// recipient suppressed for that tenant at once, makes one record, and can be repeated.
func TestUnsubscribe(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }
`+apiKeysFile(t)+`api "web" { address = "127.0.0.1:0" }
		tenant "acme" {
			networks = ["127.0.0.0/8"]
			unsubscribe = "`+unsubscribeURL+`"
		}`+"\n"+dkimBlock("client.example", `tenants = ["acme"]`))
	w.send("ann@client.example", "From: ann@client.example\r\nX-MTA-Campaign: spring\r\n\r\nx\r\n", "Joe@box.example")
	m := w.arrived(1)[0]
	signed := strings.ToLower(strings.Join(strings.Fields(string(m.Content)), ""))
	signed, _, _ = strings.Cut(signed[strings.Index(signed, ";h="):], ";b")
	if len(signedBy(t, m.Content)) != 1 || !strings.Contains(signed+":", ":list-unsubscribe:") || !strings.Contains(signed+":", ":list-unsubscribe-post:") {
		t.Errorf("the fields are not signed: %s\n%s", signed, m.Content)
	}
	path := linkOf(t, m.Content)
	ask := func(method, path string) (int, string) {
		t.Helper()
		req, _ := http.NewRequest(method, "http://"+w.Status().HTTP[0]+path, strings.NewReader("List-Unsubscribe=One-Click"))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.Header.Get("Content-Security-Policy") == "" && strings.HasPrefix(path, "/unsubscribe/") {
			t.Errorf("%s %s has no policy", method, path)
		}
		return resp.StatusCode, string(body)
	}
	for range 3 {
		status, body := ask("GET", path)
		if status != 200 || !strings.Contains(body, `<form method="post">`) || !strings.Contains(body, "J...@box.example") || strings.Contains(body, "Joe") {
			t.Fatalf("GET: %d\n%s", status, body)
		}
	}
	if _, found := w.suppression.Match("acme", "joe@box.example"); found {
		t.Fatal("a GET unsubscribed the recipient")
	}
	for range 2 {
		if status, body := ask("POST", path); status != 200 || !strings.Contains(body, "no more mail") {
			t.Fatalf("POST: %d\n%s", status, body)
		}
	}
	e, found := w.suppression.Match("acme", "joe@box.example")
	if !found || e.Source != suppression.Unsubscribe || e.Reason != "the recipient unsubscribed from spring" || !e.Expires.IsZero() {
		t.Errorf("entry %+v", e)
	}
	if _, found := w.suppression.Match("other", "joe@box.example"); found {
		t.Error("the recipient is suppressed for another tenant")
	}
	if refused := w.refusedAtRCPT("ann@client.example", "joe@box.example"); !strings.Contains(refused.Msg, "the recipient unsubscribed") {
		t.Errorf("RCPT is refused by %v", refused)
	}
	rec := w.await("Joe@box.example", "Unsubscribe")
	if rec.Tenant != "acme" || rec.Campaign != "spring" || rec.Session == "" || rec.Created.IsZero() || rec.Queue != "acme@box.example" {
		t.Errorf("record %+v", rec)
	}
	n := 0
	(kept.Log{Writer: w.accounting, Out: w.log}).Read(t.Context(), api.LogQuery{Types: []string{string(accounting.Unsubscribe)}}, func([]byte) error { n++; return nil }, nil)
	if n != 1 {
		t.Errorf("%d records of one recipient", n)
	}
	for _, bad := range []string{path[:len(path)-2], path + "x", "/unsubscribe/x"} {
		for _, method := range []string{"GET", "POST"} {
			if status, _ := ask(method, bad); status != 404 {
				t.Errorf("%s of a bad link: %d", method, status)
			}
		}
	}
}

// An entry that a bounce made ends some day, and a tenant can change its own; that of a recipient who unsubscribes stays.
func TestUnsubscribeOutlivesOtherEntries(t *testing.T) {
	w := newWorld(t, sink.Config{}, `tenant "acme" { unsubscribe = "`+unsubscribeURL+`" }`)
	if warnings := strings.Join(check.Warnings(w.cfg, time.Now()), " "); !strings.Contains(warnings, `no api block answers the unsubscribe links of tenant "acme"`) {
		t.Errorf("the warnings are %q", warnings)
	}
	key := suppression.KeyOf("acme", "joe@box.example")
	token := strings.TrimPrefix(w.unsubscribeLink("acme", "", "joe@box.example"), unsubscribeURL+"/")
	for _, before := range []suppression.Entry{
		{Source: suppression.Bounce, Expires: w.now().AddDate(0, 3, 0)},
		{Source: suppression.Bounce}, // by feed_keep = "0s"
		{Source: suppression.Tenant},
	} {
		before.Key = key
		w.suppression.Remove(t.Context(), []suppression.Key{key})
		w.suppression.Add(t.Context(), []suppression.Entry{before})
		if err := (&w.unsubscribes).Unsubscribe(t.Context(), token, "r"); err != nil {
			t.Fatal(err)
		}
		done, err := submitted.Suppressions{Own: w.suppression, Searches: w.submitted.Searches}.Add(t.Context(), "acme", []request.Suppression{{Address: "Joe@box.example", ExpiresAt: w.now().Add(time.Hour)}})
		if done.Unchanged != 1 || err != nil {
			t.Errorf("the tenant's entry: %+v, %v", done, err)
		}
		if e, found := w.suppression.Match("acme", "joe@box.example"); !found || !e.Expires.IsZero() || e.Source != suppression.Unsubscribe {
			t.Errorf("after %+v: entry %+v", before, e)
		}
	}
}

// What gets no link: a message with its own, with several recipients, a report, mail to a postmaster, and that of a
// tenant without the setting.
func TestWhatGetsNoUnsubscribeLink(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }
		tenant "acme" {
			networks = ["127.0.0.0/8"]
			unsubscribe = "`+unsubscribeURL+`"
		}
		tenant "plain" { }`)
	w.send("ann@client.example", "Subject: own\r\nList-Unsubscribe: <https://own.example/u>\r\n\r\nx\r\n", "a@box.example")
	w.send("ann@client.example", "Subject: several\r\n\r\nx\r\n", "a@box.example", "b@box.example")
	w.send("", "Subject: report\r\n\r\nx\r\n", "a@box.example")
	w.send("ann@client.example", "Subject: postmaster\r\n\r\nx\r\n", "Postmaster@box.example")
	w.send("ann@client.example", "Subject: half\r\nlist-unsubscribe-post: List-Unsubscribe=One-Click\r\n\r\nx\r\n", "a@box.example")
	seen := 0
	for _, m := range w.arrived(6) {
		want := ""
		text := string(m.Content)
		switch {
		case strings.Contains(text, "Subject: own"):
			want = "<https://own.example/u>"
			if strings.Contains(text, "List-Unsubscribe-Post") {
				t.Error("a link that may not take a POST is said to")
			}
		case strings.Contains(text, "Subject: half"):
			if got := linkOf(t, m.Content); !strings.HasPrefix(got, "/unsubscribe/") {
				t.Errorf("a message with List-Unsubscribe-Post alone has the link %q", got)
			}
			seen++
			continue
		}
		if got := linkOf(t, m.Content); got != want {
			t.Errorf("the link is %q, want %q:\n%s", got, want, text)
		}
		seen++
	}
	if seen < 5 {
		t.Errorf("%d messages arrived", seen)
	}
	if got := w.unsubscribeLink("plain", "", envelope.Address("a@box.example")); got != "" {
		t.Errorf("a tenant without the setting has %q", got)
	}
}

// Over HTTP each personal message gets the link of its recipient; a message to several gets none.
func TestUnsubscribeLinksByHTTP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }
		keys { file = "`+path+`" }
		api "web" { address = "127.0.0.1:0" }
		tenant "acme" { unsubscribe = "`+unsubscribeURL+`" }`)
	token, _, err := auth.AddKey(path, auth.Key{Tenant: "acme", Name: "shop", Scopes: auth.MaySend}, w.now())
	if err != nil {
		t.Fatal(err)
	}
	for _, recipients := range []string{`"recipients":[{"to":"joe@box.example"},{"to":"ann@box.example"}]`, `"to":["a@box.example","b@box.example"]`} {
		req, _ := http.NewRequest("POST", "http://"+w.Status().HTTP[0]+"/v1/messages", strings.NewReader(`{"from":"shop@client.example","subject":"x","text":"x","campaign":"spring",`+recipients+`}`))
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.Body.Close(); resp.StatusCode != 202 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
	}
	links := make(map[envelope.Address]bool)
	for _, m := range w.arrived(4) {
		link := linkOf(t, m.Content)
		if strings.Contains(string(m.Content), "To: a@box.example") {
			if link != "" {
				t.Errorf("a message to several has the link %s", link)
			}
			continue
		}
		s, ok := w.unsubscribes.Links.Read(strings.TrimPrefix(link, "/unsubscribe/"))
		if !ok || s.Tenant != "acme" || s.Campaign != "spring" || !strings.Contains(string(m.Content), "To: "+string(s.Address)) {
			t.Errorf("the link %q is of %+v:\n%s", link, s, m.Content)
		}
		links[s.Address] = true
	}
	if len(links) != 2 {
		t.Errorf("links of %v", links)
	}
}
