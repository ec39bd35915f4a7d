package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"

	"example.org/mta/internal/bubble"
	"example.org/mta/mta/relaytest"
	"example.org/mta/operator/api"
)

func TestMain(m *testing.M) {
	// The screens are compared as text: the same zone, character set and colours everywhere.
	time.Local = time.UTC
	os.Setenv("LC_ALL", "C.UTF-8")
	os.Setenv("TERM", "xterm-256color")
	for _, name := range []string{"NO_COLOR", "COLORTERM", "RUNEWIDTH_EASTASIAN", "COLUMNS", "LINES", "TCELL_ALTSCREEN"} {
		os.Unsetenv(name)
	}
	os.Exit(m.Run())
}

// terminal is a mock terminal with the screen of a sample relay.
type terminal struct {
	t     *testing.T
	mock  vt.MockTerm
	wrote *recorder
	relay *relay
	ended chan error
}

// recorder keeps all that was written to the terminal.
type recorder struct {
	vt.MockTerm
	mu  sync.Mutex
	out []byte
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	r.out = append(r.out, p...)
	r.mu.Unlock()
	return r.MockTerm.Write(p)
}

// relay is the sample relay, which can be gone.
type relay struct {
	*api.Client
	sample *relaytest.Sample
	named  func(*api.Site) // gives sites other names; nil: they keep theirs

	mu    sync.Mutex
	gone  error
	asked map[string]int
	slow  time.Duration  // that an answer takes
	nodes map[string]int // requests by the node that they name; nil: there is no cluster
}

// ServeHTTP answers as the sample does, with a memory that doesn't depend on the test's process.
func (r *relay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	name := path.Base(q.URL.Path)
	if r.nodes != nil && r.node(w, q) {
		return
	}
	r.mu.Lock()
	gone, slow := r.gone, r.slow
	r.asked[name]++
	r.mu.Unlock()
	switch {
	case name == "status" && gone != nil:
		time.Sleep(slow)
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(api.Error{Message: gone.Error()})
	case name == "status":
		time.Sleep(slow)
		change(w, q, r.sample.ControlHandler(), func(s *api.Status) { s.Memory.Process = 61 << 20 })
	case name == "sites" && r.named != nil:
		change(w, q, r.sample.ControlHandler(), func(l *api.SiteList) {
			for i := range l.Sites {
				r.named(&l.Sites[i])
			}
		})
	default:
		r.sample.ControlHandler().ServeHTTP(w, q)
	}
}

// node answers for a cluster of three nodes, of which the third is silent, and reports whether it has.
func (r *relay) node(w http.ResponseWriter, q *http.Request) bool {
	const header = "Mta-Node"
	named := q.Header.Get(header)
	q.Header.Del(header)
	r.mu.Lock()
	r.nodes[named+" "+path.Base(q.URL.Path)]++
	r.mu.Unlock()
	switch {
	case path.Base(q.URL.Path) == "cluster":
		_ = json.NewEncoder(w).Encode(api.Cluster{On: true, Node: 1, Members: []api.ClusterMember{{Node: 1}, {Node: 2}, {Node: 3}}})
	case named == "3":
		select {
		case <-time.After(5 * time.Second):
		case <-q.Context().Done():
		}
		w.WriteHeader(http.StatusBadGateway)
		_ = json.NewEncoder(w).Encode(api.Error{Message: "node 3: no answer within 5s"})
	default:
		return false
	}
	return true
}

// change answers as h does, after f.
func change[A any](w http.ResponseWriter, q *http.Request, h http.Handler, f func(*A)) {
	var (
		answered = httptest.NewRecorder()
		answer   A
	)
	h.ServeHTTP(answered, q)
	if err := json.NewDecoder(answered.Body).Decode(&answer); err != nil {
		panic(err)
	}
	f(&answer)
	w.WriteHeader(answered.Code)
	_ = json.NewEncoder(w).Encode(&answer)
}

func (r *relay) goes(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = err
}

func (r *relay) requests(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[name]
}

// sample makes a relay; change, if not nil, changes its world before it starts.
type sample struct {
	more   string // configuration
	change func(*relaytest.Sample)
	after  func(*relay) // changes it when it runs
	nodes  bool         // it is in a cluster
}

func (s sample) relay(t *testing.T) *relay {
	r := &relay{sample: relaytest.NewSample(t, s.more, s.change), asked: make(map[string]int)}
	if s.nodes {
		r.nodes = make(map[string]int)
	}
	r.Client = api.NewLocalClient(r)
	t.Cleanup(r.Client.Close)
	if s.after != nil {
		s.after(r)
	}
	return r
}

