package relaytest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/testca"
	"example.org/mta/lab/sink"
	"example.org/mta/queue/vfs"
	"example.org/mta/submission/auth"
)

var writeCosts = flag.Bool("costs.write", false, "write what a message costs to e2e/costs.json")

const (
	costsFile = "../../e2e/costs.json"
	costsPage = "../../docs/benchmarks.md" // has the table
	tolerance = 3                          // percent, unless the file has another

	clients = 20
	roundOf = 2000 // messages
	warmUps = 2    // rounds
	rounds  = 5    // that count
	quiet   = 2 * time.Second
	// wave is how often all clients send. It is longer than the two syncs of that: of what comes first, and of what comes
	// meanwhile. So their number is the same, however many come first.
	wave = 10 * time.Millisecond
)

// costCase is a kind of mail.
type costCase struct {
	name     string
	conf     string // of the relay
	field    string // of the message, on top
	host     sink.Config
	connect  func(*costRun) // makes the clients
	arrivals int64          // how often a host answers for each message
	sites    int            // that the messages by SMTP go to, each to one; 0: one for all
	rcpts    int            // recipients of each message by SMTP, of which each counts as a message; 0: one
}

func costCases(t *testing.T) []costCase {
	refuse := func(reply string) sink.Config {
		return sink.Config{Refusals: []sink.Refusal{{Phase: sink.Rcpt, Reply: reply}}}
	}
	ca := testca.New(t)
	cert, key := testca.Files(t, ca.Issue(t, []string{"relay.example"}))
	secure := sink.Config{TLS: &tls.Config{Certificates: []tls.Certificate{*ca.Issue(t, []string{"mx.box.example"})}}}
	file := filepath.Join(t.TempDir(), "keys")
	token, _, err := auth.AddKey(file, auth.Key{Tenant: "acme", Name: "shop", Scopes: auth.MaySend}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	api := fmt.Sprintf(`
		api "web" { address = %q }
		keys { file = %q }
		tenant "acme" { senders = ["client.example"] }
	`, HTTP, file)
	return []costCase{
		{name: "accept", field: "X-Hold-For: 86400\r\n", connect: (*costRun).smtp},
		{name: "deliver", connect: (*costRun).smtp, arrivals: 1},
		{name: "defer", host: refuse("451 4.3.0 try again later"), connect: (*costRun).smtp, arrivals: 1},
		{name: "bounce", host: refuse("552 5.3.4 too large"), connect: (*costRun).smtp, arrivals: 2},
		{name: "100 sites", connect: (*costRun).smtp, arrivals: 1, sites: 100},
		{name: "50 recipients", connect: (*costRun).smtp, arrivals: 1, rcpts: 50},
		{name: "HTTP single", conf: api, connect: func(r *costRun) { r.http(token, clients, 1) }, arrivals: 1},
		{name: "HTTP 1,000", conf: api, connect: func(r *costRun) { r.http(token, 1, 1000) }, arrivals: 1},
		{name: "TLS", connect: (*costRun).secure, host: secure, arrivals: 1, conf: fmt.Sprintf(`
			listener "tls" {
				address = %q
				tls {
					certificate = %q
					key = %q
				}
			}
		`, overTLS, cert, key)},
		{name: "signed", connect: (*costRun).smtp, arrivals: 1, conf: `dkim "client.example" {
			domain = "client.example"
			key "s" { private_key = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=" }
		}`},
	}
}

// TestCosts counts what a message costs, and fails when a count is more than 3 % above that in e2e/costs.json. Who
// raises one has 'make costs' write that file, and says why in the commit message.
//
// Time is virtual, one processor runs all, and each sync takes a millisecond: the counts are the same on a busy machine.
// The garbage collector rests, so that it doesn't take by chance what is kept for use again.
func TestCosts(t *testing.T) {
	if bubble.RaceEnabled {
		t.Skip("allocations differ under the race detector; 'make unit' runs this test without it")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var names []string
	is := make(map[string]counts)
	for _, c := range costCases(t) {
		runtime.GC()
		bubble.Test(t, func(t *testing.T) { is[c.name] = c.count(t) })
		names = append(names, c.name)
	}
	if t.Failed() {
		return
	}
	table := costTable(names, is)
	t.Logf("what a message costs, with %s:\n%s", runtime.Version(), table)
	file := readCosts(t)
	if *writeCosts {
		file.write(t, is)
		publish(t, table)
		return
	}
	for _, n := range names {
		file.compare(t, n, is[n])
	}
}

// costTable is a table in Markdown.
func costTable(names []string, is map[string]counts) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintf(w, "| a message\t| %s\t|\n|%s\n", strings.Join(kindNames[:], "\t| "), strings.Repeat(" ---\t|", 1+int(kinds)))
	for _, n := range names {
		fmt.Fprintf(w, "| %s", n)
		for _, v := range is[n] {
			fmt.Fprintf(w, "\t| %v", rounded(v))
		}
		fmt.Fprint(w, "\t|\n")
	}
	w.Flush()
	return b.String()
}

// rounded has four digits.
func rounded(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return v
}

// costs is the file.
type costs struct {
	Go string `json:"go"` // by whose runtime it was counted
	// Tolerances are percents of counts that are less exact, by "case: count" or by "count".
	Tolerances map[string]struct {
		Percent float64 `json:"percent"`
		Why     string  `json:"why"`
	} `json:"tolerances"`
	Costs map[string]map[string]float64 `json:"costs"` // by case and count
}

func readCosts(t *testing.T) (c costs) {
	text, err := os.ReadFile(costsFile)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *costs) write(t *testing.T, is map[string]counts) {
	c.Go, c.Costs = runtime.Version(), make(map[string]map[string]float64)
	for name, all := range is {
		c.Costs[name] = make(map[string]float64)
		for k, v := range all {
			c.Costs[name][kindNames[k]] = rounded(v)
		}
	}
	text, err := json.MarshalIndent(c, "", "\t")
	if err == nil {
		err = os.WriteFile(costsFile, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// publish puts the table into the manual.
func publish(t *testing.T, table string) {
	const begins, ends = "<!-- costs -->\n\n", "\n<!-- /costs -->"
	page, err := os.ReadFile(costsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(page), begins)
	_, after, found := strings.Cut(rest, ends)
	if !found {
		t.Fatalf("%s has no place for the table", costsPage)
	}
	if err := os.WriteFile(costsPage, []byte(before+begins+table+ends+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// compare fails the test for each count that has risen, and reports each that has fallen.
func (c *costs) compare(t *testing.T, name string, is counts) {
	t.Helper()
	for k, v := range is {
		kind := kindNames[k]
		was, ok := c.Costs[name][kind]
		if !ok {
			t.Errorf("%s: e2e/costs.json lacks %s: run 'make costs'", name, kind)
			continue
		}
		within := float64(cmp.Or(c.Tolerances[name+": "+kind].Percent, c.Tolerances[kind].Percent, tolerance))
		change := 100 * (v - was) / was
		switch words := fmt.Sprintf("%s: %s a message: %v, in e2e/costs.json %v (by %s): %+.1f %%", name, kind, rounded(v), was, c.Go, change); {
		case change > within:
			t.Errorf("%s, more than %v %%.\nMake it cheaper, or run 'make costs' and say in the commit message why it has to cost more.", words, within)
		case change < -within:
			t.Logf("%s. Run 'make costs', so that it stays so.", words)
		}
	}
}

// costRun is a case that is counted.
type costRun struct {
	*Relay
	c       *costCase
	meter   meter
	clients []*sender
	hosts   []*sink.Server
}

// site is the domain and the host's address of one of the sites.
func (c *costCase) site(i int) (domain, address string) {
	if i == 0 {
		return "box.example", "192.0.2.1"
	}
	return fmt.Sprintf("box%d.example", i), fmt.Sprintf("203.0.113.%d", i)
}

// zone is what the name server knows.
func (c *costCase) zone() string {
	zone := "client.example. MX 10 mx.client.example.\nmx.client.example. A 192.0.2.2\n"
	for i := range max(c.sites, 1) {
		domain, address := c.site(i)
		zone += fmt.Sprintf("%[1]s. MX 10 mx.%[1]s.\nmx.%[1]s. A %s\n", domain, address)
	}
	return zone
}

// count returns what a message costs.
func (c *costCase) count(t *testing.T) (is counts) {
	r := &costRun{Relay: New(t, c.zone(), c.conf), c: c}
	r.Dir, r.Segment = t.TempDir(), "64MiB" // more than memory has room for; the default
	r.taps, r.queue = &taps{conn: r.meter.conn, log: r.meter.log}, countedFS{vfs.OS(), &r.meter}
	r.hosts = append(r.hosts, r.Host("mx.client.example", sink.Config{}, "192.0.2.2:25"))
	for i := range max(c.sites, 1) {
		domain, address := c.site(i)
		r.hosts = append(r.hosts, r.Host("mx."+domain, c.host, address+":25"))
	}
	r.Start()
	c.connect(r)
	for range warmUps {
		r.round()
	}
	before := r.meter.counts()
	for range rounds {
		r.round()
	}
	for k, v := range r.meter.counts() {
		is[k] = (v - before[k]) / (rounds * roundOf)
	}
	for _, c := range r.clients {
		c.Close()
	}
	return is
}

// round sends messages, and waits for what becomes of them.
func (r *costRun) round() {
	before := r.arrived()
	var all sync.WaitGroup
	for _, c := range r.clients {
		all.Go(func() {
			if err := c.send(roundOf / len(r.clients) / c.each); err != nil {
				r.t.Errorf("%s: %v", r.c.name, err)
			}
		})
	}
	all.Wait()
	time.Sleep(quiet)
	synctest.Wait()
	if n := r.arrived() - before; n != roundOf*r.c.arrivals {
		r.t.Fatalf("%s: hosts have answered %d times for %d messages, want %d for each", r.c.name, n, roundOf, r.c.arrivals)
	}
}

// arrived is how many recipients hosts have taken messages for, or refused.
func (r *costRun) arrived() (n int64) {
	for _, h := range r.hosts {
		s := h.Stats()
		n += s.Recipients
		for reply, refused := range s.Replies {
			if strings.HasPrefix(reply, "RCPT ") {
				n += refused
			}
		}
	}
	return n
}

// sender sends the same again and again. It allocates nothing meanwhile.
type sender struct {
	net.Conn
	in      *bufio.Reader
	each    int // messages at a time
	flights []flight
}

// flight is what is sent at once, and how its answers are heard.
type flight struct {
	text    []byte
	answers int
	hear    func(*bufio.Reader) error
}

func (c *sender) send(n int) error {
	for range n {
		for _, f := range c.flights {
			if err := c.say(f); err != nil {
				return err
			}
		}
		time.Sleep(time.Until(time.Now().Truncate(wave).Add(wave)))
	}
	return nil
}

func (c *sender) say(f flight) error {
	if _, err := c.Write(f.text); err != nil {
		return err
	}
	for range f.answers {
		if err := f.hear(c.in); err != nil {
			return err
		}
	}
	return nil
}

const textLine = "A line of words that is about as long as lines are.\r\n"

// smtp connects clients by SMTP.
func (r *costRun) smtp() { r.smtpAt(SMTP, nil) }

const overTLS = "127.0.0.1:2526"

// secure is smtp by TLS.
func (r *costRun) secure() { r.smtpAt(overTLS, &tls.Config{InsecureSkipVerify: true}) }

func (r *costRun) smtpAt(address string, config *tls.Config) {
	content := flight{[]byte(r.c.field + "From: Ann <ann@client.example>\r\nTo: Bob <bob@box.example>\r\nSubject: order\r\n\r\n" + strings.Repeat(textLine, 38) + ".\r\n"), 1, hearSMTP}
	messages, rcpts := max(r.c.sites/clients, 1), max(r.c.rcpts, 1)
	for i := range clients {
		c := r.dialIn(address)
		c.each = messages * rcpts
		for j := range messages {
			domain, _ := r.c.site((i*messages + j) % max(r.c.sites, 1))
			envelope := "MAIL FROM:<ann@client.example>\r\nRCPT TO:<bob@" + domain + ">\r\n"
			for n := range rcpts - 1 {
				envelope += fmt.Sprintf("RCPT TO:<bob%d@%s>\r\n", n, domain)
			}
			c.flights = append(c.flights, flight{[]byte(envelope + "DATA\r\n"), 2 + rcpts, hearSMTP}, content)
		}
		r.must(hearSMTP(c.in))
		r.must(c.say(flight{[]byte("EHLO app1.client.example\r\n"), 1, hearSMTP}))
		if config != nil {
			r.must(c.say(flight{[]byte("STARTTLS\r\n"), 1, hearSMTP}))
			c.Conn = tls.Client(c.Conn, config)
			c.in.Reset(c.Conn)
			r.must(c.say(flight{[]byte("EHLO app1.client.example\r\n"), 1, hearSMTP}))
		}
	}
}

func (r *costRun) dialIn(address string) *sender {
	pipe, err := r.doors[address].Dial(context.Background())
	r.must(err)
	c := &sender{Conn: pipe, in: bufio.NewReaderSize(pipe, 64<<10)}
	r.clients = append(r.clients, c)
	return c
}

// http connects clients by HTTP, with requests of some messages each.
func (r *costRun) http(token string, n, each int) {
	to := `"to":["Bob <bob@box.example>"]`
	if each > 1 {
		to = `"recipients":[` + strings.TrimSuffix(strings.Repeat(`{"to":"Bob <bob@box.example>","data":{"name":"Bob"}},`, each), ",") + "]"
	}
	body := fmt.Sprintf(`{"from":"Ann <ann@client.example>",%s,"subject":"order","text":%q}`, to, "Hello {{name}},\n"+strings.Repeat(textLine, 38))
	request := fmt.Sprintf("POST /v1/messages HTTP/1.1\r\nHost: relay.example\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		token, len(body), body)
	for range n {
		c := r.dialIn(HTTP)
		c.flights, c.each = []flight{{[]byte(request), 1, hearHTTP}}, each
	}
}

// hearSMTP hears a good reply.
func hearSMTP(in *bufio.Reader) error {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if line[0] != '2' && line[0] != '3' {
			return fmt.Errorf("the answer is %s", line)
		}
		if line[3] == ' ' {
			return nil
		}
	}
}

// hearHTTP hears a 202.
func hearHTTP(in *bufio.Reader) error {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	good, length, body := bytes.Contains(line, []byte(" 202 ")), 0, io.Reader(in)
	for len(line) > 2 {
		if line, err = in.ReadSlice('\n'); err != nil {
			return err
		}
		if n, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(n)))
		}
		if bytes.HasPrefix(line, []byte("Transfer-Encoding: chunked")) {
			body = httputil.NewChunkedReader(in)
		}
	}
	if !good {
		text, _ := in.Peek(min(length, in.Size()))
		return fmt.Errorf("the request is refused: %s", text)
	}
	if body != in {
		_, err = io.Copy(io.Discard, body)
		return err // the CRLF at the end is
	}
	_, err = in.Discard(length)
	return err
}
