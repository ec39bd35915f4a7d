package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/cluster/ca"
	"example.org/mta/cluster/member"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/share"
	"example.org/mta/cluster/term"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/certificates"
	"example.org/mta/lab/sink"
)

// network has listeners by address.
type network struct{ *sync.Map }

func (n network) listen(address string) net.Listener {
	l := sink.NewPipeListener()
	n.Store(address, l)
	return l
}

func (n network) dial(ctx context.Context, address string) (net.Conn, error) {
	if l, ok := n.Load(address); ok {
		return l.(*sink.PipeListener).Dial(ctx)
	}
	return nil, errors.New("connection refused")
}

// logged is what a node has logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ReplaceAll(l.text.String(), `\"`, `"`)
}

// end is a node's link in a test.
type end struct {
	*Link
	log  *logged
	got  chan Message
	stop func()
	pair certificates.Pair
}

// nodes makes a network, an authority of which each node has a certificate, and nodes 1 to n, each at the address of its
// number.
func nodes(t *testing.T, n int) (network, string, []*end) {
	dir, net := filepath.Join(t.TempDir(), "ca"), network{new(sync.Map)}
	if err := ca.Init(dir, "mail", time.Now()); err != nil {
		t.Fatal(err)
	}
	ends := []*end{nil}
	for i := 1; i <= n; i++ {
		ends = append(ends, begin(t, net, dir, uint16(i), issue(t, dir, uint16(i), ca.NodeHolds)))
	}
	return net, dir, ends
}

func issue(t *testing.T, dir string, node uint16, holds time.Duration) certificates.Pair {
	t.Helper()
	p, err := ca.Issue(dir, node, holds, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func config(net network, dir string, node uint16, p certificates.Pair, log *logged) Config {
	slogger := slog.New(slog.NewTextHandler(log, nil))
	store := certificates.New(time.Now, slogger)
	return Config{Node: node, Now: time.Now, Log: slogger, Dial: net.dial,
		Certificate: func() (*tls.Certificate, error) { return store.Client(p) },
		Authorities: func() (*x509.CertPool, error) { return store.Authorities(filepath.Join(dir, ca.Certificate)) },
		Address:     func(n uint16) (string, bool) { return fmt.Sprint(n), n < 10 },
	}
}

func begin(t *testing.T, net network, dir string, node uint16, p certificates.Pair) *end {
	e := &end{log: new(logged), got: make(chan Message, 100), pair: p}
	cfg := config(net, dir, node, p, e.log)
	cfg.Receive = func(m Message) error {
		e.got <- m
		if m.Shard == 13 {
			return errors.New("an unlucky shard")
		}
		return nil
	}
	e.Link = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done, listener := make(chan error), net.listen(fmt.Sprint(node))
	go func() { done <- e.Run(ctx, listener) }()
	stopped := false
	e.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(e.stop)
	return e
}

func nudge(from, to uint16, shard int) Message {
	return Message{Message: member.Message{From: from, To: to, Shard: shard, Nudge: true}}
}

// has waits until a log has a text.
func (e *end) has(t *testing.T, text string) {
	t.Helper()
	synctest.Wait()
	if !strings.Contains(e.log.String(), text) {
		t.Errorf("node %d has not logged %q, but\n%s", e.cfg.Node, text, e.log)
	}
}

func (e *end) received(t *testing.T, want Message) {
	t.Helper()
	select {
	case m := <-e.got:
		if !reflect.DeepEqual(m, want) {
			t.Errorf("node %d got %+v, want %+v", e.cfg.Node, m, want)
		}
	case <-time.After(time.Minute):
		t.Errorf("node %d has got nothing: %s", e.cfg.Node, e.log)
	}
}

var ask = member.Ask{Order: term.Order{Incarnation: 1, Process: 2, Seq: 1<<64 - 1}, Known: owner.Mark{Epoch: 5, Beat: 9},
	Shares: []share.Item{{Limit: share.Limit{Name: "provider \"a\"", Rate: .5, Burst: 3}, Held: 3, Want: 9, Content: 1.25}}}

func TestMessagesArriveAsTheyAre(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, _, ends := nodes(t, 3)
		answer := member.Answer{Order: ask.Order, Mark: ask.Known,
			Shares: []share.Grant{{Limit: share.Limit{Name: "a", Connections: 9}, Units: 3, Content: .1}}}
		for _, m := range []Message{
			nudge(1, 2, 63), {Message: member.Message{From: 1, To: 2, Shard: 5, Ask: &ask}},
			{Message: member.Message{From: 2, To: 1, Shard: 5, Answer: &answer}},
			{Message: member.Message{From: 3, To: 1}, Met: &once.Row{Key: "k", Request: once.Request{Node: 1, Number: 7}, Note: "n"}},
		} {
			ends[m.From].Send(m)
			ends[m.To].received(t, m)
		}
		ends[1].Send(nudge(1, 2, 13))
		ends[1].Send(nudge(1, 2, 14)) // goes over the same connection
		<-ends[2].got
		<-ends[2].got
		ends[2].has(t, `node=1 error="an unlucky shard"`)
	})
}