// pages prints pages in few words.
type pages struct{ relay *relay }

func (pages) Explain(_ context.Context, q api.ExplainQuery, w io.Writer, width int) error {
	if q.Domain == "nothing.example" {
		return api.NotFound("look elsewhere", "nothing is known")
	}
	fmt.Fprintf(w, "explanation of %s%s for %q\n", q.Domain, q.ID, q.Tenant)
	return nil
}

func (pages) Warmup(_ context.Context, source string, w io.Writer, width int) error {
	fmt.Fprintf(w, "warm-up of %s\n", source)
	return nil
}

func (p pages) Trace(ctx context.Context, q api.TraceQuery, w io.Writer, width int) error {
	return p.relay.Trace(ctx, q, nil, func(l api.TraceLine) error {
		_, err := fmt.Fprintf(w, "%s %s\n", l.Direction, l.Text)
		return err
	})
}

// watched runs the screen in virtual time, and f beside it.
func watched(t *testing.T, of sample, f func(*terminal)) {
	watchedWith(t, vt.MockOptSize{X: 80, Y: 24}, "", of, f)
}

func watchedWith(t *testing.T, size vt.MockOptSize, table string, of sample, f func(*terminal)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		mock := vt.NewMockTerm(size)
		wrote := &recorder{MockTerm: mock}
		screen, err := tcell.NewTerminfoScreenFromTty(wrote, tcell.OptKeyboardProtocol(tcell.LegacyKeyboard))
		if err == nil {
			err = screen.Init()
		}
		if err != nil {
			t.Fatal(err)
		}
		r := of.relay(t)
		ctx, cancel := context.WithCancel(t.Context())
		x := &terminal{t, mock, wrote, r, make(chan error, 1)}
		go func() {
			x.ended <- Run(ctx, Config{Relay: r.Client, Printer: pages{r}, Now: time.Now, Every: 2 * time.Second, Table: table, Caller: "root", Cluster: of.nodes}, screen)
		}()
		defer screen.Fini()
		defer func() { cancel(); <-x.ended }()
		x.wait(10 * time.Millisecond)
		f(x)
	})
}

// wait lets time pass, and all that was begun come to its end.
func (x *terminal) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	x.mock.Drain()
	synctest.Wait()
}

// press types keys, each a text that a terminal sends for one.
func (x *terminal) press(keys ...string) {
	for _, k := range keys {
		x.mock.SendRaw([]byte(k))
		x.wait(200 * time.Millisecond) // an escape takes a while to be known as one
	}
}

const (
	up, down, left, right = "\x1b[A", "\x1b[B", "\x1b[D", "\x1b[C"
	escape, enterKey      = "\x1b", "\r"
)

// text is what the terminal shows.
func (x *terminal) text() string {
	size, err := x.mock.WindowSize()
	if err != nil {
		x.t.Fatal(err)
	}
	var b strings.Builder
	for y := range size.Height {
		var line strings.Builder
		for at := 0; at < size.Width; at++ {
			c := x.mock.GetCell(vt.Coord{X: vt.Col(at), Y: vt.Row(y)})
			if c.C == "" {
				line.WriteByte(' ')
			}
			line.WriteString(c.C)
			at += max(0, c.W-1)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// shows fails the test if the screen lacks one of the texts.
func (x *terminal) shows(texts ...string) {
	x.t.Helper()
	all := x.text()
	for _, want := range texts {
		if !strings.Contains(all, want) {
			x.t.Fatalf("the screen lacks %q:\n%s", want, all)
		}
	}
}

// actions gives what the relay does about a site.
func (x *terminal) actions(site string) []api.SiteAction {
	x.t.Helper()
	l, err := api.OpSites.Call(x.t.Context(), x.relay.Client, api.SiteFilter{Names: []string{site}, Paging: api.Paging{Limit: 1}})
	if err != nil || len(l.Sites) != 1 {
		x.t.Fatalf("%+v, %v", l, err)
	}
	return l.Sites[0].Actions
}

func (x *terminal) golden(name string) {
	x.t.Helper()
	compare(x.t, name, x.text())
}

// compare holds text against testdata/name.txt. UPDATE_GOLDEN=1 writes the files anew; read them before you commit them.
func compare(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got:\n%s\nwant:\n%s", name, got, want)
	}
}

var errGone = errors.New("connecting to the relay at /run/mta/control.sock: connection refused")
