package mta

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/bounce/inbox"
	"example.org/mta/bounce/returnpath"
	"example.org/mta/destdb"
	"example.org/mta/internal/certificates"
	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/listen"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
	"example.org/mta/queue"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/maildrop"
	"example.org/mta/suppression"
)

var (
	flips = flag.Int("flips", 1, "bits to change in each kind of file of data_dir, each with a start of the relay")
	holes = flag.Int("holes", 1, "octets and lines to remove and insert, and ends to cut, in the same way: one of these by turns")
)

// TestAnyDamageOfTheDataDirectory: whatever bit of whichever file of the data directory changes, whatever is missing or
// was inserted, after a clean end or a kill, the relay starts, and either answers what was stored, or raises an alarm,
// fails the one who asks, or logs it. Only the queue and the warm-up may stop a start.
func TestAnyDamageOfTheDataDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	token, _, err := auth.AddKey(path, auth.Key{Tenant: "acme", Name: "shop", Scopes: auth.MaySend}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	full := sink.Config{Refusals: []sink.Refusal{{Phase: sink.Rcpt, Reply: "450 4.2.1 not now"}}}
	w := newWorldWith(t, Options{}, full, fmt.Sprintf(flipsConfig, path, unsubscribeURL), func(c *config.Config) {
		c.Queue.SegmentSize = 1 << 20
	})
	w.fillStores(token)
	w.fillQueue(token, "first")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start() // with another segment
	w.fillQueue(token, "second")
	w.until("all is on disk", w.provedSynced)
	killed := filesIn(t, w.cfg.DataDir)
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.answers() // once more, so that nothing is new in what follows
	sent := maildrop.Envelope{Sender: "ann@client.example", Recipients: []envelope.Address{"bob@box.example"}}
	if err := w.maildrop().Put(sent, strings.NewReader(letter), int64(len(letter))); err != nil {
		t.Fatal(err)
	}
	stopped := filesIn(t, w.cfg.DataDir)
	t.Run("stopped", func(t *testing.T) { w.damageEach(t, stopped, func(string) bool { return true }) })
	t.Run("killed", func(t *testing.T) {
		w.damageEach(t, killed, func(path string) bool { return string(killed[path]) != string(stopped[path]) })
	})
}

// damageEach damages files of a data directory, each in a copy of its own.
func (w *world) damageEach(t *testing.T, whole map[string][]byte, chosen func(path string) bool) {
	writeFiles(t, w.cfg.DataDir, whole)
	want, err := w.answers()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		if (text == "" || text == "null" || text == "[]") && name != "alarm" && name != "log" {
			t.Errorf("%s is empty", name)
		}
	}
	kinds := make(map[string][]string)
	for path := range whole {
		if kind := kindOf(path); kind != "" && len(whole[path]) > 0 && chosen(path) {
			kinds[kind] = append(kinds[kind], path)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		t.Run(strings.ReplaceAll(kind, "/", " "), func(t *testing.T) {
			slices.Sort(kinds[kind])
			seed := uint64(crc32.ChecksumIEEE([]byte(kind)))
			random := rand.New(rand.NewPCG(27, seed))
			for i, d := range damages {
				n := *flips
				if i > 0 {
					n = (*holes + (i+int(seed))%(len(damages)-1)) / (len(damages) - 1)
				}
				seen := make(map[string]int)
				for range n {
					path := kinds[kind][random.IntN(len(kinds[kind]))]
					b, what := d.to(slices.Clone(whole[path]), random)
					seen[w.damage(t, kind, path, d.name+" "+what+" of "+path, whole, b, want)]++
				}
				t.Logf("%-25s %-15s %v", kind, d.name, seen)
			}
		})
	}
}

