package e2e

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// TestScaleSites starts the relay with all that it once learned of a hundred thousand sites.
func TestScaleSites(t *testing.T) {
	besideOthers(t, fullScale())
	n := scaled(t, "SITES", 100_000, 2000)
	g := farSites(t, 1, sink.Config{})
	bare := newRelay(t, g.DNS, g.Port, "")
	bare.start(t)
	knows := newRelay(t, g.DNS, g.Port, "")
	path := filepath.Join(knows.dir, "data", "destdb")
	learnSites(t, path, n)
	var f figures
	ready := knows.startTimed(t, time.Minute)
	rss, without := knows.memory(t, "VmRSS"), bare.memory(t, "VmRSS")
	f.add(fmt.Sprintf("%s sites, a host and a path each: ready after", count(n)), "", "%.2f s", ready.Seconds())
	f.add("memory for them when ready", "", "%.0f MB, %.1f KB each", rss-without, (rss-without)*1024/float64(n))
	f.add("of these, pages of their file, which the kernel takes back at need", "", "%.0f MB", knows.memory(t, "RssFile")-bare.memory(t, "RssFile"))
	if info, err := os.Stat(path); err == nil {
		f.add("their file", "", "%.0f MB", float64(info.Size())/1e6)
	}
	listSites(t, knows, &f, n)
	with, alone := g.inTurns(t, knows.addr, bare.addr)
	f.add("memory for them after that load", "", "%.0f MB", knows.memory(t, "VmRSS")-bare.memory(t, "VmRSS"))
	f.add("accepted a second with them", "", "%.0f, %.0f %% of a relay that knows none", with, 100*with/alone)
	f.print(t, "Sites in destdb:")
}

// learnSites writes what the relay would have written of n sites.
func learnSites(t *testing.T, path string, n int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	store, err := destdb.OpenFile(path, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	var records []destdb.Record
	for i := range n {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 25)
		name := "mx." + learnedSite(i)
		records = append(records,
			destdb.Record{Key: destdb.Key{Site: name}, Used: now, Allowed: 10, Usual: 0.5},
			destdb.Record{Key: destdb.Key{Addr: addr}, Used: now, Name: name, Facts: destdb.Facts{
				Mode: "chunking", WindowMessages: 16, WindowBytes: 1 << 20,
				Extensions: []string{"PIPELINING", "SIZE 52428800", "8BITMIME", "CHUNKING", "ENHANCEDSTATUSCODES", "SMTPUTF8"}}},
			destdb.Record{Key: destdb.Key{Addr: addr, Source: "default"}, Used: now, Made: now})
	}
	for part := range slices.Chunk(records, 1000) { // as the relay does, a transaction for some
		if err := store.Save(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

func learnedSite(i int) string { return fmt.Sprintf("site%06d.learned.example", i) }

// listSites asks for sites as an operator would.
func listSites(t *testing.T, r *relay, f *figures, n int) {
	t.Helper()
	c := r.control(t)
	for _, ask := range []struct {
		what   string
		filter api.SiteFilter
		want   int
	}{
		{"one site, looked up by name", api.SiteFilter{Names: []string{"mx." + learnedSite(n/2)}, Paging: api.Paging{Limit: 1}}, 1},
		{"first page (100) of the sites", api.SiteFilter{Paging: api.Paging{Limit: 100}}, 100},
	} {
		f.add(ask.what, "20 ms", "%s", milliseconds(medianOf(t, 5, func() error {
			l, err := api.OpSites.Call(t.Context(), c, ask.filter)
			if err == nil && len(l.Sites) != ask.want {
				err = fmt.Errorf("%s: %d are listed, want %d", ask.what, len(l.Sites), ask.want)
			}
			return err
		})))
	}
}
