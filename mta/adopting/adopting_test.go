package adopting

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/cluster/link"
	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/moving"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/events"
	"example.org/mta/mta/exported"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// house is node 2 of a cluster, which takes the mail that node 1 has left in a directory. It implements Cluster, and the
// sink of node 2's stream.
type house struct {
	*testing.T
	dir, dead string
	cfg       *config.Config
	adopter   *Adopter

	mu       sync.Mutex // guards what follows
	refusal  error      // of the directory, and of Fence
	alive    error      // of Fence
	was      string     // the directory when Fence is called, where it is given
	declines string     // the sender whose mail node 2 does not take
	fails    bool       // the stream
	steps    []string
	took     []*exported.Message
	sent     map[string]bool // types of events
	drains   bool            // this node
	deaf     bool            // the database acknowledges nothing
	hangs    chan struct{}   // Dead returns when it is closed, where there is one
}

func (h *house) step(what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, what)
	return h.refusal
}

func (h *house) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *house) Takes() bool        { return true }
func (h *house) Hears() bool        { h.mu.Lock(); defer h.mu.Unlock(); return !h.deaf }
func (h *house) Number() uint16     { return 2 }
func (h *house) Gone(n uint16) bool { return n == 4 }
func (h *house) Dead(_ context.Context, path string, _ bool) (membership.Dead, error) {
	if path != h.dead+"/cluster" {
		h.Errorf("the file of the node is %s", path)
	}
	if h.hangs != nil {
		<-h.hangs
	}
	return membership.Dead{Number: 1, Name: "one"}, h.step("dead")
}

func (h *house) Leave(context.Context, uint16, bool, uint64) (func(path string) error, uint64, error) {
	return nil, 0, errors.New("it has no copy of its queue")
}

func (h *house) Fence(context.Context, membership.Dead, bool) error {
	if mark, err := datadir.ReadAdopted(h.dead); err != nil || mark.By != 0 {
		h.Errorf("the directory is marked before the node is forgotten: %+v, %v", mark, err)
	}
	if h.was != "" && h.files() != h.was {
		h.Errorf("before the node is forgotten the directory had\n%s\nand has\n%s", h.was, h.files())
	}
	return errors.Join(h.alive, h.step("fence"))
}

// files has each file of the directory with a sum of its octets.
func (h *house) files() string {
	var all strings.Builder
	if err := filepath.WalkDir(h.dead, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			fmt.Fprintln(&all, path)
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%s %d %x\n", path, len(text), sha256.Sum256(text))
		return err
	}); err != nil {
		h.Error(err)
	}
	return all.String()
}

func (h *house) Mover(d membership.Dead, cfg *config.Config, mail moving.Mail) (*moving.Mover, error) {
	c := moving.Config{Node: 2, Name: "two", Path: h.dir + "/moving", Mail: taker{h: h}, May: func() bool { return true },
		Refuses: func() string { return "" }, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
	own, err := moving.Open(c)
	if err != nil {
		return nil, err
	}
	c.Node, c.Name, c.Path, c.Mail, c.Drains = d.Number, cfg.NodeID, cfg.Cluster.Path+"-moving", mail, func() bool { return true }
	c.Nodes = func() []moving.Node { return []moving.Node{{Number: 1, Forgotten: true}, {Number: 2}} }
	c.Open = func(ctx context.Context, _ uint16, _ link.Purpose) (net.Conn, error) {
		here, there := net.Pipe()
		go func() { own.Serve(context.WithoutCancel(ctx), 2, there); there.Close() }()
		return here, nil
	}
	return moving.Open(c)
}

// taker takes mail into memory.
type taker struct {
	moving.Mail
	h *house
}

func (k taker) Take(_ context.Context, from string, archive io.Reader, look bool) (t []moving.Taken, d []moving.Declined, err error) {
	r := exported.NewReader(archive, "archive")
	r.Keys = func(some []exported.Key) error { return k.h.step(fmt.Sprintf("%d keys", len(some))) }
	for {
		m, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			return t, d, nil
		} else if err != nil {
			return t, d, err
		}
		k.h.mu.Lock()
		part := moving.Part{ID: m.ID}
		for _, x := range m.Recipients {
			part.Recipients = append(part.Recipients, x.Index)
		}
		mark, err := datadir.ReadAdopted(k.h.dead)
		switch {
		case err != nil || mark.By != 2 || from != "one" || m.Node != "one" || look:
			k.h.Errorf("mail of %q moves under %+v, %v", from, mark, err)
		case k.h.declines == m.Sender:
			d = append(d, moving.Declined{ID: m.ID, Why: "there is no tenant"})
		default:
			k.h.took = append(k.h.took, m)
			t = append(t, moving.Taken{Part: part, To: "two", As: []string{m.ID}})
		}
		k.h.mu.Unlock()
	}
}

