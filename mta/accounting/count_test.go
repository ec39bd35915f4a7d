package accounting

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/linelog"
	"example.org/mta/internal/reply"
)

// counted writes records of several types, tenants, sites and replies to files of a log, the older ones compressed.
func counted(t testing.TB, records int, change func(int, *Record)) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var minutes atomic.Int64
	clock := func() time.Time { return accepted.Add(time.Duration(minutes.Load()) * time.Minute) }
	w, err := Open(Config{Dir: dir, NodeID: "node1", Limits: Limits{RotateSize: 64 << 10}, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		r := delivery()
		r.ID, r.Time = envelope.FirstID(accepted)+envelope.ID(i), clock()
		r.Meta = `{"tenant":"nobody","site":"nowhere","bounce_classification":"None","a":[1,{"x":"}\""}]}`
		change(i, &r)
		w.Add(&r)
		if i%max(50, records/20) == 0 {
			minutes.Add(1)
			if err := w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := logDir(dir).Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files[:len(files)/2] {
		if err := linelog.Compress(f, nil); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func varied(i int, r *Record) {
	rng := rand.New(rand.NewSource(int64(i)))
	of := func(words ...string) string { return words[rng.Intn(len(words))] }
	r.Type = Type(of("Reception", "Delivery", "Delivery", "Bounce", "TransientFailure", "OOB", "Expiration"))
	r.Tenant, r.Campaign = of("acme", "globex", `O"Neil`, "dünn", ""), of("spring", "")
	r.Site, r.Provider = of("mx.a.example", "MX.b.example", "mx.c.example", ""), of("google", "")
	r.EgressSource, r.EgressPool = of("out1", "out2"), of("main", "news")
	r.Recipient = envelope.Address(of("joe@a.example", "Ann@B.example", "jürgen@bücher.example"))
	r.Queue = r.Tenant + "@" + r.Recipient.Domain()
	if r.Type != Reception && r.Type != Delivery {
		r.Class = of("InvalidRecipient", "SpamBlock", "QuotaIssues")
		r.Response = reply.Parse(of("550 5.1.1 <u%d@a.example> no such user %d\n550 5.1.1 \"bye\"", "421 4.7.0 try later [%[2]d]",
			"554 5.7.1 blocked, see https://x.example/?ip=192.0.2.%d"))
		r.Response.Text = strings.ReplaceAll(fmt.Sprintf(r.Response.Text, i, i), "%!(EXTRA int="+strconv.Itoa(i)+")", "")
	}
	if i%97 == 0 {
		r.Type, r.Count = Rejection, 5
	}
}

// TestCountIsThatOfRead: whatever is counted and asked for, the counts are those of the records that Read gives.
func TestCountIsThatOfRead(t *testing.T) {
	dir := counted(t, 900, varied)
	of := map[string]func(*Record) string{
		"class": func(r *Record) string { return r.Class }, "site": func(r *Record) string { return r.Site },
		"provider": func(r *Record) string { return r.Provider }, "tenant": func(r *Record) string { return r.Tenant },
		"domain":   func(r *Record) string { return r.Queue[strings.LastIndexByte(r.Queue, '@')+1:] },
		"campaign": func(r *Record) string { return r.Campaign }, "source": func(r *Record) string { return r.EgressSource },
		"pool": func(r *Record) string { return r.EgressPool }, "type": func(r *Record) string { return string(r.Type) },
		"reply": func(r *Record) string { return r.Class },
	}
	if !slices.Equal(slices.Sorted(maps.Keys(of)), slices.Sorted(maps.Keys(properties))) {
		t.Fatalf("properties are %v", properties)
	}
	hour := accepted.Add(7 * time.Minute)
	for i, q := range []Query{
		{}, {Types: []Type{Bounce, OOB}}, {Tenant: "acme"}, {Tenant: `O"Neil`}, {Tenant: "dünn", Site: "mx.b.EXAMPLE"},
		{Domain: "b.example"}, {Domain: "bücher.example"}, {Recipient: "ann@b.example"}, {Sender: "@ACME.example"},
		{Classes: []string{"SpamBlock", "QuotaIssues"}, Campaign: "spring"}, {Since: hour, Until: hour.Add(9 * time.Minute)},
		{ID: envelope.FirstID(accepted).String()}, {Tag: "news"}, {Types: []Type{Rejection}, Until: hour},
	} {
		wants, total := make(map[string]map[string]int64), int64(0) // by property
		for by := range of {
			wants[by] = make(map[string]int64)
		}
		err := Read(t.Context(), dir, q, func(line []byte) error {
			r, err := Parse(line)
			if err != nil {
				return err
			}
			for by, name := range of {
				wants[by][name(r)] += max(r.Count, 1)
			}
			total += max(r.Count, 1)
			return nil
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for by, want := range wants {
			exact := make(map[string]int64)
			got, err := Count(t.Context(), dir, q, by, 1000)
			for _, g := range got.Groups {
				exact[g.Name] += g.Count
			}
			if err != nil || !maps.Equal(exact, want) || got.Records != total || got.Others != 0 || !got.Exact || got.Damage != nil {
				t.Errorf("query %d by %s: %v of %d (%v), want %v of %d", i, by, exact, got.Records, err, want, total)
			}
		}
	}
	top, err := Count(t.Context(), dir, Query{}, "site", 1)
	if err != nil || len(top.Groups) != 1 || top.Left != 3 || top.Groups[0].Count+top.Others != top.Records {
		t.Errorf("the first site of %+v, %v", top, err)
	}
}

// TestRepliesAreOne: what replies differ in by the recipient makes no group, and which of them is shown doesn't depend
// on the order in which files are read.
func TestRepliesAreOne(t *testing.T) {
	dir := counted(t, 900, varied)
	var first Counts
	for i := range 5 {
		c, err := Count(t.Context(), dir, Query{Types: []Type{Bounce}, Classes: []string{"SpamBlock"}}, "reply", 10)
		if err != nil || len(c.Groups) != 3 {
			t.Fatalf("%+v, %v", c, err)
		}
		if i == 0 {
			first = c
		}
		if !slices.Equal(c.Groups, first.Groups) {
			t.Errorf("%+v, and before %+v", c.Groups, first.Groups)
		}
	}
}

// TestMoreGroupsThanAreKept: memory is bounded, no record is lost from the sum, and the frequent groups stay.
func TestMoreGroupsThanAreKept(t *testing.T) {
	dir := counted(t, 3*mostGroups, func(i int, r *Record) {
		if r.Campaign = strconv.Itoa(i); i%3 == 0 {
			r.Campaign = "often"
		}
		*r = Record{Type: Delivery, Message: Message{ID: r.ID, Campaign: r.Campaign}, Time: r.Time}
	})
	c, err := Count(t.Context(), dir, Query{}, "campaign", 5)
	if err != nil || c.Exact || c.Records != 3*mostGroups || c.Groups[0].Name != "often" || c.Groups[0].Count != mostGroups {
		t.Fatalf("%+v, %v", c, err)
	}
	sum := c.Others
	for _, g := range c.Groups {
		sum += g.Count
	}
	if sum != c.Records {
		t.Errorf("groups and others are %d records, want %d", sum, c.Records)
	}
}

// TestACountEnds: with its context, and with another's before it begins; damage is reported beside the rest.
func TestACountEnds(t *testing.T) {
	dir := counted(t, 900, varied)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Count(ctx, dir, Query{}, "class", 5); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	w, err := Open(Config{Dir: dir, NodeID: "node1"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.counting <- struct{}{}
	if _, err := w.Count(ctx, Query{}, "class", 5); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-w.counting
	whole, err := w.Count(t.Context(), Query{}, "class", 5)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := logDir(dir).Files()
	text, err := os.ReadFile(files[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/3] ^= 1
	if err := os.WriteFile(files[0].Path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := w.Count(t.Context(), Query{}, "class", 5)
	if err != nil || c.Damage == nil || c.Records >= whole.Records || c.Records < whole.Records/2 {
		t.Errorf("%d of %d records, %v, %v", c.Records, whole.Records, c.Damage, err)
	}
}

// TestScan holds the quick reading of a line to that of a line with white space and other keys before.
func TestScan(t *testing.T) {
	values := make([][]byte, 3)
	for line, want := range map[string]string{
		`{"a":"x","b":{"c":"no"},"c":[1,"]"],"d":-1.5}`: `"x" [1,"]"] -1.5 true`,
		`{"d":true,"a":"\\\"","c":"q\\"}`:               `"\\\"" "q\\" true true`,
		`{"a":1}`:                                       `1   true`,
		`{}`:                                            `   false`,
		`{"a":1`:                                        `   false`,
		`{"a":"x}`:                                      `   false`,
		`{"b":{"a":1},"a":2}}`:                          `2   false`,
		`{"a": 1}`:                                      ` 1   true`,
		``:                                              `   false`,
		`{"":1,"a":2,"c":3,"d":4,nonsense`:              `2 3 4 true`,
	} {
		ok := scan([]byte(line), []string{"a", "c", "d"}, values)
		if got := fmt.Sprintf("%s %s %s %v", values[0], values[1], values[2], ok); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// BenchmarkCount counts a log of MTA_LOG_MIB mebibytes (64 without it), in files of 128 MiB.
func BenchmarkCount(b *testing.B) {
	for _, compressed := range []bool{false, true} {
		r := delivery()
		dir, n := bigLog(b, logSize(), compressed, func(w *Writer, n int) {
			r := r
			r.ID, r.Tenant = envelope.FirstID(accepted)+envelope.ID(n/2), [...]string{"acme", "globex", "initech"}[n%3]
			r.Time = accepted.Add(time.Duration(n) * time.Millisecond)
			if r.Type = Reception; n%2 == 0 {
				r.Type, r.Response.Text = Delivery, fmt.Sprintf("OK  1772366400 %x - gsmtp", n*7919)
			}
			if n%30 == 0 {
				r.Type, r.Class = Bounce, "InvalidRecipient"
				r.Response = reply.Parse(fmt.Sprintf("550 5.1.1 <u%d@gmail.com> The email account that you tried to reach\n"+
					"550 5.1.1 does not exist. For more information, go to https://support.example/?p=NoSuchUser %x - gsmtp", n, n*7919))
			}
			w.Add(&r)
		})
		for _, c := range []struct {
			by string
			q  Query
		}{
			{"class", Query{}}, {"tenant", Query{}}, {"reply", Query{}}, {"reply", Query{Types: []Type{Bounce, OOB, Expiration}}},
			{"site", Query{Tenant: "acme", Since: accepted.Add(time.Second)}},
		} {
			b.Run(fmt.Sprintf("%v/%s/%d%s", compressed, c.by, len(c.q.Types), c.q.Tenant), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Count(b.Context(), dir, c.q, c.by, 20); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}