// What a node sends through another arrives as it is, unless one of those that take it has a version without that.
func TestMessagesArePassedOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		net, dir, ends := nodes(t, 3)
		there := Message{Message: member.Message{From: 1, To: 3, Via: 2, Shard: 5, Ask: &ask}}
		back := Message{Message: member.Message{From: 3, To: 1, Via: 2, Shard: 5, Answer: &member.Answer{Order: ask.Order}}}
		ends[1].Send(there)
		ends[3].received(t, there)
		ends[3].Send(back)
		ends[1].received(t, back)
		earlier := New(config(net, dir, 4, issue(t, dir, 4, ca.NodeHolds), new(logged)))
		listener, got := net.listen("4"), make(chan Message)
		defer listener.Close()
		go func() {
			for {
				raw, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					conn, theirs := tls.Server(raw, earlier.settings()), hello{}
					decode(conn, maxHello, func() {}, &theirs)
					conn.Write(frame(`{"Newest":5,"Oldest":1}`))
					for {
						var m Message
						if decode(conn, maxFrame, func() {}, &m) != nil {
							return
						}
						got <- m
					}
				}()
			}
		}()
		for _, m := range []Message{there, {Message: member.Message{From: 2, To: 3, Via: 4, Ask: &ask}}} {
			if m.To = 4; m.Via == 4 {
				m.To = 3
			}
			ends[m.From].Send(m)
		}
		time.Sleep(time.Second)
		ends[2].Send(nudge(2, 4, 1))
		if m := <-got; !reflect.DeepEqual(m, nudge(2, 4, 1)) {
			t.Errorf("a node of an earlier version gets %+v", m)
		}
	})
}

// What waits to be passed on is little for each node, and not kept for one that is away.
func TestLittleWaitsToBePassedOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, _, ends := nodes(t, 2)
		for to := range uint16(7) {
			for s := range owner.Shards {
				ends[2].Send(Message{Message: member.Message{From: 1, To: to + 3, Via: 2, Shard: s, Ask: &ask}})
			}
		}
		waiting := func() (n int) {
			for to := range uint16(7) {
				p := ends[2].peer(to + 3)
				p.mu.Lock()
				n += len(p.waiting)
				p.mu.Unlock()
			}
			return n
		}
		if n := waiting(); n > maxPassed {
			t.Errorf("%d messages wait", n)
		}
		time.Sleep(time.Minute)
		if n := waiting(); n > 0 || ends[2].peer(1).passed.Load() != 0 {
			t.Errorf("%d messages wait for nodes that are away, and %d count", n, ends[2].peer(1).passed.Load())
		}
	})
}

// While a node is away, newer messages replace older ones; when it is back it is found soon.
func TestANodeThatIsAway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		net, dir, ends := nodes(t, 2)
		ends[2].stop()
		for i := range 5000 {
			m := nudge(1, 2, i%owner.Shards)
			m.Nudge, m.Ask = false, &member.Ask{Order: term.Order{Seq: uint64(i)}}
			ends[1].Send(m)
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		ends[1].has(t, "no connection to a node of the cluster")
		if n := strings.Count(ends[1].log.String(), "\n"); n != 1 {
			t.Errorf("%d lines in a minute:\n%s", n, ends[1].log)
		}
		second := begin(t, net, dir, 2, ends[2].pair)
		time.Sleep(mostPause)
		synctest.Wait()
		if len(second.got) != owner.Shards {
			t.Fatalf("%d messages, want the newest of each shard", len(second.got))
		}
		for range owner.Shards {
			if m := <-second.got; m.Ask.Order.Seq < 5000-owner.Shards {
				t.Errorf("ask %d has arrived", m.Ask.Order.Seq)
			}
		}
		time.Sleep(time.Minute)
		ends[1].Send(nudge(1, 2, 1))
		ends[1].has(t, "the node of the cluster is connected again")
	})
}

// frame is what a hostile member sends after it has been greeted.
func frame(text string) []byte {
	return append([]byte{byte(len(text) >> 24), byte(len(text) >> 16), byte(len(text) >> 8), byte(len(text))}, text...)
}

