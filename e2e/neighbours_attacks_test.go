package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/accounting"
)

// What is asked by HTTP.
const (
	allEvents = "/v1/events?limit=1000"
	searchAll = "/v1/messages?recipient=nobody@quick.example"
	suppress  = "/v1/suppressions/add"
)

const inboundStreet = `inbound {
    domains    = ["in.example"]
    complaints = ["fbl@in.example"]
  }`

// streetAttacks are those of TestNeighbours. Addresses in 127.10/16 are the attacking tenant's, in 127.20/15 the
// watched one's, in 127.60/16 those of clients without a tenant, and the others strangers'.
var streetAttacks = []streetAttack{
	{
		name: "a tenant holds its connections", victim: mailOf(0),
		attack: func(s *street, ctx context.Context) {
			s.each(ctx, streetSlots+20, func(ctx context.Context, i int) error {
				return s.linger(ctx, loopback(10, i%40), "a@quick.example", 4<<10)
			})
		},
	},
	{
		name: "a client without tenant holds its connections", victim: mailOf(0),
		attack: func(s *street, ctx context.Context) {
			s.each(ctx, streetSlots+20, func(ctx context.Context, i int) error {
				return s.linger(ctx, loopback(60, 0), "a@quick.example", 4<<10)
			})
		},
	},
	{
		name: "strangers linger and reconnect", victim: mailOf(0),
		attack: func(s *street, ctx context.Context) {
			s.each(ctx, 2*streetSlots, func(ctx context.Context, i int) error {
				ctx, stop := context.WithTimeout(ctx, time.Duration(1+i%8)*time.Second)
				defer stop()
				return s.linger(ctx, loopback(70+i%20, i), "", 0)
			})
		},
	},
	{
		name: "80 mails to postmaster do not end", listener: inboundStreet,
		victim: func(s *street, try int) error { return s.complain(loopback(90, try%200), try) },
		attack: func(s *street, ctx context.Context) {
			s.each(ctx, 80, func(ctx context.Context, i int) error {
				return s.linger(ctx, loopback(70, 0), "postmaster@in.example", 1<<20)
			})
		},
	},
	{
		name: "the abuse folder is filled", listener: inboundStreet, rate: 5,
		victim: func(s *street, try int) error {
			return s.bringIn(loopback(90, try%200), "abuse@in.example",
				"Subject: genuine "+strconv.Itoa(try)+"\r\n\r\nYour customer annoys me.\r\n")
		},
		attack: func(s *street, ctx context.Context) {
			s.each(ctx, 20, func(ctx context.Context, i int) error {
				return s.bringIn(loopback(70, i), "postmaster@in.example", "Subject: hi\r\n\r\nhi\r\n")
			})
		},
		note: func(s *street, _ time.Duration) string {
			list := runClient(s.T, "", binary, "--config", s.relay.config, "bounce", "list", "--limit", "0")
			return fmt.Sprintf("%d of the genuine mails are kept; %d others were brought",
				strings.Count(list, "genuine"), s.done.Load())
		},
	},
	{
		name:     "14 messages of 45 MiB, 50 of 1 MiB do not end: another's of 1 MiB",
		settings: "queue { min_free = \"96MiB\" }\n", prepare: smallDisk(800), victim: mailOf(1 << 20), rate: 5,
		attack: func(s *street, ctx context.Context) {
			s.each(ctx, 64, func(ctx context.Context, i int) error {
				size := 45 << 20
				if i >= 14 {
					size = 1 << 20
				}
				return s.linger(ctx, loopback(10, i), "a@quick.example", size)
			})
		},
	},
	{
		name: "a flood of idempotency keys", settings: "queue { idempotency_keys = 1000 }\n",
		victim: func(s *street, try int) error { // each request is sent again after two seconds
			for _, n := range []int{try, try - 40} {
				if n < 0 {
					continue
				}
				id := "k" + strconv.Itoa(n)
				_, answer, err := s.post(s.Context(), "victim", id, 0, "Idempotency-Key", id)
				if err != nil {
					return err
				}
				if before, again := s.answers.LoadOrStore(id, answer); again && before != answer {
					return errors.New("taken twice")
				}
			}
			return nil
		},
		attack: func(s *street, ctx context.Context) {
			s.each(ctx, 20, func(ctx context.Context, i int) error {
				id := fmt.Sprintf("a%d-%d", i, time.Now().UnixNano())
				_, _, err := s.post(ctx, "attacker", id, 0, "Idempotency-Key", id)
				return err
			})
		},
	},
	{
		name: "a tenant asks for events: another's events", rate: 5, prepare: longLog, attack: floodOf(allEvents, ""),
		victim: func(s *street, _ int) error { return s.get(s.Context(), "victim", "/v1/events?after=now") },
	},
	{
		name: "a tenant searches: another's search", rate: 1, prepare: longLog, attack: floodOf(searchAll, ""),
		victim: func(s *street, _ int) error {
			return s.get(s.Context(), "victim", "/v1/messages?from="+time.Now().UTC().Add(-time.Minute).Format(time.RFC3339))
		},
	},
	{
		name: "a tenant searches and asks for events: another's mail", prepare: longLog, victim: postOf(0),
		attack: func(s *street, ctx context.Context) {
			floodOf(searchAll, "")(s, ctx)
			floodOf(allEvents, "")(s, ctx)
		},
	},
	{
		name: "a tenant lists a long queue: another's mail", victim: postOf(0), ready: longQueue,
		attack: floodOf(searchAll, ""),
	},
	{
		name: "a tenant cancels in a long queue: another's mail", victim: postOf(0), ready: longQueue,
		attack: floodOf("/v1/messages/cancel", `{"tag": "none"}`),
	},
	{
		name: "a tenant lists 200,000 suppressed addresses: another's mail", victim: postOf(0),
		ready: func(s *street) {
			for i := range s.sized(200) {
				if err := s.suppress(s.Context(), i); err != nil {
					s.Fatal(err)
				}
			}
		},
		attack: floodOf("/v1/suppressions?domain=none.example", ""),
	},
	{
		name: "by HTTP 700 requests wait for a slow disk", note: takenOfAttacker, prepare: slowDisk,
		victim: postOf(overloadContent),
		attack: func(s *street, ctx context.Context) {
			s.each(ctx, 700, func(ctx context.Context, i int) error {
				id := fmt.Sprintf("a%d-%d", i, time.Now().UnixNano())
				var token []string
				for {
					answer, _, err := s.post(ctx, "attacker", id, overloadContent, append(token, "Idempotency-Key", id)...)
					if err == nil || answer == nil {
						return err
					}
					if t := answer.Header.Get("X-Queue-Token"); t != "" {
						token = []string{"X-Queue-Token", t}
					}
					seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
					if !wait(ctx, time.Duration(max(seconds, 1))*time.Second) {
						return ctx.Err()
					}
				}
			})
		},
	},
	{
		name: "by SMTP 700 clients offer more than a slow disk takes", slots: 2000, note: takenOfAttacker, prepare: slowDisk,
		victim: mailOf(overloadContent),
		attack: func(s *street, ctx context.Context) {
			s.each(ctx, 700, func(ctx context.Context, i int) error {
				c, err := dialSessionFrom(loopback(10, i), s.smtp)
				if err != nil {
					return err
				}
				defer c.close()
				for n := 0; err == nil && ctx.Err() == nil; n++ {
					to, id := []string{"a@quick.example"}, fmt.Sprintf("a%d-%d", i, n)
					if _, err = c.send("a@attacker.example", to, overloadMessage(id)); err == nil {
						s.done.Add(1)
					}
				}
				return err
			})
		},
	},
	{
		name: "27 silent hosts a second: a new host's first mail", settings: "delivery { max_connections = 100 }\n", rate: 5,
		victim: func(s *street, try int) error {
			id, to := "g"+strconv.Itoa(try), fmt.Sprintf("r@good%d.example", try%streetGood)
			if err := s.mail(loopback(20, 0), id, to, 0); err != nil {
				return err
			}
			for end := time.Now().Add(30 * time.Second); !s.taken.Has(id, to); time.Sleep(2 * time.Millisecond) {
				if time.Now().After(end) {
					return errors.New("not delivered within 30 s")
				}
			}
			return nil
		},
		attack: func(s *street, ctx context.Context) {
			tick := time.NewTicker(time.Second / 27)
			s.crowd.Go(func() {
				defer tick.Stop()
				for n := 0; ctx.Err() == nil; n++ {
					_ = s.mail(loopback(10, 0), "s"+strconv.Itoa(n), fmt.Sprintf("r@silent%d.example", n%streetSilent), 0)
					<-tick.C
				}
			})
		},
	},
	{
		name: "40 guess a password: its user from a known network", rate: 2, attack: guess,
		ready:  func(s *street) { _ = s.login(s.Context(), loopback(20, 0), "secret") },
		victim: func(s *street, _ int) error { return s.login(s.Context(), loopback(20, 0), "secret") },
	},
	{
		name: "40 guess a password: its user from new networks", rate: 2, attack: guess,
		victim: func(s *street, try int) error { return s.login(s.Context(), loopback(21, try), "secret") },
	},
	{
		name: "a tenant suppresses 150,000 addresses",
		victim: func(s *street, try int) error {
			one := fmt.Sprintf(`{"suppressions":[{"address":"v%d@quick.example"}]}`, try)
			_, _, err := s.ask(s.Context(), "victim", http.MethodPost, suppress, one)
			return err
		},
		attack: func(s *street, ctx context.Context) {
			s.each(ctx, 4, func(ctx context.Context, i int) error { return s.suppress(ctx, i) })
		},
		note: func(s *street, _ time.Duration) string {
			more := megabytes(s.T, s.relay.cmd.Process.Pid, "VmRSS") - s.rss
			return fmt.Sprintf("%d addresses were added, for %.0f MiB of memory", s.added.Load(), more)
		},
	},
}

