package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.org/mta/lab/bench"
	"example.org/mta/lab/sink"
)

// TestNeighbours measures what one tenant, client, host or stranger costs the others: for each attack a relay, and
// somebody well-behaved who is watched alone and then beside the attack. It prints a table, and no figure fails it.
// MTA_NEIGHBOURS=8s ('make neighbours') is how long each is watched beside the attack; MTA_NEIGHBOURS_JSON names a
// file that gets the figures as lines of JSON. MTA_E2E_BINARY measures another relay.
func TestNeighbours(t *testing.T) {
	wanted := os.Getenv("MTA_NEIGHBOURS") != ""
	if !wanted {
		t.Parallel() // the attacks take turns
	}
	long := timeOf(t, "MTA_NEIGHBOURS", time.Second)
	rows := make([][]string, 1+len(streetAttacks))
	rows[0] = []string{"attack", "alone: p50, p99", "refused", "beside it: p50, p99", "refused", ""}
	t.Cleanup(func() {
		rows = slices.DeleteFunc(rows, func(row []string) bool { return row == nil }) // -run chose others
		publish(t, "Neighbours", markdown(rows), footnote(t))
	})
	for i, a := range streetAttacks {
		t.Run(strings.ReplaceAll(a.name, " ", "-"), func(t *testing.T) {
			besideOthers(t, wanted)
			f := a.measure(t, long)
			row := []string{a.name, f.Alone.times(), f.Alone.refusals(), f.Beside.times(), f.Beside.refusals(), f.Note}
			rows[1+i] = row
			t.Log(row)
			f.save(t)
			if f.Alone.Refused == f.Alone.Tries {
				t.Errorf("all is refused without any attack: %v", f.Alone.Why)
			}
		})
	}
}

// cost is a row of the table.
type cost struct {
	Attack        string
	Alone, Beside outcomes
	Note          string `json:",omitempty"`
}

func (c *cost) save(t *testing.T) {
	path := os.Getenv("MTA_NEIGHBOURS_JSON")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := json.NewEncoder(f).Encode(c); err != nil {
		t.Fatal(err)
	}
}

// outcomes are what happened to somebody's tries.
type outcomes struct {
	Tries, Refused int
	P50, P99       time.Duration  // of those that were not refused
	Why            map[string]int // they were refused
}

func (w *outcomes) times() string {
	if w.Tries == w.Refused {
		return "-"
	}
	return duration(w.P50.Seconds()) + ", " + duration(w.P99.Seconds())
}

func (w *outcomes) refusals() string {
	return fmt.Sprintf("%.3g %%", 100*float64(w.Refused)/float64(max(w.Tries, 1)))
}

// streetAttack is something that one does at the cost of others.
type streetAttack struct {
	name     string
	settings string                                     // further lines of the relay's configuration
	listener string                                     // and of its listener
	prepare  func(*street)                              // before the relay starts; nil: nothing
	ready    func(*street)                              // before the watch; nil: nothing
	slots    int                                        // connections that the listener takes; 0: 200
	rate     float64                                    // tries a second of the one who is watched; 0: 20
	victim   func(s *street, try int) error             // one try
	attack   func(*street, context.Context)             // starts what runs until the context ends
	note     func(s *street, long time.Duration) string // nil: none
}

// street is a relay with its neighbours.
type street struct {
	*testing.T
	relay     *relay
	smtp, web string
	keys      map[string]string // of tenants
	taken     *sink.Recorder
	group     *controlGroup // that limits the relay; nil: none
	crowd     sync.WaitGroup
	done      atomic.Int64 // tries of the attackers that were not refused
	added     atomic.Int64 // addresses that they suppressed
	answers   sync.Map
	rss       float64
}

const (
	streetSlots  = 200
	streetMail   = "From: v@victim.example\r\nX-Mta-Test-Id: %s\r\n\r\nHello\r\n"
	streetSilent = 400
	streetGood   = 200
)

// sized gives how many there are, a twentieth where no figures are wanted.
func (s *street) sized(full int) int {
	if os.Getenv("MTA_NEIGHBOURS") == "" {
		return full / 20
	}
	return full
}