func (h *house) Send(_ context.Context, b *events.Batch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fails {
		return errors.New("it is down")
	}
	for _, e := range b.Events {
		h.sent[e.Type] = true
	}
	return nil
}

func (h *house) Close() error { return nil }

func (h *house) streams(string) []events.Settings {
	s := events.Settings{To: "http://hook", Batch: 100, Lanes: 1, Hold: time.Hour, Timeout: time.Second,
		Open: func() (events.Sink, error) { return h, nil }, Oldest: true}
	one, other := s, s
	one.Name, other.Name = "app", "other" // which the dead node did not have
	return []events.Settings{one, other}
}

func config1(t *testing.T, dir string) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(`data_dir = "`+dir+`"`), "test.conf", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// within runs a test in virtual time, with a directory that has three messages: due, held and bounced by an operator.
func within(t *testing.T, test func(h *house)) {
	t.Helper()
	h := &house{dir: t.TempDir(), sent: map[string]bool{}}
	h.dead = h.dir + "/dead"
	bubble.Test(t, func(t *testing.T) {
		h.T = t
		h.cfg = config1(t, h.dir+"/own")
		if _, err := datadir.Open(h.cfg, datadir.Config{Version: "0.1.0", Now: time.Now, Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		h.leave()
		h.adopter = New(Config{Cluster: h, Copies: &copied{house: h}, InForce: func() *config.Config { return h.cfg }, Streams: h.streams,
			Drains:  func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.drains },
			Classes: new(bounce.Classifier), Version: "0.1.0", Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		defer h.adopter.Close()
		test(h)
	})
}

// leave makes the directory that node 1 has left.
func (h *house) leave() {
	h.Helper()
	cfg := config1(h.T, h.dead)
	check := func(err error) {
		h.Helper()
		if err != nil {
			h.Fatal(err)
		}
	}
	_, err := datadir.Open(cfg, datadir.Config{Version: "0.1.0", Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	check(err)
	w, err := accounting.Open(accounting.Config{Dir: cfg.Accounting.Path, NodeID: "one"})
	check(err)
	h.fails = true
	s, err := events.Open(events.Config{Log: w, Path: h.dead + "/streams.db", NodeID: "one"})
	check(err)
	check(s.Set(h.streams("")[:1]))
	s.Start()
	w.Add(&accounting.Record{Type: accounting.Delivery, Time: time.Now()})
	check(w.Flush(h.Context()))
	q, err := queue.Open(queue.Config{Dir: datadir.Queue(cfg), MinFree: 1})
	check(err)
	for _, sender := range []envelope.Address{"due@a.example", "held@a.example", "bounced@a.example"} {
		d := q.Begin()
		_, err := d.Write([]byte("Subject: x\r\n\r\nx\r\n"))
		check(err)
		check(d.Commit(&envelope.Message{Sender: sender, Received: time.Now(), Recipients: []envelope.Recipient{{Address: "b@b.example"}}}))
	}
	for sender, a := range map[string]queue.Action{"held@a.example": queue.Hold, "bounced@a.example": queue.Bounce} {
		n, err := q.Change(queue.Selector{Filter: queue.Filter{Sender: sender}}, a, false)
		if check(err); n != 1 {
			h.Fatalf("%d are changed", n)
		}
	}
	check(q.Close())
	check(s.Close(h.Context()))
	check(w.Close())
	check(os.MkdirAll(h.dead+"/maildrop/new", 0o700))
	check(os.WriteFile(h.dead+"/maildrop/new/letter", nil, 0o600))
	h.fails = false
}

func (h *house) adopt(c api.Adopt) (api.Adopted, error) {
	if c.Dir == "" {
		c.Dir = h.dead
	}
	return h.adopter.Adopt(h.Context(), c)
}

// ends waits for the end of an adoption.
func (h *house) ends() (a api.Adoption) {
	h.Helper()
	for range 1000 {
		var err error
		if a, err = h.adopter.Adoption(h.Context()); err != nil {
			h.Fatal(err)
		}
		if !a.Running {
			return a
		}
		time.Sleep(time.Second)
	}
	h.Fatalf("it goes on: %+v", a)
	return a
}

// TestAdopting: keys come first, the node is forgotten before the directory is marked, and that before mail moves; no
// relay starts then. All leaves, as it was, and so do events.
func TestAdopting(t *testing.T) {
	within(t, func(h *house) {
		dry, err := h.adopt(api.Adopt{Intent: api.Intent{DryRun: true}})
		if err != nil || dry.Count != 3 || dry.States["held"] != 1 || dry.States["ending"] != 1 || dry.Adoption.NodeID != "one" || dry.Adoption.Letters != 1 {
			h.Errorf("%+v, %v", dry, err)
		}
		if _, err := h.adopter.Adoption(h.Context()); err == nil {
			h.Error("a dry run adopts")
		}
		done, err := h.adopt(api.Adopt{})
		if err != nil || done.Count != 3 || !done.Adoption.Running {
			h.Fatalf("%+v, %v", done, err)
		}
		if again, err := h.adopt(api.Adopt{}); err != nil || !again.Adoption.Running {
			h.Errorf("%+v, %v", again, err)
		}
		if _, err := h.adopt(api.Adopt{Dir: h.dir}); err == nil || !strings.Contains(err.Error(), "is being adopted") {
			h.Error(err)
		}
		if _, err := datadir.Open(config1(h.T, h.dead), datadir.Config{Version: "0.1.0"}); err == nil || !strings.Contains(err.Error(), "node 2 adopts the mail") {
			h.Error(err)
		}
		a := h.ends()
		if a.Ended.IsZero() || a.Moving.Messages != 3 || a.Moving.Left != 0 || a.Events != 0 || a.Failed != "" {
			h.Errorf("%+v", a)
		}
		if steps := strings.Join(h.steps, ", "); !strings.Contains(steps, "dead, dead, fence") {
			h.Errorf("the steps were %s", steps)
		}
		for _, m := range h.took {
			r := m.Recipients[0]
			gave := r.Last != nil && r.Last.Code == 554
			if r.Held != (m.Sender == "held@a.example") || gave != (m.Sender == "bounced@a.example") {
				h.Errorf("%s is %+v", m.Sender, r)
			}
		}
		if !h.sent["Delivery"] || !h.sent["Transfer"] {
			h.Errorf("events: %v", h.sent)
		}
		if done, err := h.adopt(api.Adopt{}); err != nil || done.Adoption.Ended.IsZero() || done.Adoption.Running {
			h.Errorf("%+v, %v", done, err)
		}
		if _, err := datadir.Open(config1(h.T, h.dead), datadir.Config{Version: "0.1.0"}); err == nil || !strings.Contains(err.Error(), "was adopted by node 2") {
			h.Error(err)
		}
	})
}

// TestWhatIsLeft: what nobody takes, and events of a hook that is down, are left; the directory is closed, and the next
// adoption takes them, at this node alone.
func TestWhatIsLeft(t *testing.T) {
	within(t, func(h *house) {
		h.set(func() { h.declines, h.fails = "due@a.example", true })
		if _, err := h.adopt(api.Adopt{}); err != nil {
			h.Fatal(err)
		}
		a := h.ends()
		if !a.Ended.IsZero() || a.Moving.Messages != 2 || a.Moving.Left != 1 || a.Moving.Declined != 1 || a.Events == 0 || !strings.Contains(a.Failed, "app: it is down") {
			h.Errorf("%+v", a)
		}
		mark, err := datadir.ReadAdopted(h.dead)
		if err != nil || mark.By != 2 || !mark.Ended.IsZero() {
			h.Errorf("%+v, %v", mark, err)
		}
		for i, want := range []string{"node 3 has begun to adopt", ""} { // node 4 was forgotten
			mark.By = 3 + i
			if err := mark.Write(h.dead); err != nil {
				h.Fatal(err)
			}
			if _, err := h.adopt(api.Adopt{Intent: api.Intent{DryRun: true}}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				h.Errorf("%v, want %q", err, want)
			}
		}
		h.set(func() { h.declines, h.fails = "", false })
		if _, err := h.adopt(api.Adopt{}); err != nil {
			h.Fatal(err)
		}
		if a := h.ends(); a.Ended.IsZero() || a.Moving.Messages != 1 || len(h.took) != 3 {
			h.Errorf("%+v, %d messages", a, len(h.took))
		}
	})
}

// put writes a file into the directory.
func (h *house) put(name, text string) {
	h.Helper()
	if err := os.WriteFile(filepath.Join(h.dead, name), []byte(text), 0o600); err != nil {
		h.Fatal(err)
	}
}

// TestWhichDirectories are refused, and stay as they were.
func TestWhichDirectories(t *testing.T) {
	within(t, func(h *house) {
		refused := func(want, dir string) {
			h.Helper()
			_, err := h.adopt(api.Adopt{Dir: dir})
			if e := (*api.Error)(nil); !errors.As(err, &e) || e.Status >= 500 || !strings.Contains(err.Error(), want) {
				h.Errorf("%v, want %q", err, want)
			}
		}
		put := func(name, text string) (undo func()) {
			h.Helper()
			path := filepath.Join(h.dead, name)
			was, err := os.ReadFile(path)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				h.Fatal(err)
			}
			return func() {
				if os.Remove(path); err == nil {
					os.WriteFile(path, was, 0o600)
				}
			}
		}
		refused("is the data directory of this relay", h.cfg.DataDir)
		refused("it has no folder named queue", h.dir)
		refused("it has no folder named queue", h.dir+"/none")
		undo := put(datadir.Restoring, "")
		refused("a restore is under way", "")
		undo()
		undo = put("adopted", "{}")
		refused("adopted: ", "")
		undo()
		undo = put("destdb.format", `{"store":"destination database","format":99,"by":"9.0"}`)
		refused("has format 99", "")
		undo()
		q, err := queue.Open(queue.Config{Dir: h.dead + "/queue", MinFree: 1})
		if err != nil {
			h.Fatal(err)
		}
		refused("is in use by a relay", "")
		q.Close()
		h.set(func() { h.refusal = membership.Refusal("node 1 answered 3 s ago") })
		refused("node 1 answered", "")
		if strings.Contains(strings.Join(h.steps, " "), "fence") {
			h.Errorf("the steps are %v", h.steps)
		}
		if mark, err := datadir.ReadAdopted(h.dead); err != nil || mark.By != 0 {
			h.Errorf("%+v, %v", mark, err)
		}
		alone := New(Config{})
		if _, err := alone.Adopt(h.Context(), api.Adopt{}); err == nil || !strings.Contains(err.Error(), "in no cluster") {
			h.Error(err)
		}
	})
}

// TestTheNodeIsForgottenFirst: until then no octet of the directory changes, whatever a crash has left there that is put
// right when it is opened. If the node is alive, it has all that it had.
func TestTheNodeIsForgottenFirst(t *testing.T) {
	spoils := map[string]func(h *house){
		"as it was left": func(*house) {},
		"as it is while the relay runs": func(h *house) {
			q, err := queue.Open(queue.Config{Dir: h.dead + "/queue", MinFree: 1})
			if err != nil {
				h.Fatal(err)
			}
			d := q.Begin()
			d.Write([]byte("Subject: x\r\n\r\nx\r\n"))
			m := &envelope.Message{Sender: "due@a.example", Received: time.Now(),
				Recipients: []envelope.Recipient{{Address: "c@b.example"}}}
			if err := errors.Join(d.Commit(m), os.CopyFS(h.dir+"/copy", os.DirFS(h.dead)), q.Close(), os.RemoveAll(h.dead),
				os.Rename(h.dir+"/copy", h.dead)); err != nil {
				h.Fatal(err)
			}
		},
		"without indexes": func(h *house) {
			all, _ := filepath.Glob(h.dead + "/queue/*.idx")
			for _, path := range all {
				os.Remove(path)
			}
		},
		"a damaged segment": func(h *house) {
			path := h.segment()
			os.Remove(strings.TrimSuffix(path, ".seg") + ".idx")
			h.spoil(path, func(b []byte) { b[bytes.Index(b, []byte("due@a.example"))-20] ^= 0xff })
		},
		"damaged small files": func(h *house) {
			for _, name := range []string{"streams.db", "idempotency.key", "idempotency.key.copy"} {
				h.put(name, "damaged")
			}
		},
		"files to be removed": func(h *house) {
			for _, name := range []string{"queue/large/0000000000000009", "queue/x.tmp", "queue/x.spare"} {
				h.put(name, "x")
			}
			os.RemoveAll(h.dead + "/queue/damaged")
		},
	}
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			within(t, func(h *house) {
				spoil(h)
				h.was, h.alive = h.files(), errors.New("node 1 has answered")
				for range 2 {
					if _, err := h.adopt(api.Adopt{Accept: true}); err == nil || !strings.Contains(err.Error(), "node 1 has answered") {
						h.Error(err)
					}
				}
				if h.files() != h.was {
					h.Errorf("the directory had\n%s\nand has\n%s", h.was, h.files())
				}
				h.alive = nil
				if _, err := h.adopt(api.Adopt{Accept: true}); err != nil {
					h.Fatal(err)
				}
				h.ends()
				if n := len(h.took); n < 2 {
					h.Errorf("%d messages have moved", n)
				}
			})
		})
	}
}

// TestForeignFiles are refused before anything opens them: a pipe would hold the relay up for ever, and behind a link
// can be the relay's own mail.
func TestForeignFiles(t *testing.T) {
	foreign := map[string]func(path string) error{
		"is a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"is a socket": func(path string) error { return syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0) },
		"is a link":   func(path string) error { return os.Symlink("/dev/null", path) },
		"leads out":   func(path string) error { return os.Symlink("../../own", path) },
		"or nowhere":  func(path string) error { return os.Symlink("/none/none", path) },
		"is a folder": func(path string) error { return os.Mkdir(path, 0o700) },
	}
	within(t, func(h *house) {
		for want, make := range foreign {
			names := []string{"adopted", "cluster-moving", "destdb.format", "queue/large", "queue/00000009-00000009.seg", "log/x"}
			switch want {
			case "is a folder":
				names = names[4:5]
			case "is a socket":
				names = names[3:]
			}
			for _, name := range names {
				path := filepath.Join(h.dead, name)
				os.Rename(path, path+".kept")
				if err := make(path); err != nil {
					t.Fatal(err)
				}
				for _, dry := range []bool{false, true} {
					_, err := h.adopt(api.Adopt{Intent: api.Intent{DryRun: dry}})
					if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
						h.Errorf("%s: %v, want %q", name, err, want)
					}
				}
				os.Remove(path)
				os.Rename(path+".kept", path)
			}
		}
		if mark, err := datadir.ReadAdopted(h.dead); err != nil || mark.By != 0 || len(h.steps) > 0 {
			h.Errorf("%+v, %v, after the steps %v", mark, err, h.steps)
		}
		// The log can be elsewhere.
		if err := errors.Join(os.Rename(h.dead+"/log", h.dir+"/log"), os.Symlink("../log", h.dead+"/log")); err != nil {
			h.Fatal(err)
		}
		if _, err := h.adopt(api.Adopt{Intent: api.Intent{DryRun: true}}); err != nil {
			h.Error(err)
		}
	})
}