func takenOfAttacker(s *street, long time.Duration) string {
	return fmt.Sprintf("%.0f messages a second of the attacker were taken", float64(s.done.Load())/(long.Seconds()*9/8))
}

// suppress has the attacker suppress a thousand addresses.
func (s *street) suppress(ctx context.Context, i int) error {
	var all []string
	batch := time.Now().UnixNano()
	for n := range 1000 {
		address := fmt.Sprintf("a%d-%d-%d@annoying.example", i, batch, n)
		all = append(all, fmt.Sprintf(`{"address":%q,"reason":%q}`, address, strings.Repeat("x", 100)))
	}
	_, answer, err := s.ask(ctx, "attacker", http.MethodPost, suppress, `{"suppressions":[`+strings.Join(all, ",")+`]}`)
	var did struct{ Added int64 }
	if err == nil {
		err = json.Unmarshal([]byte(answer), &did)
	}
	s.added.Add(did.Added)
	return err
}

// bringIn brings a mail to the relay itself.
func (s *street) bringIn(from net.IP, to, content string) error {
	c, err := dialSessionFrom(from, s.smtp)
	if err != nil {
		return err
	}
	defer c.close()
	_, err = c.send("", []string{to}, content)
	return err
}

// complain brings a complaint in the abuse reporting format.
func (s *street) complain(from net.IP, try int) error {
	return s.bringIn(from, "fbl@in.example", strings.ReplaceAll(fmt.Sprintf(`From: fbl@box.example
Subject: complaint %d
MIME-Version: 1.0
Content-Type: multipart/report; report-type=feedback-report; boundary="b"

--b

This is a complaint.
--b
Content-Type: message/feedback-report

Feedback-Type: abuse
User-Agent: box/1
Version: 1
Original-Rcpt-To: r%[1]d@box.example
--b
Content-Type: message/rfc822

From: v@victim.example
To: r%[1]d@box.example

Hello
--b--
`, try), "\n", "\r\n"))
}

