package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/relaytest"
	"example.org/mta/operator/api"
)

// The scripts run the program as its own process. It differs from the real one in two things: the
// time is $NOW when that is set, and standard output is a terminal of $COLUMNS when that is.
func TestMain(m *testing.M) {
	program := func() { os.Exit(run(scriptCLI(), os.Args)) }
	testscript.Main(m, map[string]func(){"mta": program, "sendmail": program, "mailq": program, "newaliases": program})
}

func scriptCLI() *cli {
	c := &cli{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv, now: time.Now}
	c.usualConfig = os.Getenv("USUAL")
	if dir := os.Getenv("WELLKNOWN"); dir != "" {
		c.wellKnown = []string{dir}
	}
	if now, err := time.Parse(time.RFC3339, os.Getenv("NOW")); err == nil {
		c.now = func() time.Time { return now }
	}
	if width, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil {
		c.screen = draw.Screen{TTY: true, Width: width, Colour: os.Getenv("NO_COLOR") == ""}
	}
	return c
}

func TestScripts(t *testing.T) {
	p := scriptParams(t)
	p.Dir = "testdata/script"
	testscript.Run(t, p)
}

// scriptParams is what scripts have: a configuration, and the commands below.
func scriptParams(t *testing.T) testscript.Params {
	return testscript.Params{
		UpdateScripts:       os.Getenv("UPDATE") != "",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TZ", "UTC")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // or each process of a build with -race takes a second to end
			env.Setenv("LOGNAME", "root")
			env.Setenv("MTA_CONFIG", "mta.conf")
			env.Setenv("TMPDIR", env.WorkDir)
			return os.WriteFile(filepath.Join(env.WorkDir, "mta.conf"), []byte("hostname = \"relay.example\"\ndata_dir = \"mta-data\"\n"), 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"relay":    func(ts *testscript.TestScript, _ bool, how []string) { sampleRelay(t, ts, how) },
			"pass":     letPass,
			"answers":  setAnswers,
			"receiver": startReceiver,
			"notify":   listenForNotify,
			"notified": awaitNotify,
			"smtpaddr": setRelayAddress,
			"drained":  await("the queue to be empty", "", func(n int) bool { return n == 0 }),
			"deferred": await("something to be deferred", api.StateDeferred, func(n int) bool { return n > 0 }),
			"active":   await("an attempt to be under way", api.StateActive, func(n int) bool { return n > 0 }),
			"received": awaitReceived,
			"printed":  awaitPrinted,
			"signal":   sendSignal,
			"expand":   expand,
			"zone":     serveZone,
		},
	}
}

// sampleRelay answers on the control socket until the script ends. It can be "refusing", and have "streams".
func sampleRelay(t *testing.T, ts *testscript.TestScript, how []string) {
	ts.Setenv("NOW", relaytest.Now.Format(time.RFC3339))
	path := ts.MkAbs("mta-data/control.sock")
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o700))
	l, err := api.Listen(path, 0o600)
	ts.Check(err)
	r := relaytest.Serve(t, func(t *testing.T) *relaytest.Sample {
		more := ""
		if slices.Contains(how, "streams") { // that nobody takes
			more = `stream "app" { to = "https://127.0.0.1:1/app" }
				stream "crm" { to = "https://127.0.0.1:1/crm" }`
		}
		s := relaytest.NewSample(t, more, nil)
		if slices.Contains(how, "refusing") {
			time.Sleep(time.Second / 2) // between two checks of the disk
			s.Free.Store(0)
			time.Sleep(5 * time.Second)
		}
		return s
	})
	ts.Defer(r.Close)
	sample := &relay{Outside: r}
	relays.Store(path, sample)
	for i, id := range r.IDs {
		ts.Setenv(fmt.Sprintf("ID%d", i+1), id)
	}
	ts.Setenv("DATA", r.Dir)
	alice := api.Actor{Kind: api.BySocket, User: "alice"}
	s := http.Server{Handler: sample, ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return api.WithActor(ctx, alice) }}
	served := make(chan struct{})
	go func() { defer close(served); s.Serve(l) }()
	ts.Defer(func() { s.Close(); <-served })
}

// relay is the sample relay of a script. Some requests have other answers than its.
type relay struct {
	*relaytest.Outside
	answers sync.Map // texts by method, URL and, if it matters, body
}

