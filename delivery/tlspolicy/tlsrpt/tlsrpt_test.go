package tlsrpt

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/route"
)

// memory is a Store.
type memory struct {
	mu   sync.Mutex
	kept map[string][]byte
}

func (m *memory) Load() (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.kept), nil
}

func (m *memory) Save(values map[string][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept = make(map[string][]byte)
	}
	for name, v := range values {
		if m.kept[name] = v; v == nil {
			delete(m.kept, name)
		}
	}
	return nil
}

// zone is a Resolver. A domain that it doesn't have has no record; "fails" fails.
type zone map[string]string

func (z zone) TXT(_ context.Context, name string) ([]string, error) {
	switch text := z[strings.TrimPrefix(name, "_smtp._tls.")]; text {
	case "":
		return nil, nil
	case "fails":
		return nil, errors.New("SERVFAIL")
	default:
		return []string{"some other text", text}, nil
	}
}

// outbox takes mail.
type outbox struct {
	mu   sync.Mutex
	sent []Mail
	at   []time.Time
	fail bool
}

func (o *outbox) put(m Mail) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail {
		return errors.New("no room")
	}
	o.sent, o.at = append(o.sent, m), append(o.at, time.Now())
	return nil
}

func (o *outbox) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.sent)
}

func config(z zone, o *outbox) Config {
	return Config{
		Organization: "Example & Co", Contact: "tls@sender.example", Submitter: "relay.sender.example", From: "tls-reports@sender.example",
		Resolver: z, Mail: o.put, Transport: NewTransport(true, nil),
	}
}

func newReporter(t *testing.T, cfg Config) *Reporter {
	t.Helper()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shown is all of a reporter's days, a page for each.
func shown(r *Reporter) (all []Day) {
	for after := ""; ; {
		days, next := r.Days("", after, 1)
		all = append(all, days...)
		if after = next; next == "" {
			return all
		}
	}
}

// results are of one day, by three policies.
func results(at time.Time) (all []tlspolicy.Result) {
	enforce := route.STS{Mode: route.STSEnforce, MX: "mx1.box.example,*.mail.box.example"}
	host := func(name, addr string) route.Host {
		return route.Host{Name: name, Addr: netip.AddrPortFrom(netip.MustParseAddr(addr), 25)}
	}
	source := netip.MustParseAddr("192.0.2.1")
	add := func(n int, r tlspolicy.Result) {
		for range n {
			r.Time, r.Domain, r.Source = at, "box.example", source
			all = append(all, r)
		}
	}
	add(5, tlspolicy.Result{Policy: tlspolicy.STSPolicy, STS: enforce, Host: host("mx1.box.example", "198.51.100.1")})
	add(2, tlspolicy.Result{Policy: tlspolicy.STSPolicy, STS: enforce, Host: host("mx1.box.example", "198.51.100.1"), Class: tlspolicy.Expired, Reason: "x509: certificate has expired"})
	add(1, tlspolicy.Result{Policy: tlspolicy.STSPolicy, STS: enforce, Host: host("mx2.mail.box.example", "2001:db8::1"), Class: tlspolicy.NoSTARTTLS})
	add(3, tlspolicy.Result{Policy: tlspolicy.DANEPolicy, Host: host("mx1.box.example", "198.51.100.1")})
	add(1, tlspolicy.Result{Policy: tlspolicy.NoPolicy, Host: host("mx1.box.example", "198.51.100.1"), Class: tlspolicy.NotTrusted})
	return all
}

var noon = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

// The report is the one of RFC 8460, 4.4, member by member.
func TestReport(t *testing.T) {
	r := newReporter(t, config(nil, nil))
	for _, result := range results(noon) {
		r.Record(result)
	}
	days := shown(r)
	if len(days) != 1 {
		t.Fatalf("%d days", len(days))
	}
	got, err := r.cfg.report(&days[0])
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/report.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("the report:\n%s", got)
	}
	checkReport(t, got)
}