// A node asks one owner for as many limits as there may be, with names as long as those of blocks and domains.
func TestALargeAskFits(t *testing.T) {
	m := nudge(1, 2, 5)
	m.Nudge, m.Ask = false, &member.Ask{}
	for i := range 10_000 {
		l := share.Limit{Name: fmt.Sprintf("%060d", i), Rate: float64(i+1) / 7, Burst: 1e6}
		m.Ask.Shares = append(m.Ask.Shares, share.Item{Limit: l, Held: 1 << 43, Want: 1 << 44, Content: float64(i) / 7})
	}
	var got Message
	frame, err := encode(m)
	if err == nil {
		err = decode(bytes.NewReader(frame), maxFrame, func() {}, &got)
	}
	if err == nil {
		err = got.check(1, 2)
	}
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Error(err)
	}
}

// hostile connects to node 1 as node 2, with a certificate that is right, and sends.
func hostile(t *testing.T, net network, dir string, p certificates.Pair, send []byte) {
	t.Helper()
	l := New(config(net, dir, 2, p, new(logged)))
	conn, _, err := l.dial(t.Context(), 1, Purpose{})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(time.Minute))
	conn.Write(send) // is cut off when it is refused
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the connection is open: %v", err)
	}
	conn.Close()
	synctest.Wait()
}

func TestMembersThatSendNonsense(t *testing.T) {
	item := `{"Name":"a","Held":1,"Want":1,"Content":0}`
	with := func(items string) string { return `{"From":2,"To":1,"Shard":1,"Ask":{"Shares":[` + items + `]}}` }
	many := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	for want, send := range map[string][]byte{
		"a message of 4294967295 octets is too large": {255, 255, 255, 255, 0},
		"a message of 4194305 octets is too large":    frame(strings.Repeat(" ", maxFrame+1)),
		"i/o timeout": frame(with(item))[:40],
		"a message can't be read: invalid character":          frame(strings.Repeat("\xff\x00", 50)),
		"values (at most 140000)":                             frame(with(many(200_000, "null"))),
		"a message has 20001 items":                           frame(with(many(20001, `{"Name":"a"}`))),
		"a message has the number -1 ":                        frame(with(`{"Name":"a","Held":-1}`)),
		"a message has the number 4000000000000000000 ":       frame(with(`{"Name":"a","Want":4000000000000000000}`)),
		"json: cannot unmarshal number 1e30":                  frame(with(`{"Name":"a","Want":1e30}`)),
		"json: cannot unmarshal number -5":                    frame(`{"From":2,"To":1,"Shard":1,"Ask":{"Order":{"Seq":-5}}}`),
		"a message has the number -":                          frame(with(`{"Name":"a","Content":-1e300}`)),
		`a message has the name "", of 0 octets`:              frame(with(`{}`)),
		"of 300 octets":                                       frame(with(`{"Name":"` + strings.Repeat("x", 300) + `"}`)),
		`the name "10.0.0.1\\ngmail", of 14 octets`:           frame(with(`{"Name":"10.0.0.1\ngmail"}`)),
		"a message is in the name of node 3":                  frame(`{"From":3,"To":1,"Shard":1,"Nudge":true}`),
		"a message is for node 4":                             frame(`{"From":2,"To":4,"Shard":1,"Nudge":true}`),
		"a message from node 3 to node 1 goes through node 2": frame(`{"From":3,"To":1,"Via":2,"Shard":1,"Nudge":true}`),
		"a message from node 1 to node 1 goes through node 2": frame(`{"From":1,"To":1,"Via":2,"Shard":1,"Ask":{}}`),
		"a message from node 2 to node 1 goes through node 2": frame(`{"From":2,"To":1,"Via":2,"Shard":1,"Ask":{}}`),
		"a message from node 2 to node 1 goes through node 1": frame(`{"From":2,"To":1,"Via":1,"Shard":1,"Ask":{}}`),
		"a message from node 2 to node 2 goes through node 1": frame(`{"From":2,"To":2,"Via":1,"Shard":1,"Ask":{}}`),
		"a message from node 2 to node 1 goes through node 3": frame(`{"From":2,"To":1,"Via":3,"Shard":1,"Ask":{}}`),
		"a message is in the name of node 4":                  frame(`{"From":4,"To":3,"Via":1,"Shard":1,"Ask":{}}`),
		"a message is for node 5":                             frame(`{"From":4,"To":5,"Via":2,"Shard":1,"Ask":{}}`),
		"a message names shard 64":                            frame(`{"From":2,"To":1,"Shard":64,"Nudge":true}`),
		"a message names shard -1":                            frame(`{"From":2,"To":1,"Shard":-1,"Nudge":true}`),
		"a message has 0 contents":                            frame(`{"From":2,"To":1,"Shard":1}`),
		"a message has 2 contents":                            frame(`{"From":2,"To":1,"Ask":{},"Answer":{}}`),
		"of 301 octets":                                       frame(`{"From":2,"To":1,"Met":{"Key":"k","Node":1,"Note":"` + strings.Repeat("x", 301) + `"}}`),
		"is not an open one of node 1":                        frame(`{"From":2,"To":1,"Met":{"Key":"k","Node":1,"Done":true}}`),
	} {
		bubble.Test(t, func(t *testing.T) {
			net, dir, ends := nodes(t, 1)
			p := issue(t, dir, 2, ca.NodeHolds)
			hostile(t, net, dir, p, send)
			ends[1].has(t, want)
			ends[1].has(t, "node=2")
			if len(ends[1].got) > 0 {
				t.Errorf("%s: %+v has arrived", want, <-ends[1].got)
			}
			hostile(t, net, dir, p, append(frame(`{"From":2,"To":1,"Shard":1,"Nudge":true}`), 255, 255, 255, 255))
			ends[1].received(t, nudge(2, 1, 1))
		})
	}
}

