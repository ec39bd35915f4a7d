package delivery

import (
	"testing"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
)

// TestConnectionsAreListed: each state, in pages, with what the host has said last.
func TestConnectionsAreListed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}, IdleTimeout: time.Hour, ActiveTimeout: time.Hour}))
		defer w.end()
		slow := w.host("slow", sink.Config{Work: map[sink.Phase]time.Duration{sink.End: time.Minute}})
		quick, hole := w.host("quick", sink.Config{}), w.host("hole", sink.Config{})
		hole.hole = true
		w.send(routeTo("busy", tier(slow)), 1)
		w.send(routeTo("idle", tier(quick)), 1)
		w.send(routeTo("opening", tier(hole)), 1)
		time.Sleep(time.Second)
		states := make(map[string]ConnectionInfo)
		after := ""
		for {
			page, total := w.s.Connections(ConnectionQuery{}, after, 1)
			if total != 3 {
				t.Fatalf("%d connections in all, want 3", total)
			}
			if len(page) == 0 {
				break
			}
			after = page[0].Session
			states[page[0].Site] = page[0]
		}
		if b := states["busy"]; b.State != Busy || b.Backlog != 1 || b.Given != 1 || b.Host.Name != "slow" || b.Source != "out1" || !b.Idle.IsZero() {
			t.Errorf("busy: %+v", b)
		}
		if i := states["idle"]; i.State != Idle || i.Last.Code != 250 || i.Idle.IsZero() || i.Mode == "" || i.Window == 0 {
			t.Errorf("idle: %+v", i)
		}
		if o := states["opening"]; o.State != Opening || o.Given != 0 || o.Since.IsZero() {
			t.Errorf("opening: %+v", o)
		}
		busy := Busy
		if list, n := w.s.Connections(ConnectionQuery{State: &busy}, "", 10); n != 1 || list[0].Site != "busy" {
			t.Errorf("those that are busy: %v", list)
		}
		if list, n := w.s.Connections(ConnectionQuery{Source: "out2"}, "", 10); n != 0 || list != nil {
			t.Errorf("those of another source: %v", list)
		}
	})
}

// TestAClosedConnectionLosesAndDoublesNothing: what has begun is finished there, and the rest leaves by another connection.
func TestAClosedConnectionLosesAndDoublesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}, MaxDeliveriesPerConnection: 1e6, ActiveTimeout: time.Hour}))
		defer w.end()
		h := w.host("mx", sink.Config{Latency: 20 * time.Millisecond, Work: map[sink.Phase]time.Duration{sink.End: 100 * time.Millisecond}})
		const jobs = 200
		w.send(routeTo("a", tier(h)), jobs)
		closed := 0
		for w.count() < jobs {
			time.Sleep(500 * time.Millisecond)
			list, _ := w.s.Connections(ConnectionQuery{Site: "a"}, "", 10)
			for _, c := range list {
				if known, _ := w.s.CloseConnections([]string{c.Session}); known == 1 && c.State == Busy {
					closed++
				}
			}
		}
		if n := delivered(w.settled()); n != jobs || closed < 5 {
			t.Errorf("%d of %d delivered, %d connections closed", n, jobs, closed)
		}
		if n := h.server.Stats().Messages; n != jobs {
			t.Errorf("the host took %d messages, want %d", n, jobs)
		}
		if known, _ := w.s.CloseConnections([]string{"nothing"}); known != 0 {
			t.Errorf("%d unknown connections closed", known)
		}
	})
}

// TestAnOpeningThatIsClosedBlamesNobody: the host is tried again at once.
func TestAnOpeningThatIsClosedBlamesNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}, ConnectTimeout: time.Hour}))
		defer w.end()
		h := w.host("mx", sink.Config{})
		h.hole = true
		w.send(routeTo("a", tier(h)), 1)
		time.Sleep(time.Second)
		list, _ := w.s.Connections(ConnectionQuery{}, "", 10)
		w.mu.Lock()
		h.hole = false
		w.mu.Unlock()
		if known, later := w.s.CloseConnections([]string{list[0].Session}); known != 1 || later != 0 {
			t.Fatalf("%d known, %d later", known, later)
		}
		if n := delivered(w.awaitResults(1, time.Second)); n != 1 {
			t.Errorf("%d delivered, want 1", n)
		}
		if s := hostState(w, "mx"); s == destdb.Retry {
			t.Error("the host is blamed")
		}
	})
}

// TestCut: a host that is slow to take a message never gets its end, and is not blamed; the message arrives later.
func TestCut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}, IdleTimeout: time.Hour, ActiveTimeout: time.Hour}))
		defer w.end()
		slow := w.host("slow", sink.Config{Without: sink.Chunking, Work: map[sink.Phase]time.Duration{sink.Data: time.Minute}})
		w.send(routeTo("idle", tier(w.host("quick", sink.Config{}))), 1)
		w.send(routeTo("busy", tier(slow)), 1)
		time.Sleep(time.Second)
		if n := w.s.Cut(); n != 1 {
			t.Errorf("%d connections are cut", n)
		}
		time.Sleep(time.Second)
		if list, _ := w.s.Connections(ConnectionQuery{}, "", 10); len(list) != 1 || list[0].Site != "idle" || hostState(w, "slow") == destdb.Retry {
			t.Errorf("the connections are %+v", list)
		}
		time.Sleep(time.Hour / 2)
		results := w.settled()
		if n := slow.server.Stats().Messages; n != 0 || len(results) != 2 || delivered(results) != 1 || !results[1].Reply.Temporary() {
			t.Errorf("the host has %d messages, the results are %+v", n, results)
		}
		w.send(routeTo("busy", tier(slow)), 1)
		if n := delivered(w.awaitResults(3, time.Hour)); n != 2 || slow.server.Stats().Messages != 1 {
			t.Errorf("%d are delivered", n)
		}
	})
}
