package tlsrpt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/delivery/tlspolicy"
)

const (
	checkEvery = time.Minute // what was counted is saved, and what is due is sent
	atOnce     = 8           // reports under way
	dnsTimeout = 10 * time.Second

	spread     = 23 * time.Hour // over which the reports about a day are sent
	firstRetry = 10 * time.Minute
	lastRetry  = 4 * time.Hour
	giveUp     = 24 * time.Hour // after the first try (RFC 8460, 5.5)
	keep       = 7 * 24 * time.Hour
)

// Resolver is what is wanted of the DNS.
type Resolver interface {
	// TXT gives the TXT records of a name, the strings of each joined; none and no error when the DNS
	// says that there are none.
	TXT(ctx context.Context, name string) ([]string, error)
}

// Store keeps days over restarts. It may lose some, or all.
type Store interface {
	Load() (map[string][]byte, error)
	// Save keeps values under their names, in place of those before; nil removes.
	Save(values map[string][]byte) error
}

// Config is what a Reporter needs to know.
type Config struct {
	Organization string // that sends the reports
	Contact      string // where its people can be asked
	Submitter    string // the relay's host name
	From         string // the address of reports by mail

	Resolver Resolver
	// MaxAge gives the max_age of a domain's MTA-STS policy; 0 when it is not known.
	MaxAge    func(domain string) time.Duration
	Store     Store             // nil: nothing is kept over restarts
	Mail      func(Mail) error  // queues a report
	Transport http.RoundTripper // see NewTransport
	Now       func() time.Time  // nil: time.Now
	Log       *slog.Logger      // nil: none
}

// Reporter counts, and sends reports. It is safe for concurrent use.
type Reporter struct {
	cfg Config

	mu      sync.Mutex // guards the rest
	days    map[string]*Day
	domains map[string]int // of each date
	dirty   map[string]bool
	ignored int64 // results of domains beyond maxDomains
	stats   Stats
}

// Stats counts since the start.
type Stats struct {
	Results int64 // of connection attempts, and of look-ups of policies that failed
	Sent    int64 // reports, for each destination
	Failed  int64 // tries to send one
}

// Stats gives the counts.
func (r *Reporter) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// New makes a reporter with what was counted before.
func New(cfg Config) (*Reporter, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.MaxAge == nil {
		cfg.MaxAge = func(string) time.Duration { return 0 }
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	r := &Reporter{cfg: cfg, days: make(map[string]*Day), domains: make(map[string]int), dirty: make(map[string]bool)}
	if cfg.Store == nil {
		return r, nil
	}
	kept, err := cfg.Store.Load()
	if err != nil {
		return nil, fmt.Errorf("reading TLS reports: %w", err)
	}
	for name, text := range kept {
		d := new(Day)
		if json.Unmarshal(text, d) != nil || d.name() != name {
			r.dirty[name] = true // removed at the next save
			continue
		}
		r.days[name] = d
		r.domains[d.Date]++
	}
	return r, nil
}

func (d *Day) name() string { return d.Date + "/" + d.Domain }

// Record implements tlspolicy.Recorder.
func (r *Reporter) Record(result tlspolicy.Result) {
	is := Day{Date: result.Time.UTC().Format(dayLayout), Domain: result.Domain}
	if is.Domain == "" || strings.HasPrefix(is.Domain, "[") {
		return // literals have no policy
	}
	name := is.name()
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.days[name]
	if d == nil {
		if r.domains[is.Date] >= maxDomains {
			r.ignored++
			return
		}
		d = &is
		r.days[name] = d
		r.domains[d.Date]++
	}
	if p := d.add(&result); p.Mode != "" && p.MaxAge == 0 {
		p.MaxAge = int64(r.cfg.MaxAge(d.Domain) / time.Second)
	}
	r.stats.Results++
	r.dirty[name] = true
}

// Days gives what is known of a domain's days, or of all domains' when it is "", in order: at most limit
// of them, those behind the one that after names. next names the last of them when there are more.
func (r *Reporter) Days(domain, after string, limit int) (days []Day, next string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for name, d := range r.days {
		if (domain == "" || d.Domain == domain) && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > limit {
		names = names[:limit]
		next = names[limit-1]
	}
	for _, name := range names {
		days = append(days, r.days[name].clone())
	}
	return days, next
}

// Run saves what is counted and sends reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	if r == nil {
		return
	}
	again := time.NewTicker(checkEvery)
	defer again.Stop()
	var sending sync.WaitGroup // web servers can take long, which keeps nothing from being saved
	defer sending.Wait()
	idle := make(chan struct{}, 1)
	idle <- struct{}{}
	for {
		select {
		case <-ctx.Done():
			r.save()
			return
		case <-again.C:
		}
		r.forget()
		r.save()
		select {
		case <-idle:
			sending.Go(func() {
				r.SendDue(ctx)
				idle <- struct{}{}
			})
		default:
		}
	}
}

