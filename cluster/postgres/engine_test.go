package postgres

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"example.org/mta/cluster/changes"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/spool"
	"example.org/mta/internal/bubble"
)

// server is a PostgreSQL that answers each call as a test has it.
type server struct {
	*Engine
	readOnly     string
	dials, calls atomic.Int32
	version      atomic.Value // string; none: it reports none
	answer       atomic.Value // func(*pgproto3.Backend, net.Conn), to a call
	given        atomic.Value // string: the parameters of the last call
}

// within has a test use a server in virtual time.
func within(t *testing.T, test func(*testing.T, *server)) {
	bubble.Test(t, func(t *testing.T) {
		e, err := Open(Config{Database: "host=127.0.0.1,127.0.0.2 user=mta dbname=mta sslmode=disable"})
		if err != nil {
			t.Fatal(err)
		}
		s := &server{Engine: e, readOnly: "off"}
		s.answer.Store(good)
		e.cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) {
			s.dials.Add(1)
			here, there := net.Pipe()
			go s.serve(there)
			return here, nil
		}
		test(t, s)
		e.Close()
	})
}

func (s *server) serve(c net.Conn) {
	defer c.Close()
	b := pgproto3.NewBackend(c, c)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	if v, ok := s.version.Load().(string); ok {
		b.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: v})
	}
	ready(b)
	for {
		m, err := b.Receive()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *pgproto3.Query:
			row(b, s.readOnly)
			ready(b)
		case *pgproto3.Bind:
			s.given.Store(fmt.Sprintf("%d %q %t", m.ParameterFormatCodes, m.Parameters, slices.ContainsFunc(m.Parameters,
				func(p []byte) bool { return p == nil })))
		case *pgproto3.Sync:
			s.calls.Add(1)
			s.answer.Load().(func(*pgproto3.Backend, net.Conn))(b, c)
		}
	}
}

func row(b *pgproto3.Backend, value string) {
	b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("x")}}})
	b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(value)}})
	b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
}

func ready(b *pgproto3.Backend) {
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	_ = b.Flush()
}

var good = func(b *pgproto3.Backend, _ net.Conn) {
	row(b, "[]")
	ready(b)
}

// notice answers, but for a notice before the commit's end.
func notice(severity string) func(*pgproto3.Backend, net.Conn) {
	return func(b *pgproto3.Backend, _ net.Conn) {
		row(b, "[]")
		b.Send(&pgproto3.NoticeResponse{Severity: "WARNUNG", SeverityUnlocalized: severity, Code: "01000",
			Message: "canceling wait for synchronous replication due to user request"})
		ready(b)
	}
}

func (s *server) call(ctx context.Context) error {
	_, err := s.Unsettled(ctx, 1)
	return err
}