// damage has a file hold something else, and returns what the relay makes of it.
func (w *world) damage(t *testing.T, kind, path, what string, whole map[string][]byte, b []byte,
	want map[string]string) (seen string) {
	writeFiles(t, w.cfg.DataDir, whole)
	if err := os.WriteFile(filepath.Join(w.cfg.DataDir, path), b, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := w.answers()
	switch {
	case err != nil:
		if !strings.HasPrefix(path, "queue") && !strings.HasPrefix(path, "warmup.db") {
			t.Errorf("%s: no start: %v", what, err)
		}
		return "refused"
	case got["alarm"] != want["alarm"]:
		return "alarm"
	case got["log"] != want["log"]:
		seen = "logged"
	default:
		seen = "harmless"
		for name := range want {
			if got[name] != want[name] {
				seen = "SILENT"
				t.Errorf("%s: without a word, %s is\n%.600s\nand was\n%.600s", what, name, got[name], want[name])
			}
		}
	}
	if summed(kind) && strings.HasPrefix(what, "bit") {
		t.Errorf("%s: without any alarm", what)
	}
	return seen
}

// damages are what happens to a file. Some have room at their end, which is spared most times.
var damages = []struct {
	name string
	to   func(b []byte, random *rand.Rand) (_ []byte, what string)
}{
	{"bit", func(b []byte, random *rand.Rand) ([]byte, string) {
		at, bit := random.IntN(used(b, random.IntN(8) > 0)), random.IntN(8)
		b[at] ^= 1 << bit
		return b, fmt.Sprintf("%d of octet %d", bit, at)
	}},
	{"octet removed", func(b []byte, random *rand.Rand) ([]byte, string) {
		at := random.IntN(used(b, true))
		return slices.Delete(b, at, at+1), fmt.Sprint(at)
	}},
	{"octet inserted", func(b []byte, random *rand.Rand) ([]byte, string) {
		at, octet := random.IntN(used(b, true)+1), byte(random.Uint32())
		return slices.Insert(b, at, octet), fmt.Sprintf("%#x at %d", octet, at)
	}},
	{"end cut", func(b []byte, random *rand.Rand) ([]byte, string) {
		to := random.IntN(used(b, true))
		return b[:to], fmt.Sprintf("at %d of %d", to, len(b))
	}},
	{"line removed", func(b []byte, random *rand.Rand) ([]byte, string) { // of a file without lines, 64 octets
		at := random.IntN(used(b, true))
		from, to := bytes.LastIndexByte(b[:at], '\n')+1, at+bytes.IndexByte(b[at:], '\n')+1
		if to == at {
			from, to = at, min(at+64, len(b))
		}
		return slices.Delete(b, from, to), fmt.Sprintf("%d to %d", from, to)
	}},
}

// used is how many octets of a file are in use.
func used(b []byte, only bool) int {
	if n := len(bytes.TrimRight(b, "\x00")); only && n > 0 {
		return n
	}
	return len(b)
}

// summed reports whether a sum or a second copy covers each octet of a kind's files: every change is an alarm, also one
// that costs nothing.
func summed(kind string) bool {
	return slices.Contains([]string{
		"acme", "maildrop/new", "pauses.json", "weights.json", "login-secret", "unsubscribe-secret", "return-path-secret",
		"idempotency.key", "queue-token.key", "keys-used.json", "inbound", "format", "log.jsonl", "queue/large", "audit.jsonl",
	}, strings.TrimSuffix(kind, ".copy"))
}

// flipsConfig has the files of the relay in use. Where the tests put a path and a URL is %q.
const flipsConfig = `
	defaults {
		smtp_port = PORT
		retry_interval = "1d"
		max_retry_interval = "1d"
	}
	keys { file = %q }
	tenant "acme" { unsubscribe = %q }
	api "web" { address = "127.0.0.1:0" }
	acme {
		names = ["relay.example"]
		directory = "https://127.0.0.1:1/"
		http_address = "127.0.0.1:0"
	}
	stream "app" { to = "http://127.0.0.1:1/" }
	source "new-1" { address = "127.0.0.77" }
	source "old-1" { address = "127.0.0.78" }
	plan "live" {
		stage {
			hourly = 10
			daily = 20
		}
	}
	pool "default" {
		shared = ["old-1"]
		dedicated "new-1" { plan = "live" }
	}
`

// fillStores has something in each store.
func (w *world) fillStores(token string) {
	t, ctx := w.t, w.t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.until("the warm-up has begun", func() bool { s, _ := w.warm.Controller().Status("127.0.0.77"); return s.Stage > 0 })
	for _, mail := range []api.Selection{{Domain: "box.example"}, {Tenant: "other"}} {
		_, err := w.rules.Begin(api.Rule{Action: api.RuleSuspend, Selection: mail, By: "ann", Reason: "they ask for it", Since: time.Unix(1e9, 0)}, false)
		must(err)
	}
	must(w.weights.Set(api.Weight{Pool: "default", Source: "old-1", Weight: 7}))
	for i := range 150 {
		key := suppression.KeyOf("acme", envelope.Address(fmt.Sprintf("r%d@box.example", i)))
		_, err := w.suppression.Add(ctx, []suppression.Entry{{Key: key, Reason: "550 5.1.1 no such user", Source: suppression.Import, Added: time.Unix(1e9, 0)}})
		must(err)
	}
	_, err := w.unsubscribes.End(ctx, &suppression.Subscription{Tenant: "acme", Address: "joe@box.example", Campaign: "news", Sent: time.Unix(1e9, 0)}, "")
	must(err)
	for i := range 20 {
		w.feeder.Report(suppression.Event{Kind: suppression.Bounce, Address: envelope.Address(fmt.Sprintf("full%d@box.example", i)), Class: bounce.QuotaIssues, Tenant: "acme", At: w.now()})
	}
	sts := make(map[string][]byte)
	for i := range 50 {
		sts[fmt.Sprintf("d%d.example", i)] = fmt.Appendf(nil, `{"id":"%d"}`, i)
	}
	must(w.destinations.Values(destdb.STSPolicies).Save(sts))
	var learned []destdb.Record
	for i := range 50 {
		learned = append(learned, destdb.Record{Key: destdb.Key{Site: fmt.Sprintf("site%d.example", i)}, Used: w.now(), Allowed: 3, Usual: 5})
	}
	must(w.destinations.Save(learned))
	must(w.reports.folder.Add(&inbox.KeptMail{Time: time.Unix(1e9, 0), Kind: "unknown", Sender: "a@box.example", Subject: "Hello"}, []byte(strings.Repeat("Dear Sir,\r\n", 50))))
	for _, name := range acmeFiles {
		must(w.acmeFiles().Put(ctx, name, []byte("-----BEGIN "+name+strings.Repeat("\nMHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY", 20))))
	}
	_, err = w.keys.Load().Check(ctx, token, netip.MustParseAddr("192.0.2.1"))
	must(err)
	must(w.history.Save())
	for i := range 20 {
		act, err := w.audit.Begin(audit.Line{Action: "queue hold", Subject: fmt.Sprint("id=", i), Reason: "spam"})
		must(err)
		must(act.End(audit.Done, i, ""))
	}
}

// fillQueue has mail in the queue: parked, deferred and held, small and large, with an idempotency key.
func (w *world) fillQueue(token, name string) {
	t := w.t
	t.Helper()
	for i := range 5 {
		w.send("ann@client.example", letter, fmt.Sprintf("%s%d@box.example", name, i))
	}
	w.send("ann@client.example", letter, name+"@client.example")
	w.until("mail is deferred", func() bool { return w.queue.Stats().Deferred > 0 })
	w.send("ann@client.example", letter+strings.Repeat("It goes on and on.\r\n", 15_000), name+"@box.example")
	if _, err := w.queue.Change(queue.Selector{Filter: queue.Filter{Recipient: name + "1@box.example"}}, queue.Hold, false); err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"from":"ann@client.example","to":"keyed@box.example","subject":"%s","text":"t"}`, name)
	req, err := http.NewRequest("POST", "http://"+w.listeners.Addresses(listen.HTTP)[0]+"/v1/messages", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range [][2]string{{"Authorization", "Bearer " + token}, {"Content-Type", "application/json"}, {"Idempotency-Key", name}} {
		req.Header.Set(field[0], field[1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
}

// provedSynced reports whether the newest segment of the queue ends with the record that all before it was synced.
func (w *world) provedSynced() bool {
	const line, kind, synced = 16, 12, 8 // docs/queue.md
	all, _ := filepath.Glob(filepath.Join(w.cfg.DataDir, "queue", "*.seg"))
	b, err := os.ReadFile(slices.Max(all))
	if err != nil {
		w.t.Fatal(err)
	}
	for at := len(b) / line * line; at > 0; {
		if at -= line; at+line <= len(b) && string(b[at:at+4]) == string(b[:4]) {
			return b[at+kind] == synced
		}
	}
	return false
}

// acmeFiles are those of an account and a certificate.
var acmeFiles = []string{"acme_account+key", "relay.example"}

func (w *world) acmeFiles() certificates.Cache {
	return certificates.Cache{Dir: w.cfg.ACME.Path, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
}

func (w *world) maildrop() maildrop.Dir { return maildrop.Dir(w.maildropDir()) }

// kindOf is the kind of a file in the data directory, "" for one that is made anew at each start.
func kindOf(path string) string {
	switch {
	case path == "relay.json", strings.HasSuffix(path, "lock"), strings.HasSuffix(path, ".sock"):
		return ""
	case strings.HasSuffix(path, "format"):
		return "format"
	}
	switch dir := filepath.Dir(path); dir {
	case ".":
		return path
	case "queue", "log", "audit":
		return dir + filepath.Ext(path)
	default:
		return dir
	}
}

func filesIn(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		all[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// writeFiles has a directory hold these files only.
func writeFiles(t *testing.T, dir string, all map[string][]byte) {
	t.Helper()
	for path := range filesIn(t, dir) {
		if _, there := all[path]; !there {
			os.Remove(filepath.Join(dir, path))
		}
	}
	for path, b := range all {
		full := filepath.Join(dir, path)
		if now, err := os.ReadFile(full); err == nil && string(now) == string(b) {
			continue
		}
		if err := os.WriteFile(full, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// answers starts the relay and stops it before it does anything, and returns what it knows from its files. An error is
// that of the start.
func (w *world) answers() (all map[string]string, err error) {
	t := w.t
	t.Helper()
	all = make(map[string]string)
	var log bytes.Buffer
	r, err := New(w.cfg, Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))})
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.Run(ctx) // what it can't write it has said
	}()
	put := func(name string, v any, err error) {
		if err != nil {
			all["alarm"] += name + ": " + err.Error() // who asks gets an error
			return
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	for _, a := range r.alarms.List() {
		all["alarm"] += a.Name + ": " + a.Reason + "\n"
	}
	put("queue", r.queue.Stats().Queued, nil)
	r.answersOfQueue(put)
	r.answersOfLog(put)
	status, _ := r.warm.Controller().Status("127.0.0.77")
	put("warm-up", []any{status.Stage, status.Plan, status.State, status.SentStage, status.Started, status.StageStarted}, nil)
	r.answersOfLists(put)
	r.answersOfDestinations(put)
	r.answersOfSecrets(put)
	for _, name := range acmeFiles {
		text, err := w.acmeFiles().Get(t.Context(), name)
		put(name, text, err)
	}
	w.answersOfMaildrop(put)
	put("formats", r.data.Formats().Status(), nil)
	put("rules", r.rules.List(), nil)
	put("weights", r.weights.In(r.policy.Load().Config.Pools[0])("old-1"), nil)
	var streams []any
	for _, s := range r.streams.List() {
		streams = append(streams, []any{s.Name, s.At.String(), s.State})
	}
	put("streams", streams, nil)
	put("history", r.history.Names(0), nil)
	actions, err := r.audit.Read(t.Context(), audit.Query{Limit: 1000})
	if actions.Damaged > 0 {
		err = errors.Join(err, fmt.Errorf("%d lines are damaged", actions.Damaged))
	}
	put("actions", actions.Actions, err)
	kept, err := r.reports.folder.List(0, 10)
	put("inbound", kept, err)
	for _, k := range kept {
		_, content, err := r.reports.folder.Get(k.ID)
		put("inbound content", content, err)
	}
	if r.queue.Stats().DamagedRecords > 0 { // what was found just now is an alarm within a minute, as the next
		all["alarm"] += "damage of the queue\n"
	}
	all["alarm"] += r.data.Damaged()
	all["log"] = log.String()
	return all, nil
}

func (r *Relay) answersOfQueue(put putAnswer) {
	var all []any
	withheld, err := r.queue.Export(queue.Selector{All: true}, func(x *queue.Exported) error {
		in, err := r.queue.Body(x.Message.ID)
		if err != nil {
			put("content", nil, err)
			return nil
		}
		defer in.Close()
		content, err := io.ReadAll(in)
		put("content of "+x.Message.ID.String(), content, err)
		all = append(all, x)
		return nil
	})
	if withheld.Unreadable > 0 { // its operator sees it; nothing of it is sent
		err = errors.Join(err, fmt.Errorf("%d recipients are unreadable", withheld.Unreadable))
	}
	put("mail", append(all, withheld), err)
	keys := make(map[string]any)
	err = r.queue.Keys(func(queue.Key) bool { return true }, func(k queue.Key, is *queue.Keyed) error {
		keys[fmt.Sprint(k)] = is
		return nil
	})
	put("idempotency keys", keys, err)
}

func (r *Relay) answersOfLog(put putAnswer) {
	var all, found []string
	ids := make(map[envelope.ID]bool)
	err := r.accounting.Read(context.Background(), accounting.Query{}, func(line []byte) error {
		all = append(all, string(line))
		if rec, err := accounting.Parse(line); err == nil && rec.ID != 0 {
			ids[rec.ID] = true
		}
		return nil
	}, nil)
	put("records", all, err)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		err := r.accounting.Read(context.Background(), accounting.Query{ID: id.String()}, func(line []byte) error {
			found = append(found, string(line))
			return nil
		}, nil)
		put("looked up", found, err)
	}
}

func (w *world) answersOfMaildrop(put putAnswer) {
	_, err := w.maildrop().Names(time.Now(), func(name string, _ int) {
		l, err := w.maildrop().Open(name)
		if err != nil {
			put("letter", nil, err)
			return
		}
		defer l.Close()
		text, err := io.ReadAll(l.Content())
		put("letter", []any{l.Envelope, text}, err)
	})
	put("letters", "listed", err)
}

type putAnswer func(name string, v any, err error)

func (r *Relay) answersOfLists(put putAnswer) {
	ctx := context.Background()
	list, _, _, err := r.suppression.Page(ctx, suppression.Query{}, suppression.Key{}, 1000)
	put("suppressions", list, err)
	var kept []bool
	for i := range 150 {
		_, yes := r.suppression.Keeps("acme", envelope.Address(fmt.Sprintf("r%d@box.example", i)))
		kept = append(kept, yes)
	}
	_, yes := r.suppression.Keeps("acme", "joe@box.example")
	put("suppressed", append(kept, yes), nil)
	counters := make(map[string][]byte)
	err = r.listed.Counters().Each(func(name string, value []byte) error { counters[name] = slices.Clone(value); return nil })
	put("counters", counters, err)
}

func (r *Relay) answersOfDestinations(put putAnswer) {
	values, err := r.destinations.Values(destdb.STSPolicies).Load()
	put("MTA-STS", values, err)
	var records []destdb.Record
	err = r.destinations.Load(func(some []destdb.Record) { records = append(records, some...) })
	put("destinations", records, err)
}

func (r *Relay) answersOfSecrets(put putAnswer) {
	put("return paths", r.returnPaths.Load().Make(returnpath.Bounce, returnpath.Token{Node: r.node, Message: 7, Day: time.Unix(1e9, 0)}), nil)
	put("unsubscribe links", r.unsubscribes.Links.Token(&suppression.Subscription{Tenant: "acme", Address: "joe@box.example", Sent: time.Unix(1e9, 0)}), nil)
	put("idempotency", r.repeats.Sum().Own(), nil)
	for _, name := range []string{"login-secret", "queue-token.key"} {
		text, err := os.ReadFile(filepath.Join(r.policy.Load().Config.DataDir, name))
		put(name, bytes.TrimSpace(text), err)
	}
	used, err := auth.ReadKeyUse(r.policy.Load().Config.KeysUsed())
	put("uses of keys", used, err)
}