// save writes down what has changed.
func (r *Reporter) save() {
	if r.cfg.Store == nil {
		return
	}
	r.mu.Lock()
	changed := make(map[string][]byte, len(r.dirty))
	for name := range r.dirty {
		changed[name] = nil
		if d := r.days[name]; d != nil {
			changed[name], _ = json.Marshal(d) // has nothing that can't be written
		}
	}
	clear(r.dirty)
	ignored := r.ignored
	r.ignored = 0
	r.mu.Unlock()
	if ignored > 0 {
		r.cfg.Log.Warn("TLS reports: more domains in a day than are counted", "domains", maxDomains, "results", ignored)
	}
	if len(changed) == 0 {
		return
	}
	if err := r.cfg.Store.Save(changed); err != nil {
		r.cfg.Log.Warn("TLS reports: what was counted can't be saved, and would be lost at a restart", "error", err)
		r.mu.Lock()
		for name := range changed {
			r.dirty[name] = true
		}
		r.mu.Unlock()
	}
}

// forget drops days that are over for long, and at once those about which nobody wants to hear.
func (r *Reporter) forget() {
	now := r.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, d := range r.days {
		if now.Sub(d.begin()) > keep || d.Unwanted {
			delete(r.days, name)
			if r.domains[d.Date]--; r.domains[d.Date] <= 0 {
				delete(r.domains, d.Date)
			}
			r.dirty[name] = true
		}
	}
}

// firstTry is when the report about a day is sent: at a time of the next day that is a domain's own, so
// that not all come at midnight (RFC 8460, 4.1).
func (r *Reporter) firstTry(d *Day) time.Time {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s %s", r.cfg.Submitter, d.Domain, d.Date)
	return d.begin().Add(24*time.Hour + time.Duration(h.Sum64()%uint64(spread)))
}

// due lists the days whose time has come.
func (r *Reporter) due() (due []Day) {
	now := r.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.days {
		at := d.Next
		if at.IsZero() {
			at = r.firstTry(d)
		}
		if !d.Done && !now.Before(at) {
			due = append(due, d.clone())
		}
	}
	slices.SortFunc(due, compareDays)
	return due
}

// SendDue sends what is due now, and returns when all of it has been tried.
func (r *Reporter) SendDue(ctx context.Context) {
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, d := range r.due() {
		if ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			r.try(ctx, &d)
			if ctx.Err() == nil { // else it is tried again after the restart
				r.put(&d)
			}
		})
	}
	all.Wait()
	r.save()
}

// put takes over what became of a day's reports. Nothing was counted meanwhile: the day is over.
func (r *Reporter) put(d *Day) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.days[d.name()] != nil {
		r.days[d.name()] = d
		r.dirty[d.name()] = true
	}
}

// try sends a day's reports as far as they have not been sent.
func (r *Reporter) try(ctx context.Context, d *Day) {
	now := r.cfg.Now()
	if len(d.Reports) == 0 {
		r.discover(ctx, d)
	}
	if d.Unwanted {
		d.Done = true
		return
	}
	report, err := r.cfg.report(d)
	if err != nil { // never: it has nothing that can't be written
		d.LookupError, d.Done = err.Error(), true
		return
	}
	done := d.LookupError == ""
	for i := range d.Reports {
		to := &d.Reports[i]
		if to.Sent {
			continue
		}
		to.At, to.Error, to.Sent = now, "", true
		if err := r.deliver(ctx, d, to.To, report); err != nil {
			to.Error, to.Sent, done = err.Error(), false, false
		}
		r.count(to.Sent)
		r.cfg.Log.Info("TLS report", "domain", d.Domain, "day", d.Date, "to", to.To, "sent", to.Sent, "error", to.Error)
	}
	if d.Tries++; d.Tries == 1 {
		d.Began = now
	}
	d.Next = now.Add(min(firstRetry<<min(d.Tries-1, 10), lastRetry))
	if done || d.Next.Sub(d.Began) > giveUp {
		d.Next, d.Done = time.Time{}, true
	}
}

func (r *Reporter) count(sent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sent {
		r.stats.Sent++
	} else {
		r.stats.Failed++
	}
}

// discover finds out where the domain wants its reports.
func (r *Reporter) discover(ctx context.Context, d *Day) {
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	d.LookupError = ""
	texts, err := r.cfg.Resolver.TXT(ctx, "_smtp._tls."+d.Domain)
	if err != nil {
		d.LookupError = err.Error()
		return
	}
	destinations, err := ParseRecord(texts)
	if err != nil {
		d.Unwanted = true
		if !errors.Is(err, ErrNoRecord) {
			r.cfg.Log.Info("TLS reports: nobody gets the report", "domain", d.Domain, "day", d.Date, "error", err)
		}
		return
	}
	for _, to := range destinations {
		d.Reports = append(d.Reports, Delivery{To: to})
	}
}

// deliver hands a report over.
func (r *Reporter) deliver(ctx context.Context, d *Day, to string, report []byte) error {
	if address, ok := strings.CutPrefix(to, "mailto:"); ok {
		return r.cfg.Mail(r.cfg.mail(d, address, report, r.cfg.Now()))
	}
	return r.cfg.post(ctx, to, report)
}