// ground is where mail goes: a host that takes all, hosts that are met once, and silent ones.
func (s *street) ground() *bench.Ground {
	s.Helper()
	domains := []*bench.Domain{{Name: "quick.example", Hosts: []*bench.Host{{}}}}
	for i := range streetGood {
		domains = append(domains, &bench.Domain{Name: fmt.Sprintf("good%d.example", i), Hosts: []*bench.Host{{}}})
	}
	for i := range streetSilent {
		silent := []*bench.Host{{Death: bench.Silent}}
		domains = append(domains, &bench.Domain{Name: fmt.Sprintf("silent%d.example", i), Hosts: silent})
	}
	g, err := bench.OpenGround(bench.GroundOptions{}, domains...)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { g.Close() })
	s.taken = g.Taken
	return g
}

// measure runs an attack.
func (a *streetAttack) measure(t *testing.T, long time.Duration) *cost {
	needFiles(t, 3000)
	s := &street{T: t, keys: make(map[string]string)}
	port := commonPort(t, "127.0.0.1")
	s.smtp, s.web = "127.0.0.1:"+port, "127.0.0.1:"+commonPort(t, "127.0.0.1")
	g := s.ground()
	s.relay = newRelay(t, g.DNS, g.Port, fmt.Sprintf(`
tenant "victim" { networks = ["127.20.0.0/15"] }
tenant "attacker" { networks = ["127.10.0.0/16"] }
keys { file = "KEYS" }
users { file = "USERS" }
api "web" { address = "%s" }
listener "street" {
  address                    = "%s"
  relay_from                 = ["127.10.0.0/16", "127.20.0.0/15", "127.60.0.0/16"]
  max_message_size           = "64MiB"
  max_connections            = %d
  max_connections_per_client = 2000
  auth {
    mechanisms        = ["PLAIN"]
    clear_on_loopback = true
  }
  %s
}
%s`, s.web, s.smtp, cmp.Or(a.slots, streetSlots), a.listener, a.settings))
	config, err := os.ReadFile(s.relay.config)
	if err != nil {
		t.Fatal(err)
	}
	files := strings.NewReplacer("KEYS", s.relay.dir+"/keys", "USERS", s.relay.dir+"/users")
	writeFile(t, s.relay.config, files.Replace(string(config)))
	for _, tenant := range []string{"victim", "attacker"} {
		out := runClient(t, "", binary, "--config", s.relay.config, "key", "add", "--tenant", tenant, "--name", "web")
		s.keys[tenant], _, _ = strings.Cut(out, "\n")
	}
	runClient(t, "secret\n", binary, "--config", s.relay.config, "user", "add", "ann", "--tenant", "victim")
	if a.prepare != nil {
		a.prepare(s)
	}
	argv := s.relay.command()
	if s.group != nil {
		argv = s.group.run(argv...)
	}
	s.relay.process = start(t, "relay", argv...)
	s.relay.listens(t, s.smtp)
	if a.ready != nil {
		a.ready(s)
	}
	c := &cost{Attack: a.name, Alone: a.watch(s, 0, long/2)}
	ctx, stop := context.WithCancel(t.Context())
	defer s.crowd.Wait()
	defer stop()
	s.rss = megabytes(t, s.relay.cmd.Process.Pid, "VmRSS")
	a.attack(s, ctx)
	time.Sleep(long / 8)
	c.Beside = a.watch(s, c.Alone.Tries, long)
	if a.note != nil {
		c.Note = a.note(s, long)
	}
	return c
}

// watch has the one who is watched try at a steady rate, whatever becomes of the tries before.
func (a *streetAttack) watch(s *street, first int, long time.Duration) (w outcomes) {
	rate := a.rate
	if rate == 0 {
		rate = 20
	}
	var mu sync.Mutex // guards took and w
	var took []time.Duration
	var tries sync.WaitGroup
	w.Why = make(map[string]int)
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for end := time.Now().Add(long); time.Now().Before(end); w.Tries++ {
		try := first + w.Tries
		tries.Go(func() {
			began := time.Now()
			err := a.victim(s, try)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				w.Refused++
				w.Why[firstLine(err.Error())]++
				return
			}
			took = append(took, time.Since(began))
		})
		<-tick.C
	}
	tries.Wait()
	w.P50, w.P99 = quantile(took, .5), quantile(took, .99)
	if w.Refused > 0 {
		s.Logf("refused: %v", w.Why)
	}
	return w
}

func firstLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return text[:min(len(text), 60)]
}

// each starts so many who do something again and again; who was refused rests for a moment.
func (s *street) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) {
	for i := range n {
		s.crowd.Go(func() {
			for ctx.Err() == nil {
				if err := do(ctx, i); err != nil {
					wait(ctx, 50*time.Millisecond)
					continue
				}
				s.done.Add(1)
			}
		})
	}
}