func (r *relay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	request := q.Method + " " + q.URL.String()
	for _, asked := range []string{request + " " + string(body), request} {
		if answer, ok := r.answers.Load(asked); ok {
			io.WriteString(w, answer.(string))
			return
		}
	}
	q.Body = io.NopCloser(bytes.NewReader(body))
	r.Outside.ServeHTTP(w, q)
}

// relays finds the sample relay of a script for its other commands.
var relays sync.Map

// setAnswers sets the answers of testdata/answers.txt to requests about the parts that it names; of all without.
func setAnswers(ts *testscript.TestScript, _ bool, parts []string) {
	all, err := txtar.ParseFile(answersFile)
	ts.Check(err)
	v, _ := relays.Load(ts.MkAbs("mta-data/control.sock"))
	for _, f := range all.Files {
		if len(parts) == 0 || slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(f.Name, " /v1/"+part) }) {
			v.(*relay).answers.Store(f.Name, string(f.Data))
		}
	}
}

const answersFile = "testdata/answers.txt"

// letPass lets time pass for the sample relay.
func letPass(ts *testscript.TestScript, _ bool, args []string) {
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	v, _ := relays.Load(ts.MkAbs("mta-data/control.sock"))
	v.(*relay).Do(func() { time.Sleep(d) })
}

// receiver is an SMTP server that puts what it takes into files: received/N.env has the envelope,
// N.eml the content. Some local parts and subjects are refused.
type receiver struct {
	dir string

	mu    sync.Mutex // guards count
	count int
	more  chan struct{} // one for each message

	ending chan struct{} // closed when the script ends; mail for slow@ is not answered before
}

// startReceiver serves until the script ends. $MTA_SMTP is where.
func startReceiver(ts *testscript.TestScript, _ bool, args []string) {
	r := &receiver{dir: ts.MkAbs("received"), more: make(chan struct{}, 1000), ending: make(chan struct{})}
	ts.Check(os.MkdirAll(r.dir, 0o700))
	s := smtp.NewServer(r)
	s.Domain = "receiver.example"
	s.EnableDSN = true
	s.EnableSMTPUTF8 = len(args) == 0 || args[0] != "ascii"
	s.ErrorLog = discard{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	served := make(chan struct{})
	go func() { defer close(served); s.Serve(l) }()
	ts.Defer(func() { close(r.ending); s.Close(); <-served })
	ts.Setenv("MTA_SMTP", l.Addr().String())
	_, port, _ := net.SplitHostPort(l.Addr().String())
	ts.Setenv("RECEIVER_PORT", port)
	receivers.Store(r.dir, r)
}

// receivers finds the receiver of a script for awaitReceived.
var receivers sync.Map

type discard struct{}

func (discard) Printf(string, ...any) {}
func (discard) Println(...any)        {}

func (r *receiver) NewSession(*smtp.Conn) (smtp.Session, error) {
	return &receiverSession{r: r}, nil
}

type receiverSession struct {
	r        *receiver
	envelope strings.Builder
}

func (s *receiverSession) Mail(from string, o *smtp.MailOptions) error {
	if strings.HasPrefix(from, "early@") {
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 2}, Message: "overloaded, try again later"}
	}
	s.envelope.Reset()
	fmt.Fprintf(&s.envelope, "MAIL <%s> utf8=%v ret=%s envid=%s\n", from, o.UTF8, o.Return, o.EnvelopeID)
	return nil
}

func (s *receiverSession) Rcpt(to string, o *smtp.RcptOptions) error {
	local, _, _ := strings.Cut(to, "@")
	switch local {
	case "unknown":
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
	case "nowhere":
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 2}, Message: "no such domain"}
	case "denied":
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 7, 1}, Message: "relaying denied"}
	case "later":
		return &smtp.SMTPError{Code: 450, EnhancedCode: smtp.EnhancedCode{4, 2, 0}, Message: "try again"}
	}
	fmt.Fprintf(&s.envelope, "RCPT <%s> notify=%v\n", to, o.Notify)
	return nil
}

func (s *receiverSession) Data(content io.Reader) error {
	text, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	switch {
	case strings.Contains(s.envelope.String(), "<slow@"):
		<-s.r.ending
	case strings.Contains(string(text), "Subject: virus"):
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "not that"}
	case strings.Contains(string(text), "Subject: huge"):
		return &smtp.SMTPError{Code: 552, EnhancedCode: smtp.EnhancedCode{5, 3, 4}, Message: "too large"}
	}
	return s.r.keep(s.envelope.String(), text)
}