// login logs in as a user over a connection of its own.
func (s *street) login(ctx context.Context, from net.IP, password string) error {
	c, err := dialSessionFrom(from, s.smtp)
	if err != nil {
		return err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.close)()
	_ = c.conn.SetDeadline(time.Now().Add(time.Minute))
	return c.command("AUTH PLAIN "+base64.StdEncoding.EncodeToString([]byte("\x00ann\x00"+password))+"\r\n", 235)
}

// guess has 40 networks try passwords of a user.
func guess(s *street, ctx context.Context) {
	s.each(ctx, 40, func(ctx context.Context, i int) error { return s.login(ctx, loopback(70+i, i), "wrong") })
}

// floodOf has a tenant send the same request 60 times at a time: a POST with a body, else a GET.
func floodOf(path, body string) func(*street, context.Context) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	return func(s *street, ctx context.Context) {
		s.each(ctx, 60, func(ctx context.Context, _ int) error {
			_, _, err := s.ask(ctx, "attacker", method, path, body)
			return err
		})
	}
}

// longLog writes a log of 160 MB, an hour old.
func longLog(s *street) {
	w, err := accounting.Open(accounting.Config{Dir: s.relay.dir + "/data/log", NodeID: "relay.example"})
	if err != nil {
		s.Fatal(err)
	}
	at := time.Now().Add(-time.Hour)
	for i := range s.sized(400_000) {
		id := envelope.FirstID(at) + envelope.ID(i)
		w.Add(&accounting.Record{
			Type: accounting.Delivery, Message: accounting.Message{ID: id, Created: at, Tenant: "crowd", Sender: "news@crowd.example", Size: 2000}, Time: at,
			Recipient: envelope.Address(fmt.Sprintf("r%d@quick.example", i)), Queue: "quick.example",
			Attempt: accounting.Attempt{Site: "mx.quick.example", Attempts: 1},
		})
		if i%10_000 == 0 {
			if err := w.Flush(s.Context()); err != nil {
				s.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		s.Fatal(err)
	}
}

// longQueue has the attacker submit 50,000 messages that stay.
func longQueue(s *street) {
	runClient(s.T, "", binary, "--config", s.relay.config, "pause", "domain", "quick.example")
	const clients = 16
	most := s.sized(50_000)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			c, err := dialSessionFrom(loopback(10, i), s.smtp)
			for n := 0; n < most/clients && err == nil; n++ {
				to := fmt.Sprintf("q%d-%d@quick.example", i, n)
				_, err = c.send("a@attacker.example", []string{to}, "X-MTA-Tags: a, b\r\n"+fmt.Sprintf(streetMail, "q"))
			}
			if err != nil {
				s.Error(err)
			}
		})
	}
	all.Wait()
}
