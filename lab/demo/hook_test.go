package demo

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/mta/accounting"
)

// The web hook counts each event once, believes only what is signed, and comes back at its address.
func TestHook(t *testing.T) {
	h, err := startHook()
	if err != nil {
		t.Fatal(err)
	}
	defer h.die()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	send := func(body string, sign bool) int {
		r, err := http.NewRequest("POST", "http://"+h.addr+"/events", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if r.Header.Set("webhook-timestamp", "1"); sign {
			if err := h.signer.Sign(r.Header, "b1", time.Now(), []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		resp, err := client.Do(r)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	const events = `[{"type":"Delivery","event_id":"n-1","recipient":"a@p.example"},{"type":"OOB","event_id":"n-2","recipient":"a@p.example"}]`
	if code := send(events, true); code != http.StatusNoContent {
		t.Errorf("signed events: %d", code)
	}
	h.die()
	if code := send(events, true); code != 0 || h.alive() {
		t.Errorf("after its death it answers %d", code)
	}
	if err := h.open(); err != nil {
		t.Fatal(err)
	}
	if code := send(events, true); code != http.StatusNoContent {
		t.Errorf("events that come again: %d", code)
	}
	if code := send(events, false); code == http.StatusNoContent || h.refused() != 1 {
		t.Errorf("events without a signature: %d, %d refused", code, h.refused())
	}
	if n, again := h.sums(); n != 2 || again != 2 {
		t.Errorf("%d events, %d again", n, again)
	}
	a := newAftermath()
	a.late["a@p.example"], a.late["b@p.example"], a.complaints["a@p.example"] = true, true, true
	if left := h.missing(a.happened()); len(left) != 2 || slices.Contains(left, happening{accounting.OOB, "a@p.example"}) {
		t.Errorf("unheard of are %v", left)
	}
}