func (r *receiver) keep(envelope string, content []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	name := filepath.Join(r.dir, strconv.Itoa(r.count))
	if err := errors.Join(os.WriteFile(name+".env", []byte(envelope), 0o600), os.WriteFile(name+".eml", content, 0o600)); err != nil {
		return err
	}
	r.more <- struct{}{}
	return nil
}

func (s *receiverSession) Reset()        {}
func (s *receiverSession) Logout() error { return nil }

const patience = 2 * time.Minute

// awaitPrinted waits until a file that a background command writes has a text so many times.
func awaitPrinted(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		text, _ := os.ReadFile(ts.MkAbs(args[2]))
		if strings.Count(string(text), args[0]) >= n {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s has %q less than %d times:\n%s", args[2], args[0], n, text)
		}
	}
}

// awaitReceived waits for as many more messages as its argument says.
func awaitReceived(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	v, _ := receivers.Load(ts.MkAbs("received"))
	for range n {
		select {
		case <-v.(*receiver).more:
		case <-time.After(patience):
			ts.Fatalf("nothing more was received")
		}
	}
}

// listenForNotify is what systemd does for a service of type notify.
func listenForNotify(ts *testscript.TestScript, _ bool, _ []string) {
	path := ts.MkAbs("notify.sock")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	ts.Check(err)
	ts.Defer(func() { conn.Close() })
	ts.Setenv("NOTIFY_SOCKET", path)
	notifies.Store(path, conn)
}

var notifies sync.Map

// awaitNotify waits for the relay's next word that begins with its argument. The relay may ask for time before it, and
// report its status.
func awaitNotify(ts *testscript.TestScript, _ bool, args []string) {
	v, _ := notifies.Load(ts.Getenv("NOTIFY_SOCKET"))
	conn := v.(*net.UnixConn)
	ts.Check(conn.SetReadDeadline(time.Now().Add(patience)))
	for word := make([]byte, 4096); ; {
		n, err := conn.Read(word)
		if err != nil {
			for _, b := range ts.BackgroundCmds() {
				ts.Logf("%v: %s%s", b.Args, b.Stdout, b.Stderr)
			}
			ts.Fatalf("waiting for %s: %v", args[0], err)
		}
		got := string(word[:n])
		if strings.HasPrefix(got, args[0]) {
			return
		}
		if !strings.HasPrefix(got, "EXTEND_TIMEOUT_USEC=") && !strings.HasPrefix(got, "STATUS=") {
			ts.Fatalf("notified %q, want %s", got, args[0])
		}
	}
}

// sendSignal sends the running relay one of the signals that testscript's kill doesn't know.
func sendSignal(ts *testscript.TestScript, _ bool, args []string) {
	c := api.NewClient(ts.MkAbs("mta-data/control.sock"))
	defer c.Close()
	s, err := api.OpStatus.Call(context.Background(), c, api.None{})
	ts.Check(err)
	ts.Check(syscall.Kill(s.PID, map[string]syscall.Signal{"HUP": syscall.SIGHUP, "TERM": syscall.SIGTERM}[args[0]]))
}

// setRelayAddress asks the running relay where it takes mail.
func setRelayAddress(ts *testscript.TestScript, _ bool, _ []string) {
	c := api.NewClient(ts.MkAbs("mta-data/control.sock"))
	defer c.Close()
	s, err := api.OpStatus.Call(context.Background(), c, api.None{})
	ts.Check(err)
	ts.Setenv("MTA_SMTP", s.SMTP[0])
}

// await makes a command that waits until the number of messages in a state is as fits wants it.
func await(what string, state api.State, fits func(messages int) bool) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, _ []string) {
		c := api.NewClient(ts.MkAbs("mta-data/control.sock"))
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		again := time.NewTicker(5 * time.Millisecond)
		defer again.Stop()
		for {
			l, err := api.OpList.Call(ctx, c, api.ListQuery{Filter: api.Filter{State: state}})
			if err != nil {
				ts.Fatalf("waiting for %s: %v", what, err)
			}
			if fits(len(l.Messages)) {
				return
			}
			<-again.C
		}
	}
}

// expand replaces ${NAME} in a file by the value of the variable.
// serveZone answers the DNS from a zone file, at the address in $DNS.
func serveZone(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: zone FILE")
	}
	z, err := sink.NewZone(ts.ReadFile(args[0]))
	ts.Check(err)
	s := sink.NewDNS(z)
	at, err := s.Listen("127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { s.Close() })
	ts.Setenv("DNS", at.String())
}

func expand(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}