// loopback is an address of this machine, one of many networks.
func loopback(network, i int) net.IP { return net.IPv4(127, byte(network), byte(i/250), byte(i%250+1)) }

// mail brings a message by SMTP over a connection of its own.
func (s *street) mail(from net.IP, id, to string, size int) error {
	c, err := dialSessionFrom(from, s.smtp)
	if err != nil {
		return err
	}
	defer c.close()
	_, err = c.send("v@victim.example", []string{to}, fmt.Sprintf(streetMail, id)+streetText(size))
	return err
}

// streetText is some lines of text.
func streetText(size int) string {
	return strings.Repeat("It goes on and on, and has no end..\r\n", size/37)
}

// mailOf has the watched tenant bring messages of a size by SMTP, each over a connection of its own.
func mailOf(size int) func(*street, int) error {
	return func(s *street, try int) error {
		return s.mail(loopback(20, 0), strconv.Itoa(try), fmt.Sprintf("r%d@quick.example", try), size)
	}
}

// linger holds a connection: with a transaction whose content comes slowly, or, without a recipient, idle.
func (s *street) linger(ctx context.Context, from net.IP, to string, content int) error {
	c, err := dialSessionFrom(from, s.smtp)
	if err != nil {
		return err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.close)()
	if to != "" {
		size := ""
		if content >= 1<<20 {
			size = fmt.Sprintf(" SIZE=%d", content)
		}
		for _, line := range []string{"MAIL FROM:<a@attacker.example>" + size, "RCPT TO:<" + to + ">"} {
			if err := c.command(line+"\r\n", 250); err != nil {
				return err
			}
		}
		if err := c.command("DATA\r\n", 354); err != nil {
			return err
		}
		_, _ = io.WriteString(c.w, "Subject: x\r\n\r\n"+streetText(min(content, 1<<20-4<<10)))
		_ = c.w.Flush()
	}
	_ = c.conn.SetDeadline(time.Now().Add(time.Hour))
	for wait(ctx, 200*time.Millisecond) {
		line := "NOOP\r\n"
		if to != "" {
			line = strings.Repeat("and on, ", 14) + "\r\n"
		}
		if _, err := io.WriteString(c.conn, line); err != nil {
			return err
		}
		if to == "" {
			if _, _, err := c.r.ReadResponse(250); err != nil {
				return err
			}
		}
	}
	return nil
}

// streetWeb asks by HTTP.
var streetWeb = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 500}}

// ask sends a request of a tenant and returns the answer, an error for one that is not 2xx.
func (s *street) ask(ctx context.Context, tenant, method, path, body string, header ...string) (
	*http.Response, string, error,
) {
	q, err := http.NewRequestWithContext(ctx, method, "http://"+s.web+path, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	q.Header.Set("Authorization", "Bearer "+s.keys[tenant])
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	a, err := streetWeb.Do(q)
	if err != nil {
		return nil, "", err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode/100 != 2 {
		err = fmt.Errorf("%d %s", a.StatusCode, bytes.TrimSpace(text))
	}
	return a, string(text), err
}

func (s *street) get(ctx context.Context, tenant, path string) error {
	_, _, err := s.ask(ctx, tenant, http.MethodGet, path, "")
	return err
}

// post brings a message by HTTP.
func (s *street) post(ctx context.Context, tenant, id string, size int, header ...string) (
	*http.Response, string, error,
) {
	body := fmt.Sprintf(`{"from":"a@%s.example","to":["%s@quick.example"],"subject":"x","text":"%s"}`,
		tenant, id, strings.Repeat("It goes on. ", 1+size/12))
	return s.ask(ctx, tenant, http.MethodPost, "/v1/messages", body, header...)
}

// postOf has the watched tenant bring messages of a size by HTTP.
func postOf(size int) func(*street, int) error {
	return func(s *street, try int) error {
		_, _, err := s.post(s.Context(), "victim", "w"+strconv.Itoa(try), size)
		return err
	}
}

// smallDisk puts the relay's data on a file system of so many MiB.
func smallDisk(size int) func(*street) {
	return func(s *street) {
		needRoot(s.T)
		dir := s.relay.dir + "/data"
		if err := os.MkdirAll(dir, 0o700); err != nil {
			s.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=700", size)); err != nil {
			cannot(s.T, "mounting a small disk: "+err.Error())
		}
		s.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	}
}

// slowDisk has the relay write 4 MiB a second.
func slowDisk(s *street) {
	s.group = newControlGroup(s.T, s.relay.dir, overloadDisk, overloadMemory, 0)
}