// TestAdoptionHangs: while a file system does not answer, commands end with a reason, and so does the relay.
func TestAdoptionHangs(t *testing.T) {
	within(t, func(h *house) {
		h.hangs = make(chan struct{})
		ctx, cancel := context.WithCancel(h.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := h.adopter.Adopt(ctx, api.Adopt{Dir: h.dead}); err == nil || !strings.Contains(err.Error(), "interrupted") {
			h.Error(err)
		}
		if _, err := h.adopt(api.Adopt{}); err == nil || !strings.Contains(err.Error(), "is being looked at") {
			h.Error(err)
		}
		if _, err := h.adopter.Adoption(h.Context()); err == nil || !strings.Contains(err.Error(), "has adopted no mail") {
			h.Error(err)
		}
		if err := h.adopter.Close(); err == nil || !strings.Contains(err.Error(), "does not answer") {
			h.Error(err)
		}
		close(h.hangs)
		synctest.Wait()
		if mark, err := datadir.ReadAdopted(h.dead); err != nil || mark.By != 0 {
			h.Errorf("%+v, %v", mark, err)
		}
	})
}

// TestRemedy: a volume that can't be written has another remedy than one that the user may not read.
func TestRemedy(t *testing.T) {
	if hint := remedy(&os.PathError{Op: "open", Path: "/mnt", Err: syscall.EROFS}); !strings.Contains(hint, "cp -a") {
		t.Error(hint)
	}
	if hint := remedy(os.ErrPermission); !strings.Contains(hint, "relay's user") {
		t.Error(hint)
	}
}
