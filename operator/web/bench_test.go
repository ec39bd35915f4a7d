package web

import (
	"net/http/httptest"
	"testing"
	"time"
)

// BenchmarkRefresh is what a viewer costs who has the overview open: a refresh that another one has made already.
func BenchmarkRefresh(b *testing.B) { benchmarkOverview(b, 0) }

// BenchmarkView is the refresh of the overview that makes it, once for all viewers of a role.
func BenchmarkView(b *testing.B) { benchmarkOverview(b, 2*time.Second) }

func benchmarkOverview(b *testing.B, apart time.Duration) {
	c := newConsole(b, nil)
	vera := c.as("vera")
	r := httptest.NewRequest("GET", "http://console.example/", nil)
	r.Header.Set("HX-Request", "true")
	r.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
	for _, k := range vera.cookies {
		r.AddCookie(k)
	}
	h := c.Handler()
	b.ReportAllocs()
	for b.Loop() {
		c.clock.add(apart)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != 200 {
			b.Fatalf("the answer is %d", w.Code)
		}
	}
}
