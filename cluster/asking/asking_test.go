package asking

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/cluster/link"
	"example.org/mta/internal/bubble"
)

// asker asks nodes that have these ends of talks.
func asker(at func(conn net.Conn)) *Asker {
	return &Asker{Most: 1 << 10, Purpose: link.Purpose{Name: "questions", Since: 3},
		Open: func(_ context.Context, node uint16, p link.Purpose) (net.Conn, error) {
			if node != 2 || p.Name != "questions" {
				return nil, fmt.Errorf("node %d is not a member", node)
			}
			here, there := net.Pipe()
			go func() { at(there); there.Close() }()
			return here, nil
		}}
}

func question(t *testing.T, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://node/words?of=it", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAsk: a request and its answer arrive as they are; a handler that breaks off ends nothing else.
func TestAsk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := asker(func(conn net.Conn) {
			Serve(t.Context(), conn, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "text/plain")
				switch string(text) {
				case "much":
					for range 100 {
						fmt.Fprintf(w, "%0100d", 0)
					}
				case "panic":
					fmt.Fprint(w, "half of ")
					http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				default:
					w.WriteHeader(http.StatusTeapot)
					fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, text)
				}
			}))
		})
		for range 3 {
			answer, err := a.Ask(t.Context(), 2, question(t, "hello"))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(answer.Body)
			if string(text) != "POST /words?of=it hello" || err != nil || answer.StatusCode != 418 || answer.Header.Get("Content-Type") != "text/plain" {
				t.Errorf("%d %q %v", answer.StatusCode, text, err)
			}
		}
		for body, want := range map[string]string{"much": "more than 1024 octets", "panic": "cut off"} {
			if _, err := a.Ask(t.Context(), 2, question(t, body)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", body, err)
			}
		}
		if _, err := a.Ask(t.Context(), 3, question(t, "")); err == nil || err.Error() != "node 3 is not a member" {
			t.Error(err)
		}
	})
}

// TestManyNames: a request can name as many messages as the control socket takes.
func TestManyNames(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := asker(func(conn net.Conn) {
			Serve(t.Context(), conn, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, len(r.URL.RawQuery))
			}))
		})
		r := question(t, "")
		r.URL.RawQuery = strings.Repeat("id=01knd1p5c0002&", 60_000)
		answer, err := a.Ask(t.Context(), 2, r)
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := io.ReadAll(answer.Body); string(text) != "1020000" || answer.StatusCode != http.StatusOK {
			t.Errorf("%d %s", answer.StatusCode, text)
		}
	})
}

// TestBadAnswers: what no node sends, and more than is read, costs bounded memory and 5 s at most.
func TestBadAnswers(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	for name, test := range map[string]struct {
		text, want string
		stays      bool // the connection does not end with the text
	}{
		"nothing":         {"", "can't be read: unexpected EOF", false},
		"silence":         {"", "no answer within 5s", true},
		"half":            {head + "Content-Length: 10\r\n\r\nhalf", "cut off", false},
		"half, silent":    {head + "Content-Length: 10\r\n\r\nhalf", "no answer within 5s", true},
		"a gigabyte":      {head + "Content-Length: 1073741824\r\n\r\n" + strings.Repeat("x", 4<<10), "more than 1024 octets", true},
		"chunks":          {head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\nx\r\n", 4<<10), "octets", true},
		"a cut chunk":     {head + "Transfer-Encoding: chunked\r\n\r\n8\r\nx", "cut off", false},
		"garbled chunks":  {head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "cut off", false},
		"garbled":         {"220 mail.example ESMTP\r\n", "can't be read", false},
		"an endless head": {head + strings.Repeat("A: b\r\n", 64<<10), "can't be read", true},
		"an endless line": {head + strings.Repeat("A", 1<<20), "can't be read", true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				began := time.Now()
				a := asker(func(conn net.Conn) {
					read := make(chan bool)
					go func() { io.Copy(io.Discard, conn); close(read) }()
					io.WriteString(conn, test.text)
					if test.stays {
						<-read
					}
				})
				_, err := a.Ask(t.Context(), 2, question(t, ""))
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v; want %q", err, test.want)
				}
				if d := time.Since(began); d > Patience {
					t.Errorf("it took %s", d)
				}
			})
		})
	}
}

// TestTurns: a node has one answer at a time under way, and no other node waits for that.
func TestTurns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		under, most := 0, 0
		a := asker(nil)
		turn := make(chan bool, 1)
		turn <- true
		a.Open = func(ctx context.Context, node uint16, _ link.Purpose) (net.Conn, error) {
			if node == 3 {
				return nil, errors.New("refused")
			}
			<-turn
			under++
			most = max(most, under)
			turn <- true
			time.Sleep(2 * time.Second)
			<-turn
			under--
			turn <- true
			return nil, errors.New("refused")
		}
		errs := make(chan error, 4)
		for range 4 {
			go func() { _, err := a.Ask(t.Context(), 2, question(t, "")); errs <- err }()
		}
		synctest.Wait()
		began := time.Now()
		if _, err := a.Ask(t.Context(), 3, question(t, "")); err == nil || time.Since(began) > 0 {
			t.Error("node 3 waits for node 2")
		}
		got := map[error]int{}
		for range 4 {
			err := <-errs
			got[err]++
		}
		if most != 1 || got[errSilent] != 1 || got[errBusy] != 1 { // the third has waited for 4 s, and is cut short
			t.Errorf("%d at a time: %v", most, got)
		}
	})
}

// TestLongPatience: what takes 15 s is answered to who waits for so long, and to nobody else.
func TestLongPatience(t *testing.T) {
	for _, long := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			a := asker(func(conn net.Conn) {
				Serve(t.Context(), conn, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					time.Sleep(15 * time.Second)
					fmt.Fprint(w, "done")
				}))
			})
			a.Long = long
			if _, err := a.Ask(t.Context(), 2, question(t, "")); (err == nil) != long {
				t.Error(err)
			}
			time.Sleep(LongPatience)
		})
	}
}

// TestBadQuestions: what no node asks ends the talk, and so does silence.
// TestTimeouts: a dial that ends with its socket's timeout, shortly before the context, is a node that does not answer.
func TestTimeouts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for before, want := range map[time.Duration]error{time.Millisecond: errSilent, time.Second: os.ErrDeadlineExceeded} {
			a := asker(nil)
			a.Open = func(ctx context.Context, _ uint16, _ link.Purpose) (net.Conn, error) {
				at, _ := ctx.Deadline()
				time.Sleep(time.Until(at) - before)
				return nil, os.ErrDeadlineExceeded
			}
			if _, err := a.Ask(t.Context(), 2, question(t, "")); !errors.Is(err, want) {
				t.Errorf("%s before the end: %v, want %v", before, err, want)
			}
		}
	})
}

func TestBadQuestions(t *testing.T) {
	for name, text := range map[string]string{
		"silence": "", "garbled": "EHLO x\r\n\r\n", "half": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
		"an endless head": "GET / HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				go func() { io.WriteString(here, text) }()
				go io.Copy(io.Discard, here)
				began := time.Now()
				Serve(t.Context(), there, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.ReadAll(r.Body); err == nil {
						t.Error("it is whole")
					}
				}))
				if d := time.Since(began); d > 2*Patience {
					t.Errorf("it took %s", d)
				}
				here.Close()
			})
		})
	}
}