func TestAServerThatIsTooOld(t *testing.T) {
	for version, good := range map[string]bool{"9.6.24": false, "13.22 (Debian 13.22-1)": false, "14.0": true, "18beta1": true} {
		within(t, func(t *testing.T, s *server) {
			s.version.Store(version)
			if err := s.call(t.Context()); (err == nil) != good || err != nil && (!Unfit(err) ||
				!strings.Contains(err.Error(), "PostgreSQL "+version+": 14 or newer is needed")) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestNothingIsChangedByAnOpenConnection(t *testing.T) {
	e, err := Open(Config{Database: "host=192.0.2.1 user=mta dbname=mta sslmode=require connect_timeout=1"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, _, of := e.Init(t.Context())
	_, to := e.Forget(t.Context(), 1, true)
	for _, err := range []error{of, to} {
		if err == nil || !strings.Contains(err.Error(), "to 192.0.2.1 without sslmode=verify-full: add that") {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestACommitWithAWarningIsUnknown(t *testing.T) {
	within(t, func(t *testing.T, s *server) {
		s.answer.Store(notice("NOTICE"))
		if err := s.call(t.Context()); err != nil {
			t.Error(err)
		}
		s.answer.Store(notice("WARNING"))
		if err := s.call(t.Context()); err == nil || !strings.Contains(err.Error(), "canceling wait for sync") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestABrokenCommitIsUnknownAndNotCancelled(t *testing.T) {
	for name, answer := range map[string]func(*pgproto3.Backend, net.Conn){
		"before the row": func(_ *pgproto3.Backend, c net.Conn) { c.Close() },
		"before the end of the commit": func(b *pgproto3.Backend, c net.Conn) {
			row(b, "[]")
			_ = b.Flush()
			c.Close()
		},
		"garbled":  func(_ *pgproto3.Backend, c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
		"too long": func(_ *pgproto3.Backend, c net.Conn) { _, _ = c.Write([]byte("D\x7f\xff\xff\xff\x00\x01")) },
		"in a transaction": func(b *pgproto3.Backend, _ net.Conn) {
			row(b, "[]")
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'T'})
			_ = b.Flush()
		},
		"no JSON": func(b *pgproto3.Backend, _ net.Conn) { row(b, "x"); ready(b) },
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, s *server) {
				s.answer.Store(answer)
				if err := s.call(t.Context()); err == nil {
					t.Error("no error")
				}
				if synctest.Wait(); s.dials.Load() != 1 {
					t.Errorf("%d connections: a request to cancel has one", s.dials.Load())
				}
				s.answer.Store(good)
				if err := s.call(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestACallThatNobodyWaitsForGoesOn(t *testing.T) {
	within(t, func(t *testing.T, s *server) {
		release := make(chan bool)
		s.answer.Store(func(b *pgproto3.Backend, c net.Conn) { <-release; good(b, c) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.call(ctx); err == nil || !strings.Contains(err.Error(), "unknown") {
			t.Errorf("the error is %v", err)
		}
		close(release)
		synctest.Wait()
		for range most {
			if err := s.call(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if s.calls.Load() != 1+most || s.dials.Load() != 1 {
			t.Errorf("%d calls by %d connections", s.calls.Load(), s.dials.Load())
		}
	})
}

func TestAnErrorIsOneLineWithTheRemedy(t *testing.T) {
	failed := func(code, text string) func(*pgproto3.Backend, net.Conn) {
		return func(b *pgproto3.Backend, _ net.Conn) {
			b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: code, Message: text})
			ready(b)
		}
	}
	for name, test := range map[string]struct {
		begin   func(*server)
		want    string
		unknown bool
	}{
		"no server": {func(s *server) {
			s.cfg.DialFunc = func(_ context.Context, _, address string) (net.Conn, error) {
				return nil, fmt.Errorf("%s is down", address)
			}
		}, "`: 127.0.0.1:5432 (127.0.0.1): dial error: 127.0.0.1:5432 is down; 127.0.0.2:5432 (127.0.0.2): dial", false},
		"a standby":  {func(s *server) { s.readOnly = "on" }, "(127.0.0.1): it is a standby that has not been promoted", false},
		"no answer":  {func(s *server) { s.answer.Store(func(*pgproto3.Backend, net.Conn) {}) }, "unknown: no answer in time: if the server runs, its commit waits for a standby that is away: start that", true},
		"no network": {func(s *server) { s.cfg.DialFunc = hang }, "no connection to the database: no answer in time", false},
		"locked":     {func(s *server) { s.answer.Store(failed("55P03", "lock timeout")) }, "lock timeout (SQLSTATE 55P03): a transaction before it has not ended: it may wait for a standby that is away", false},
		"no schema":  {func(s *server) { s.answer.Store(failed("3F000", "no schema")) }, "(SQLSTATE 3F000): run 'mta cluster init'", false},
		"cut off":    {func(s *server) { s.answer.Store(func(_ *pgproto3.Backend, c net.Conn) { c.Close() }) }, "EOF: the server, or a proxy before it, has closed the connection", true},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, s *server) {
				test.begin(s)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := s.call(ctx)
				if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") ||
					Unknown(err) != test.unknown {
					t.Errorf("the error, unknown: %t, is %v", Unknown(err), err)
				}
			})
		})
	}
}

func hang(context.Context, string, string) (net.Conn, error) {
	<-time.After(time.Minute)
	return nil, net.ErrClosed
}

func TestConnectionsWithoutAnAnswerAreClosed(t *testing.T) {
	within(t, func(t *testing.T, s *server) {
		s.answer.Store(func(*pgproto3.Backend, net.Conn) {})
		for range 2 * most {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := s.call(ctx); err == nil {
				t.Error("no error")
			}
			cancel()
		}
		if s.dials.Load() != most {
			t.Errorf("%d connections, want %d at most", s.dials.Load(), most)
		}
		time.Sleep(abandon)
		s.answer.Store(good)
		if err := s.call(t.Context()); err != nil || s.dials.Load() != most+1 {
			t.Errorf("%v, with %d connections", err, s.dials.Load())
		}
	})
}

func TestCloseEndsWhatWaits(t *testing.T) {
	within(t, func(t *testing.T, s *server) {
		s.answer.Store(func(*pgproto3.Backend, net.Conn) {})
		failed := make(chan error)
		go func() { failed <- s.call(t.Context()) }()
		synctest.Wait()
		began := time.Now()
		go s.Close()
		if err := <-failed; err == nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if err := s.call(t.Context()); err == nil {
			t.Error("a call of a closed engine")
		}
		for range most { // for the second Close
			<-s.slots
		}
	})
}

func TestAResultIsWhole(t *testing.T) {
	within(t, func(t *testing.T, s *server) {
		s.answer.Store(func(b *pgproto3.Backend, _ net.Conn) {
			row(b, `{"system": 1, "timeline": 1, "done": [], "heads": [{"shard": 1, "node": 1}], "books": null}`)
			ready(b)
		})
		if _, err := s.Shards(t.Context(), owner.Call{}); err == nil || !strings.Contains(err.Error(), "1 shards") {
			t.Errorf("the error is %v", err)
		}
	})
}

// answers has each call answered by a text.
func (s *server) answers(text string) {
	s.answer.Store(func(b *pgproto3.Backend, _ net.Conn) { row(b, text); ready(b) })
}

// expectFault checks that an error names a row that was left out.
func expectFault(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the fault is %v, want %q", err, want)
	}
}

func TestRowsThatSomebodyHasEdited(t *testing.T) {
	within(t, func(t *testing.T, s *server) {
		var heads []string
		for i := range owner.Shards {
			heads = append(heads, fmt.Sprintf(`{"shard": %d, "node": 1}`, i))
		}
		for _, node := range []int{-5, 1024, 70000} {
			s.answers(fmt.Sprintf(`{"done": [], "heads": [%s], "books": [{"shard": 52, "name": "eA==", "node": %d, "n": [1, 1, 1, 1]},
				{"shard": 52, "name": "eQ==", "node": 2, "n": [3, 1, 1, -1]}]}`, strings.Join(heads, ","), node))
			r, err := s.Shards(t.Context(), owner.Call{})
			if err != nil || !slices.Equal(r.Books[52], []owner.Entry{{Name: "y", Node: 2, N: [4]int64{3, 1, 1, -1}}}) {
				t.Errorf("%v, %v", r.Books, err)
			}
			expectFault(t, r.Fault, fmt.Sprintf(`a row of shard 52 in mta_cluster.books, of limit "x", has node %d`, node))

			s.answers(fmt.Sprintf(`{"rows": [{"key": "aw==", "node": %d, "number": 3}, {"key": "bA==", "node": 2, "number": 4}]}`, node))
			keys, err := s.Keys(t.Context(), once.Call{Parts: make([]once.Part, 2)})
			if err != nil || keys.Rows[0].Node != 0 || keys.Rows[0].Number != 3 || keys.Rows[1].Node != 2 {
				t.Errorf("%+v, %v", keys, err)
			}
			expectFault(t, keys.Fault, fmt.Sprintf(`the row in mta_cluster.keys whose key is "k" has node %d`, node))

			s.answers(fmt.Sprintf(`{"last": 9, "after": [{"kind": "a", "key": "aw==", "number": -5, "node": 1}],
				"rows": [{"kind": "a", "key": "aw==", "number": 7, "node": %d}, {"kind": "a", "key": "bA==", "number": 8, "node": 2}]}`, node))
			c, err := s.Changes(t.Context(), changes.Call{Parts: make([]changes.Part, 1)})
			if err != nil || len(c.Rows) != 2 || c.Rows[0].Number != 7 || c.Rows[1].Node != 2 || c.Rows[1].Fault != nil {
				t.Fatalf("%+v, %v", c, err)
			}
			expectFault(t, c.Rows[0].Fault, fmt.Sprintf("it has node %d and number 7", node))
			expectFault(t, c.After[0].Fault, "it has node 1 and number -5")
		}
	})
}

func TestAMemberThatSomebodyHasEdited(t *testing.T) {
	within(t, func(t *testing.T, s *server) {
		for rows, want := range map[string]string{
			`{"number": 1, "ago": 2}, {"number": 3, "incarnation": 4, "plans": {"y": "z", "x": 1}, "ago": 7}`: "node 3 in mta_cluster.members can't be read in plans",
			`{"number": 1, "ago": 2}, {"number": 3, "incarnation": 4, "noted": -1, "ago": 7}`:                 "node 3 in mta_cluster.members can't be read in noted",
			`{"number": 1, "ago": 2}, {"number": 3, "incarnation": 4, "plans": null, "ago": null}`:            "node 3 in mta_cluster.members can't be read in seen",
		} {
			s.answers(`{"version": 6, "members": [` + rows + `]}`)
			v, err := s.View(t.Context())
			if err != nil || v.Version != 6 || len(v.Members) != 2 || v.Members[0].Ago != 2 || v.Members[1].Incarnation != 4 ||
				v.Members[1].Sums != nil {
				t.Errorf("%+v, %v", v, err)
			}
			expectFault(t, v.Fault, want)
		}
		s.answers(`{"version": 6, "members": [{"number": 1, "incarnation": 9}, {"number": 70000}]}`)
		if v, err := s.View(t.Context()); err == nil || v.Members != nil || v.Version != 0 {
			t.Errorf("a reading that failed has %+v, %v", v, err)
		}
	})
}

func TestADatabaseIsNamed(t *testing.T) {
	for _, dsn := range []string{"", "postgres://mta:secret@[::1", "host=a sslmode=never password=secret"} {
		if _, err := Open(Config{Database: dsn}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", dsn, err)
		}
	}
}

func TestAConnectionIsEncryptedUnlessItIsLocal(t *testing.T) {
	for dsn, want := range map[string]string{
		"host=/run/postgresql":                            "",
		"host=localhost,127.0.0.1,::1":                    "",
		"host=db.example sslmode=verify-full":             "",
		"host=db.example sslmode=verify-ca":               "db.example",
		"host=db.example":                                 "db.example",
		"host=localhost,b.example sslmode=disable":        "b.example",
		"postgres://a.example,b.example/x?sslmode=prefer": "a.example",
	} {
		e, err := Open(Config{Database: dsn})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Unprotected(); got != "" && want == "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", dsn, got, want)
		}
		e.Close()
	}
}

// TestOctetsGoAsTheyAre: in binary, and never as NULL.
func TestOctetsGoAsTheyAre(t *testing.T) {
	within(t, func(t *testing.T, s *server) {
		s.answers(`{"done": true, "session": 1796073171553532, "last": 3, "sealed": 1023}`)
		got, err := s.AppendEntry(t.Context(), spool.Entry{Log: 1, Session: 2, Number: 3, Changes: []byte("\x00\xff\"\\")})
		want := `{\"log\":1,\"session\":2,\"entry\":3,\"image\":false,\"hash\":\"` + strings.Repeat("A", 43) + `=\"}`
		want = `[0 1 1] ["` + want + `" "\x00\xff\"\\" ""] false`
		if given := s.given.Load(); err != nil || given != want {
			t.Errorf("%v; the call has %s, want %s", err, given, want)
		}
		if got != (spool.Answer{Done: true, Session: 1796073171553532, Last: 3, Sealed: 1023}) {
			t.Errorf("the answer is %+v", got)
		}
	})
}

// writes notes how much each write has.
type writes struct {
	net.Conn
	sizes []int
}

func (w *writes) Write(b []byte) (int, error) {
	w.sizes = append(w.sizes, len(b))
	return w.Conn.Write(b)
}

func TestNoClientIsStoppedWhileItHoldsLocks(t *testing.T) {
	within(t, func(t *testing.T, s *server) {
		dial, w := s.cfg.DialFunc, &writes{}
		s.cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			w.Conn = c
			return w, err
		}
		if _, err := s.Shards(t.Context(), owner.Call{Parts: make([]owner.Part, owner.Shards)}); err == nil {
			t.Error("no error")
		}
		last, want := w.sizes[len(w.sizes)-1], 0
		for _, m := range []pgproto3.FrontendMessage{&pgproto3.Execute{}, &pgproto3.Sync{}} {
			b, _ := m.Encode(nil)
			want += len(b)
		}
		if before := w.sizes[len(w.sizes)-2]; last != want || before < 1000 {
			t.Errorf("the last two writes have %d and %d octets; want the call, and %d", before, last, want)
		}
	})
}