// A policy is quoted whole, as it was published (RFC 8460, 4.4); one that could not be had has no text.
func TestReportQuotesThePolicy(t *testing.T) {
	cfg := config(nil, new(outbox))
	cfg.MaxAge = func(string) time.Duration { return 24 * time.Hour }
	r := newReporter(t, cfg)
	now := time.Now()
	r.Record(tlspolicy.Result{Time: now, Domain: "box.example", Policy: tlspolicy.STSPolicy, STS: route.STS{Mode: route.STSTesting, MX: "*.box.example,mx.example"}})
	r.Record(tlspolicy.Result{Time: now, Domain: "box.example", Policy: tlspolicy.STSPolicy, Class: tlspolicy.STSFetchError, Reason: "404"})
	for _, records := range [][]string{{"3 1 1 0b9f", "2 0 1 e8b5"}, {"3 1 1 0b9f", "2 0 1 e8b5"}, {"3 1 1 77aa"}, {strings.Repeat("3", maxMX+1)}} {
		r.Record(tlspolicy.Result{Time: now, Domain: "box.example", Policy: tlspolicy.DANEPolicy, TLSA: records})
	}
	days := shown(r)
	text, err := r.cfg.report(&days[0])
	if err != nil {
		t.Fatal(err)
	}
	checkReport(t, text)
	var got struct {
		Policies []struct {
			Policy policyText `json:"policy"`
		} `json:"policies"`
	}
	if err := json.Unmarshal(text, &got); err != nil || len(got.Policies) != 5 {
		t.Fatalf("%v in\n%s", err, text)
	}
	if p := got.Policies[0].Policy; strings.Join(p.Text, "|") != "version: STSv1|mode: testing|mx: *.box.example|mx: mx.example|max_age: 86400" {
		t.Errorf("%+v", p)
	}
	if one, two, none := got.Policies[2].Policy, got.Policies[3].Policy, got.Policies[4].Policy; strings.Join(one.Text, "|") != "3 1 1 0b9f|2 0 1 e8b5" || one.MX != nil ||
		strings.Join(two.Text, "|") != "3 1 1 77aa" || none.Text != nil {
		t.Errorf("%+v, %+v, %+v", one, two, none)
	}
	if p := got.Policies[1].Policy; p.Type != tlspolicy.STSPolicy || p.Text != nil || p.MX != nil || p.Domain != "box.example" {
		t.Errorf("%+v", p)
	}
}