// What a member claims to send, and what it repeats, takes little memory.
func TestFramesTakeTheMemoryOfWhatArrives(t *testing.T) {
	for text, most := range map[string]uint64{
		"\x00\x1f\xff\xff{":                     16 << 10,
		string(frame(strings.Repeat("[", 1e6))): 8 << 20,
		string(frame(`{"Ask":{"Shares":[` + strings.Repeat("0,", maxFrame/2-20) + `0]}}`)): 24 << 20,
		string(frame(`{"Ask":{"Shares":[` + strings.Repeat("0,", maxCommas-2) + `0]}}`)):   96 << 20, // in all: the slice grows to 12 MB
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := decode(strings.NewReader(text), maxFrame, func() {}, new(Message))
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > most || err == nil {
			t.Errorf("%d octets of %.40q took %d, %v", len(text), text, took, err)
		}
	}
}

func TestStrangersAreRefusedWithTheReasonAtBothEnds(t *testing.T) {
	number := func(t *testing.T, dir string, node uint16, holds time.Duration, cfg *Config) {
		store := certificates.New(time.Now, cfg.Log)
		p := issue(t, dir, node, holds)
		cfg.Node, cfg.Certificate = node, func() (*tls.Certificate, error) { return store.Client(p) }
	}
	for want, change := range map[string]func(t *testing.T, net network, dir string, cfg *Config){
		`node 5 of cluster "mail": x509: certificate signed by unknown authority`: func(t *testing.T, _ network, _ string,
			cfg *Config) {
			_, dir, _ := nodes(t, 0)
			number(t, dir, 5, ca.NodeHolds, cfg)
		},
		`node 5 of cluster "mail": x509: certificate has expired`: func(t *testing.T, _ network, dir string, cfg *Config) {
			number(t, dir, 5, time.Hour, cfg)
			time.Sleep(2 * time.Hour)
		},
		"node 12 is not a member": func(t *testing.T, _ network, dir string, cfg *Config) {
			number(t, dir, 12, ca.NodeHolds, cfg)
		},
		"two nodes have the number 1": func(_ *testing.T, _ network, dir string, cfg *Config) {
			store := certificates.New(time.Now, cfg.Log)
			cfg.Certificate = func() (*tls.Certificate, error) {
				return store.Client(certificates.Pair{Certificate: filepath.Join(dir, "node-1.pem"),
					Key: filepath.Join(dir, "node-1-key.pem")})
			}
			cfg.Node = 1
		},
		"it is node 1, not node 3": func(_ *testing.T, net network, _ string, _ *Config) {
			one, _ := net.Load("1")
			net.Store("3", one)
		},
	} {
		bubble.Test(t, func(t *testing.T) {
			net, dir, ends := nodes(t, 1)
			cfg := config(net, dir, 2, issue(t, dir, 2, ca.NodeHolds), new(logged))
			change(t, net, dir, &cfg)
			l, to := New(cfg), uint16(1)
			if _, ok := net.Load("3"); ok {
				to = 3
			}
			_, _, err := l.dial(t.Context(), to, Purpose{})
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), `\"`, `"`), want) {
				t.Errorf("%v, want %s", err, want)
			}
			ends[1].has(t, want)
		})
	}
}

