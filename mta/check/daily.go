package check

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"example.org/mta/internal/dnscheck"
	"example.org/mta/mta/config"
	"example.org/mta/router/resolver"
)

// Daily has the relay find out by itself what receivers will think of its mail.
type Daily struct {
	// Found gets what a check has found. Nil: nobody does.
	Found   func([]dnscheck.Finding)
	enabled func() bool
	often   func() bool // it checks each hour; nil: never
	check   func(context.Context) ([]dnscheck.Finding, error)
	log     *slog.Logger

	mu    sync.Mutex // guards what the last check found
	found []dnscheck.Finding
	at    time.Time // zero: there was none, or checks are off
}

// NewDaily checks by the configuration in force, unless that has switched it off. Run does it.
func NewDaily(inForce func() *config.Config, r *resolver.Resolver, now func() time.Time, log *slog.Logger) *Daily {
	return &Daily{
		enabled: func() bool { return inForce().Checks.Daily },
		often:   func() bool { return inForce().Checks.Listed == "pause" },
		check: func(ctx context.Context) ([]dnscheck.Finding, error) {
			return dnsBy(ctx, inForce(), dnsRecords{r}, now(), DNSQuestion{})
		},
		log: log,
	}
}

const (
	// firstCheck is how long after its start the relay checks: restarts in a row, and the rush of a start,
	// are over then.
	firstCheck = 10 * time.Minute
	// checkAgain is how often it looks whether it is time; what failed is checked anew as often.
	checkAgain = time.Hour
	checkEvery = 24 * time.Hour
)

// Run checks until ctx ends.
func (d *Daily) Run(ctx context.Context) {
	next := time.NewTimer(firstCheck)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-next.C:
			d.look(ctx, now)
			next.Reset(checkAgain)
		}
	}
}

// look checks if it is time to.
func (d *Daily) look(ctx context.Context, now time.Time) {
	d.mu.Lock()
	before, at := d.found, d.at
	d.mu.Unlock()
	if !d.enabled() {
		d.keep(nil, time.Time{})
		return
	}
	often := d.often != nil && d.often()
	if !often && !at.IsZero() && now.Sub(at) < checkEvery-checkAgain/2 && dnscheck.Count(before, dnscheck.Failed) == 0 {
		return
	}
	found, err := d.check(ctx)
	if ctx.Err() != nil {
		return // what was cut off says nothing
	}
	if err != nil {
		d.log.Error("sources and sender's domains can't be checked in the DNS", "error", err)
		return
	}
	found = stillFailed(before, found)
	d.keep(found, now)
	if d.Found != nil {
		d.Found(found)
	}
}

// stillFailed takes what failed before and was not answered now as failed still: a name server that is
// silent has mended nothing.
func stillFailed(before, found []dnscheck.Finding) []dnscheck.Finding {
	for i := range found {
		if found[i].Result != dnscheck.Unknown {
			continue
		}
		for _, b := range before {
			if b.Result == dnscheck.Failed && b.Check == found[i].Check && b.Source == found[i].Source &&
				b.Address == found[i].Address && b.Domain == found[i].Domain {
				found[i] = b
				break
			}
		}
	}
	return found
}

func (d *Daily) keep(found []dnscheck.Finding, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found, d.at = found, at
}

// Last gives the findings of the last check, and its time.
func (d *Daily) Last() ([]dnscheck.Finding, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.found), d.at
}

// Trouble gives what the last check found to fail, "" when nothing did.
func (d *Daily) Trouble() string {
	found, _ := d.Last()
	n := dnscheck.Count(found, dnscheck.Failed)
	if n == 0 {
		return ""
	}
	i := slices.IndexFunc(found, func(f dnscheck.Finding) bool { return f.Result == dnscheck.Failed })
	if n == 1 {
		return found[i].Text + "; 'mta check --dns' shows the remedy"
	}
	return fmt.Sprintf("%s, and %d more; 'mta check --dns' shows all, with remedies", found[i].Text, n-1)
}