// checkReport holds a report to what RFC 8460, 4.4 and 4.3 demand of it.
func checkReport(t *testing.T, text []byte) {
	t.Helper()
	var r struct {
		Organization string `json:"organization-name"`
		Range        struct {
			Start time.Time `json:"start-datetime"`
			End   time.Time `json:"end-datetime"`
		} `json:"date-range"`
		Contact  string `json:"contact-info"`
		ID       string `json:"report-id"`
		Policies []struct {
			Policy struct {
				Type   string   `json:"policy-type"`
				Text   []string `json:"policy-string"`
				Domain string   `json:"policy-domain"`
				MX     []string `json:"mx-host"`
			} `json:"policy"`
			Summary struct {
				Success *int64 `json:"total-successful-session-count"`
				Failure *int64 `json:"total-failure-session-count"`
			} `json:"summary"`
			Failures []struct {
				Type   string `json:"result-type"`
				Source string `json:"sending-mta-ip"`
				Host   string `json:"receiving-mx-hostname"`
				IP     string `json:"receiving-ip"`
				Count  int64  `json:"failed-session-count"`
				Reason string `json:"failure-reason-code"`
			} `json:"failure-details"`
		} `json:"policies"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if r.Organization == "" || r.Contact == "" || r.ID == "" || r.Range.End.Sub(r.Range.Start) != 24*time.Hour-time.Second || len(r.Policies) == 0 {
		t.Errorf("the report lacks something:\n%s", text)
	}
	classes := []string{
		"starttls-not-supported", "certificate-host-mismatch", "certificate-expired", "certificate-not-trusted", "validation-failure",
		"tlsa-invalid", "dnssec-invalid", "dane-required", "sts-policy-fetch-error", "sts-policy-invalid", "sts-webpki-invalid",
	}
	for _, p := range r.Policies {
		if !slices.Contains([]string{"tlsa", "sts", "no-policy-found"}, p.Policy.Type) || p.Policy.Domain == "" || p.Summary.Success == nil || p.Summary.Failure == nil {
			t.Errorf("policy %+v", p)
		}
		sum := int64(0)
		for _, f := range p.Failures {
			sum += f.Count
			if !slices.Contains(classes, f.Type) {
				t.Errorf("result type %q", f.Type)
			}
		}
		if sum != *p.Summary.Failure {
			t.Errorf("%d failures in detail, %d in all", sum, *p.Summary.Failure)
		}
	}
}

// A day's report goes out by mail on the next day, once, and not at midnight.
func TestReportByMail(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var box outbox
		cfg := config(zone{"box.example": "v=TLSRPTv1; rua=mailto:tls@box.example"}, &box)
		cfg.Store = new(memory)
		ctx, stop := context.WithCancel(t.Context())
		r := newReporter(t, cfg)
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		began := time.Now().UTC()
		for _, result := range results(began) {
			r.Record(result)
			result.Domain = "silent.example" // asks for no reports
			r.Record(result)
		}
		midnight := began.Truncate(24 * time.Hour).Add(24 * time.Hour)
		time.Sleep(time.Until(midnight))
		synctest.Wait()
		if box.count() > 0 {
			t.Error("a report on a day that is not over")
		}
		time.Sleep(48 * time.Hour)
		stop()
		<-ended
		if len(box.sent) != 1 || box.at[0].Sub(midnight) <= 0 || box.at[0].Sub(midnight) > 24*time.Hour {
			t.Fatalf("%d reports, at %v", len(box.sent), box.at)
		}
		checkMail(t, box.sent[0])
		days := shown(r)
		if len(days) != 1 || !days[0].Done || len(days[0].Reports) != 1 || !days[0].Reports[0].Sent {
			t.Errorf("shown: %+v", days)
		}
	})
}

// checkMail holds a message to RFC 8460, 5.3.
func checkMail(t *testing.T, m Mail) {
	t.Helper()
	if bytes.Count(m.Content, []byte("\n")) != bytes.Count(m.Content, []byte("\r\n")) {
		t.Error("a line doesn't end in CRLF")
	}
	msg, err := mail.ReadMessage(bytes.NewReader(m.Content))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"From": "TLS reports <tls-reports@sender.example>", "To": "<tls@box.example>", "TLS-Report-Domain": "box.example",
		"TLS-Report-Submitter": "relay.sender.example", "TLS-Required": "No",
	} {
		if got := msg.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := msg.Header.Get("Subject"); !strings.HasPrefix(got, "Report Domain: box.example Submitter: relay.sender.example Report-ID: <") {
		t.Errorf("Subject: %q", got)
	}
	media, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	if err != nil || media != "multipart/report" || params["report-type"] != "tlsrpt" {
		t.Fatalf("%s %v %v", media, params, err)
	}
	parts := multipart.NewReader(msg.Body, params["boundary"])
	if p, err := parts.NextPart(); err != nil || !strings.HasPrefix(p.Header.Get("Content-Type"), "text/plain") {
		t.Fatalf("the first part: %v", err)
	}
	p, err := parts.NextRawPart()
	if err != nil || p.Header.Get("Content-Type") != "application/tlsrpt+gzip" {
		t.Fatalf("the second part: %v", err)
	}
	if name := p.FileName(); !strings.HasPrefix(name, "relay.sender.example!box.example!") || !strings.HasSuffix(name, ".json.gz") {
		t.Errorf("file %q", name)
	}
	raw, err := io.ReadAll(p)
	if err != nil {
		t.Fatal(err)
	}
	checkReport(t, gunzip(t, decode64(t, raw)))
	if _, err := parts.NextPart(); err != io.EOF {
		t.Errorf("after the second part: %v", err)
	}
}

// What is counted and what was sent outlive a restart.
func TestRestart(t *testing.T) {
	var box outbox
	now := noon
	cfg := config(zone{"box.example": "v=TLSRPTv1;rua=mailto:tls@box.example,mailto:two@box.example"}, &box)
	cfg.Store, cfg.Now = new(memory), func() time.Time { return now }
	r := newReporter(t, cfg)
	all := results(noon)
	for _, result := range all[:6] {
		r.Record(result)
	}
	r.save()
	r = newReporter(t, cfg)
	for _, result := range all[6:] {
		r.Record(result)
	}
	now = noon.Add(48 * time.Hour)
	box.fail = true
	r.SendDue(t.Context())
	r = newReporter(t, cfg)
	box.fail = false
	r.SendDue(t.Context())
	if len(box.sent) != 0 {
		t.Error("tried again at once")
	}
	now = now.Add(firstRetry)
	r.SendDue(t.Context())
	newReporter(t, cfg).SendDue(t.Context())
	if len(box.sent) != 2 {
		t.Fatalf("%d reports", len(box.sent))
	}
	days := shown(r)
	if got := days[0].Policies; len(got) != 3 || got[0].Success != 5 || got[0].Failure != 3 || got[1].Success != 3 || got[2].Failure != 1 {
		t.Errorf("counted %+v", got)
	}
	now = noon.Add(keep + 24*time.Hour)
	r.forget()
	r.save()
	if kept, _ := cfg.Store.Load(); len(kept) != 0 || len(shown(r)) != 0 {
		t.Errorf("kept for ever: %v", slices.Collect(maps.Keys(kept)))
	}
}

// A collector gets the report by POST; what fails is tried again for a day and then given up, and a
// redirect leads nowhere.
func TestReportByHTTPS(t *testing.T) {
	var mu sync.Mutex
	var got [][]byte
	status, types := http.StatusServiceUnavailable, []string{}
	collector := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		mu.Lock()
		defer mu.Unlock()
		got, types = append(got, body), append(types, req.Method+" "+req.URL.Path+" "+req.Header.Get("Content-Type"))
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	defer collector.Close()
	now := noon
	var box outbox
	cfg := config(zone{"box.example": "v=TLSRPTv1; rua=mailto:tls@box.example," + collector.URL + "/reports"}, &box)
	cfg.Now = func() time.Time { return now }
	r := newReporter(t, cfg)
	for _, result := range results(noon) {
		r.Record(result)
	}
	now = noon.Add(36 * time.Hour)
	r.SendDue(t.Context())
	status = http.StatusMovedPermanently
	now = now.Add(firstRetry)
	r.SendDue(t.Context())
	if d := shown(r)[0]; len(got) != 2 || d.Done || d.Reports[1].Sent || d.Reports[1].Error != "the web server answered 301 Moved Permanently" {
		t.Fatalf("%d reports; %+v", len(got), d)
	}
	status = http.StatusCreated
	now = now.Add(2 * firstRetry)
	r.SendDue(t.Context())
	if d := shown(r)[0]; len(got) != 3 || !d.Done || !d.Reports[1].Sent || len(box.sent) != 1 {
		t.Fatalf("%d reports; %+v", len(got), d)
	}
	if s := r.Stats(); s != (Stats{Results: int64(len(results(noon))), Sent: 2, Failed: 2}) {
		t.Errorf("stats %+v", s)
	}
	if types[2] != "POST /reports application/tlsrpt+gzip" {
		t.Errorf("it came as %s", types[2])
	}
	checkReport(t, gunzip(t, got[2]))

	// Who never takes it is not asked for ever.
	status = http.StatusInternalServerError
	now = noon
	for _, result := range results(noon.Add(24 * time.Hour)) {
		r.Record(result)
	}
	for range 100 {
		now = now.Add(time.Hour)
		r.SendDue(t.Context())
	}
	if d := shown(r)[1]; !d.Done || d.Reports[1].Sent || d.Tries < 5 || d.Tries > 15 {
		t.Errorf("given up: %+v", d)
	}
}

// Strangers say where reports go: not into our own networks.
func TestReportsStayOutOfOurNetworks(t *testing.T) {
	collector := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	defer collector.Close()
	cfg := config(nil, nil)
	cfg.Transport = NewTransport(false, nil)
	if err := cfg.post(t.Context(), collector.URL, nil); err == nil || !strings.Contains(err.Error(), "not a public address") {
		t.Errorf("got %v", err)
	}
}

func TestAddressesOfTheInternet(t *testing.T) {
	for addr, want := range map[string]bool{
		"8.8.8.8": true, "2001:4860:4860::8888": true,
		"10.0.0.1": false, "127.0.0.1": false, "169.254.169.254": false, "100.64.0.1": false, "0.1.2.3": false, "255.255.255.255": false,
		"::1": false, "::127.0.0.1": false, "fe80::1": false, "fd00::1": false, "64:ff9b::a00:1": false, "2002:a00:1::1": false,
	} {
		if got := global(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	for _, host := range []string{"64:ff9b::a00:1", "2002:a00:1::1", "::127.0.0.1"} { // a zone hides what is inside
		cfg := config(nil, nil)
		cfg.Transport = NewTransport(false, nil)
		if err := cfg.post(t.Context(), "https://["+host+"%25lo]:1/", nil); err == nil || !strings.Contains(err.Error(), "not a public address") {
			t.Errorf("%s with a zone: %v", host, err)
		}
	}
	if !ours(netip.MustParseAddr("127.0.0.1")) || ours(netip.MustParseAddr("8.8.8.8")) {
		t.Error("this machine is mistaken for another one")
	}
}

// slow is a web server that never answers.
type slow chan struct{}

func (s slow) RoundTrip(req *http.Request) (*http.Response, error) {
	s <- struct{}{}
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// Web servers that take their time keep nothing from being saved.
func TestSlowCollectors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var kept memory
		asked := make(slow, 100)
		cfg := config(zone{"box.example": "v=TLSRPTv1; rua=https://a.example/,https://b.example/,https://c.example/"}, &outbox{})
		cfg.Store, cfg.Transport = &kept, asked
		r := newReporter(t, cfg)
		for _, result := range results(time.Now().Add(-24 * time.Hour)) {
			r.Record(result)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		<-asked
		now := tlspolicy.Result{Time: time.Now(), Domain: "other.example", Policy: tlspolicy.NoPolicy}
		r.Record(now)
		time.Sleep(checkEvery + time.Second)
		if all, _ := kept.Load(); all[now.Time.UTC().Format(dayLayout)+"/other.example"] == nil {
			t.Error("what was counted meanwhile is not saved")
		}
		stop()
		running.Wait()
	})
}

// A domain whose name servers fail is asked again; nothing is lost meanwhile.
func TestDiscoveryFails(t *testing.T) {
	var box outbox
	z := zone{"box.example": "fails"}
	now := noon
	cfg := config(z, &box)
	cfg.Now = func() time.Time { return now }
	r := newReporter(t, cfg)
	for _, result := range results(noon) {
		r.Record(result)
	}
	now = noon.Add(36 * time.Hour)
	r.SendDue(t.Context())
	if d := shown(r)[0]; d.Done || d.LookupError != "SERVFAIL" {
		t.Errorf("%+v", d)
	}
	z["box.example"] = "v=TLSRPTv1; rua=mailto:tls@box.example"
	now = now.Add(firstRetry)
	r.SendDue(t.Context())
	if d := shown(r)[0]; !d.Done || d.LookupError != "" || len(box.sent) != 1 {
		t.Errorf("%+v", d)
	}
}

// Whatever strangers do with names and addresses, what is kept is bounded, and the sums are right.
func TestBounds(t *testing.T) {
	r := newReporter(t, config(nil, nil))
	for i := range 5 * maxDetails {
		r.Record(tlspolicy.Result{
			Time: noon, Domain: "box.example", Policy: tlspolicy.NoPolicy, Class: tlspolicy.Expired, Reason: strings.Repeat("é", 1000),
			Host: route.Host{Name: fmt.Sprintf("mx%d.box.example", i)},
		})
		r.Record(tlspolicy.Result{Time: noon, Domain: "box.example", Policy: tlspolicy.STSPolicy, STS: route.STS{MX: fmt.Sprint(i) + strings.Repeat(",mx.box.example", 4000)}})
	}
	d := shown(r)[0]
	if p := d.Policies[0]; len(d.Policies) > maxPolicies || len(d.Policies[1].MX) > maxMX || len(p.Details) != maxDetails+1 || p.Failure != 5*maxDetails || p.Details[maxDetails].Count != 4*maxDetails || len(p.Details[0].Reason) > maxReason {
		t.Errorf("%d policies, %d details, %d failures, %d without a host", len(d.Policies), len(p.Details), p.Failure, p.Details[len(p.Details)-1].Count)
	}
	for i := range maxDomains + 10 {
		r.Record(tlspolicy.Result{Time: noon, Domain: fmt.Sprintf("d%d.example", i), Policy: tlspolicy.NoPolicy})
	}
	if len(r.days) != maxDomains || r.ignored != 11 {
		t.Errorf("%d domains, %d results ignored", len(r.days), r.ignored)
	}
}

func TestParseRecord(t *testing.T) {
	for _, c := range []struct {
		texts []string
		want  string // "": no record; "!": a bad one
	}{
		{nil, ""},
		{[]string{"v=spf1 -all"}, ""},
		{[]string{"v=TLSRPTv1;rua=mailto:a@b.example"}, "mailto:a@b.example"},
		{[]string{"v=TLSRPTv1 ; rua = mailto:a@b.example , https://b.example/r?x=1#f ;ext=1"}, "mailto:a@b.example https://b.example/r?x=1"},
		{[]string{"v=TLSRPTv1;ext=1;rua=mailto:a%21b@b.example;"}, "mailto:a!b@b.example"},
		{[]string{"v=TLSRPTv1;rua=mailto:a@b.example", "v=TLSRPTv1;rua=mailto:c@b.example"}, ""},
		{[]string{"v=TLSRPTv1;rua=mailto:a@b.example", "v=TLSRPTv2;rua=mailto:c@b.example"}, "mailto:a@b.example"},
		{[]string{"v=TLSRPTv1"}, ""},
		{[]string{"v=TLSRPTv1;"}, "!"},
		{[]string{"v=TLSRPTv1;rua="}, "!"},
		{[]string{"v=TLSRPTv1;rua=http://b.example/,ftp://b.example,mailto:,mailto:a%0D%0ABcc:x@b.example,https://,https://u:p@b.example/"}, "!"},
		{[]string{"v=TLSRPTv1;rua=mailto:a@[10.0.0.1],https://b.example/" + strings.Repeat("x", maxURI)}, "!"},
		{[]string{"v=TLSRPTv1;rua=" + strings.Repeat("mailto:a@b.example,", 10)}, strings.TrimSpace(strings.Repeat("mailto:a@b.example ", maxDestinations))},
	} {
		got, err := ParseRecord(c.texts)
		switch {
		case c.want == "" && !errors.Is(err, ErrNoRecord), c.want == "!" && (err == nil || errors.Is(err, ErrNoRecord)):
			t.Errorf("%q: %v", c.texts, err)
		case c.want != "" && c.want != "!" && strings.Join(got, " ") != c.want:
			t.Errorf("%q: %q, %v", c.texts, got, err)
		}
	}
}

// FuzzParseRecord: whatever a record says, a destination is an address or an https URL, on one line.
func FuzzParseRecord(f *testing.F) {
	f.Add("v=TLSRPTv1; rua=mailto:a@b.example,https://b.example/r")
	f.Add("v=TLSRPTv1;rua=mailto:%22a%20b%22@b.example")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParseRecord([]string{text})
		if (err == nil) != (len(all) > 0) {
			t.Fatalf("%q, %v", all, err)
		}
		for _, to := range all {
			if strings.ContainsAny(to, "\r\n\x00") || !strings.HasPrefix(to, "mailto:") && !strings.HasPrefix(to, "https://") {
				t.Fatalf("destination %q", to)
			}
		}
	})
}

func decode64(t *testing.T, b []byte) []byte {
	t.Helper()
	out, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(string(b), "\r\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func gunzip(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