// Clusters that share an authority, and versions that have none in common: neither happens without a mistake.
func TestWhatIsSaidInAGreeting(t *testing.T) {
	for want, text := range map[string]string{
		"node 2 speaks versions 7 to 9 of the cluster's protocol, and this node 1 to 6": `{"Newest":9,"Oldest":7}`,
		"":                                      `{"Newest":2,"Oldest":1,"Later":[1,2]}`,
		`it refuses this node: "no\\nwords"`:    `{"Newest":1,"Oldest":1,"Refused":"no\nwords"}`,
		"a message of 9000 octets is too large": strings.Repeat(" ", 9000),
		"a message can't be read: unexpected end":     `{`,
		"a message can't be read: json: cannot unmar": `{"Newest":"1"}`,
	} {
		bubble.Test(t, func(t *testing.T) {
			net, dir, ends := nodes(t, 1)
			cfg := config(net, dir, 2, issue(t, dir, 2, ca.NodeHolds), new(logged))
			raw, _ := net.dial(t.Context(), "1")
			conn := tls.Client(raw, New(cfg).settings())
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err := conn.Write(frame(text)[:min(4+len(text), 1000)]); err != nil {
				t.Error(err)
			}
			var theirs hello
			if err := decode(conn, maxHello, func() {}, &theirs); err != nil || theirs != (hello{newest, oldest, "", ""}) {
				t.Errorf("%+v, %v", theirs, err)
			}
			ends[1].has(t, want)
			if want == "" {
				conn.Write(frame(`{"From":2,"To":1,"Shard":1,"Nudge":true,"Later":{}}`))
				ends[1].received(t, nudge(2, 1, 1))
			}
		})
	}
}

// A connection ends with the certificate of either side, and the next one has the renewed certificate.
func TestARenewedCertificateIsUsedWithoutARestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		net, dir, ends := nodes(t, 1)
		second := begin(t, net, dir, 2, issue(t, dir, 2, time.Hour))
		second.Send(nudge(2, 1, 1))
		ends[1].received(t, nudge(2, 1, 1))
		ends[1].Send(nudge(1, 2, 1))
		second.received(t, nudge(1, 2, 1))
		time.Sleep(2 * time.Hour)
		second.Send(nudge(2, 1, 2))
		ends[1].Send(nudge(1, 2, 2))
		ends[1].has(t, "its certificate has expired")
		time.Sleep(time.Minute)
		if len(ends[1].got)+len(second.got) > 0 {
			t.Error("messages arrive with a certificate that has expired")
		}
		second.Send(nudge(2, 1, 2))
		second.has(t, "certificate has expired")
		if err := ca.Renew(dir, second.pair.Certificate, ca.NodeHolds, time.Now()); err != nil {
			t.Fatal(err)
		}
		ends[1].received(t, nudge(2, 1, 2))
		second.received(t, nudge(1, 2, 2))
	})
}

// Those who connect and send nothing keep members out for some seconds at most.
func TestSilentStrangers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		net, _, ends := nodes(t, 2)
		for range mostGuests {
			if _, err := net.dial(t.Context(), "1"); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		one, _ := net.dial(t.Context(), "1")
		if _, err := one.Read(make([]byte, 1)); err == nil {
			t.Error("one more is let in")
		}
		ends[2].Send(nudge(2, 1, 1))
		ends[1].received(t, nudge(2, 1, 1))
		ends[1].has(t, "a connection to the cluster's port is refused")
		if n := strings.Count(ends[1].log.String(), "\n"); n != 1 {
			t.Errorf("%d lines: %s", n, ends[1].log)
		}
	})
}

// A node that reads slowly, or not at all, loses its messages and nothing else.
func TestANodeThatReadsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, _, ends := nodes(t, 2)
		stuck := make(chan struct{})
		ends[2].cfg.Receive = func(Message) error { <-stuck; return nil }
		for i := range 100 {
			for s := range owner.Shards {
				m := nudge(1, 2, s)
				m.Nudge, m.Ask = false, &member.Ask{Order: term.Order{Seq: uint64(i)}}
				ends[1].Send(m)
			}
			time.Sleep(time.Second)
		}
		p := ends[1].peer(2)
		p.mu.Lock()
		if len(p.waiting) > owner.Shards {
			t.Errorf("%d messages wait", len(p.waiting))
		}
		p.mu.Unlock()
		ends[1].has(t, "i/o timeout")
		close(stuck)
	})
}

func BenchmarkItems(b *testing.B) {
	m := nudge(1, 2, 3)
	m.Nudge, m.Ask = false, &member.Ask{Shares: make([]share.Item, 1000)}
	for i := range m.Ask.Shares {
		m.Ask.Shares[i] = ask.Shares[0]
	}
	for b.Loop() {
		f, err := encode(m)
		if err == nil {
			err = decode(bytes.NewReader(f), maxFrame, func() {}, new(Message))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
