package submission

import (
	"context"
	"fmt"
	"net"
	"net/textproto"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/mta/submission/auth"
)

// talk connects from a loopback address, and gives a function that sends a command and wants a code.
func talk(b *testing.B, from, addr string) (say func(want int, command string) bool, end func()) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		b.Error(err)
		return nil, func() {}
	}
	c := textproto.NewConn(conn)
	if _, _, err := c.ReadResponse(220); err != nil {
		b.Error(err)
	}
	return func(want int, command string) bool {
		if err := c.PrintfLine("%s", command); err != nil {
			return false
		}
		_, _, err := c.ReadResponse(want)
		return err == nil
	}, func() { c.Close() }
}

// benchLogins is a listener in clear.
func benchLogins(b *testing.B) (addr string) {
	cfg := authConfig(b)
	cfg.Intake.Store, cfg.ClearOnLoopback, cfg.TLS = new(memStore), true, nil
	b.Cleanup(cfg.Auth.Close)
	_, addr = onLoopback(b, cfg)
	return addr
}

// BenchmarkLogin connects, logs in as a user who is known, and leaves.
func BenchmarkLogin(b *testing.B) {
	addr := benchLogins(b)
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			say, end := talk(b, "127.0.0.1", addr)
			if say == nil || !say(250, "EHLO x") || !say(235, "AUTH PLAIN "+b64("\x00bob\x00secret")) || !say(221, "QUIT") {
				b.Error("the login failed")
			}
			end()
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "logins/s")
}

// BenchmarkFlood prints the 99th percentile of a known user's login and MAIL alone, and beside 200 machines
// that guess passwords.
func BenchmarkFlood(b *testing.B) {
	cfg := authConfig(b)
	hash, err := auth.NewHash(auth.Argon2id, "secret")
	if err != nil {
		b.Fatal(err)
	}
	path := usersFile(b)
	if err := auth.UpdateUsers(path, func(t *auth.UserTable) error { t.SetHash("carl", hash); return nil }); err != nil {
		b.Fatal(err)
	}
	cfg.Intake.Store, cfg.ClearOnLoopback, cfg.TLS, cfg.Auth = new(memStore), true, nil, auth.New(auth.Config{File: path})
	b.Cleanup(cfg.Auth.Close)
	_, addr := onLoopback(b, cfg)
	measure := func() time.Duration {
		var took []time.Duration
		for range 2000 {
			began := time.Now()
			say, end := talk(b, "127.0.0.1", addr)
			if say == nil || !say(250, "EHLO x") || !say(235, "AUTH PLAIN "+b64("\x00carl\x00secret")) || !say(250, "MAIL FROM:<a@b.example>") {
				b.Fatal("the login failed")
			}
			end()
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	for b.Loop() {
		measure() // warm
		alone := measure()
		ctx, cancel := context.WithCancel(context.Background())
		var flood sync.WaitGroup
		for i := range 200 {
			flood.Go(func() {
				for ctx.Err() == nil {
					say, end := talk(b, fmt.Sprintf("127.9.0.%d", 1+i), addr)
					stop := context.AfterFunc(ctx, end)
					if say != nil && say(250, "EHLO x") {
						say(235, "AUTH PLAIN "+b64("\x00carl\x00guess"+fmt.Sprint(i)))
					}
					stop()
					end()
				}
			})
		}
		time.Sleep(time.Second)
		beside := measure()
		before := cfg.Auth.Stats()
		cancel()
		flood.Wait()
		b.ReportMetric(float64(alone.Microseconds()), "us-p99-alone")
		b.ReportMetric(float64(beside.Microseconds()), "us-p99-flooded")
		b.ReportMetric(float64(before.Failed+before.Refused), "guesses-answered")
	}
}
