package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/certificates"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/legible"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
)

// Warnings says, a sentence each, what is well written in a configuration and will not work on this
// machine as it is now, or is of no use.
func Warnings(cfg *config.Config, now time.Time) []string {
	out := slices.Concat(cfg.Warnings(), unused(cfg), dropped(cfg), neverRetried(cfg), neverSent(cfg), cfg.Late(now),
		cfg.Unsigned(), usersWarnings(cfg), consoleWarnings(cfg), keysWarnings(cfg), unsubscribeWarnings(cfg),
		templateWarnings(cfg), certificateWarnings(cfg, now), tlsReportWarnings(cfg), asideWarnings(cfg),
		accountingWarnings(cfg), clusterWarnings(cfg))
	out = append(out, warmingWarnings(cfg)...)
	if taken := wiring.ShareDescriptors(wiring.FileLimit(), cfg).TakenFromDelivery(cfg); taken != "" {
		out = append(out, place("delivery", cfg.Delivery.Origin("max_connections"))+": "+taken+
			": lower max_connections of listeners, or raise the limit (LimitNOFILE= in the systemd unit, ulimit -n)")
	}
	missing := delivery.AbsentAddresses(cfg.LocalAddresses())
	for _, s := range cfg.Sources {
		if a, is := missing[s.Name]; is {
			out = append(out,
				fmt.Sprintf("%s: this machine does not have the address %s: mail takes other sources of the pool, or "+
					"waits", s.Origin("address"), a))
		}
	}
	return out
}

// unused finds the blocks that mail never gets to, since nothing names them.
func unused(cfg *config.Config) (out []string) {
	pooled, owned, submitted := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	byHeader, poolByHeader := false, false
	for _, l := range cfg.Listeners {
		submitted[l.Tenant] = true
		byHeader = byHeader || len(l.TenantHeaderFrom) > 0
		poolByHeader = poolByHeader || l.PoolHeader != ""
	}
	for _, tenant := range slices.Concat(usersTenants(cfg), keysTenants(cfg)) {
		submitted[tenant] = true
	}
	for _, t := range cfg.Tenants {
		owned[t.Pool] = true
		if !submitted[t.Name] && len(t.Networks) == 0 && !byHeader {
			out = append(out,
				fmt.Sprintf("tenant %q: no listener, user or API key names it, and it has no networks, so that no "+
					"mail is its own", t.Name))
		}
	}
	for _, d := range cfg.Domains {
		owned[d.Pool] = true
	}
	for _, d := range cfg.SenderDomainBlocks {
		owned[d.Pool] = true
	}
	for _, p := range cfg.Pools {
		for _, source := range p.Sources() {
			pooled[source] = true
		}
		if p.Name != config.DefaultPool && !owned[p.Name] && !poolByHeader {
			out = append(out,
				fmt.Sprintf("pool %q: no tenant, domain or sender's domain names it, so that no mail takes its sources",
					p.Name))
		}
	}
	for _, s := range cfg.Sources {
		if !pooled[s.Name] {
			out = append(out, fmt.Sprintf("source %q: no pool names it, so that no mail takes it", s.Name))
		}
	}
	return out
}

// warmingWarnings returns which pools can't send more than plans allow, and which plans advance whatever was sent.
func warmingWarnings(cfg *config.Config) (out []string) {
	for _, p := range cfg.Pools {
		warm := func(d *config.Dedicated) bool { return d.Plan == "" }
		if len(p.Shared) == 0 && !p.Set("overflow") && !slices.ContainsFunc(p.Dedicated, warm) {
			out = append(out,
				fmt.Sprintf("%s (%s:%d): all sources of the pool warm up, so that mail beyond their plans waits until "+
					"it expires: add a shared source, or write overflow = \"hold\"",
					p.Title(), p.Where("overflow").Filename, p.Line()))
		}
	}
	for _, p := range cfg.Plans {
		if p.Health.MinFill == 0 {
			out = append(out,
				p.Origin("health.min_fill")+": min_fill = 0 advances a stage however little was sent on its day, and "+
					"the caps outgrow what providers have seen: 0.5 is the default")
		}
	}
	return out
}

// dropped finds a route for tests that takes the mail to everybody.
func dropped(cfg *config.Config) (out []string) {
	for _, d := range cfg.Domains {
		if d.Pattern == "*" && len(d.Route) > 0 && d.Route[0].Answer == "discard" {
			out = append(out, place(`domain "*"`, d.Origin("route"))+
				`: route = ["discard"] accepts mail and drops it: for tests only`)
		}
	}
	return out
}

// neverRetried finds where mail is given up before it is tried a second time.
func neverRetried(cfg *config.Config) (out []string) {
	look := func(title, origin string, t *config.Traffic) {
		first := t.RetryInterval.First
		if list := t.RetryInterval.List; len(list) > 0 {
			first = list[0]
		}
		if first > t.MaxAge {
			out = append(out,
				fmt.Sprintf("%s: max_age (%s) is shorter than retry_interval (%s): mail is given up after one attempt",
					place(title, origin), api.Age(t.MaxAge), api.Age(first)))
		}
	}
	look("defaults", cfg.Defaults.Origin("max_age"), &cfg.Defaults.Traffic)
	for _, p := range cfg.Providers {
		if p.Sets("max_age") || p.Sets("retry_interval") {
			look(fmt.Sprintf("provider %q", p.Name), p.Origin("max_age"), cfg.Traffic("", p.Name))
		}
	}
	for _, d := range cfg.Domains {
		if d.Sets("max_age") || d.Sets("retry_interval") {
			look(fmt.Sprintf("domain %q", d.Pattern), d.Origin("max_age"), cfg.Traffic(string(d.Pattern), ""))
		}
	}
	return out
}

// neverSent finds mail that can be given up while it waits for its window, or its campaign's pace.
func neverSent(cfg *config.Config) (out []string) {
	for _, m := range cfg.Mails {
		most := cfg.Defaults.Traffic.MaxAge
		if m.Set("max_age") {
			most = min(most, m.MaxAge)
		}
		rate := gcra.Rate{Events: m.Pace.Count, Per: m.Pace.Per}
		for _, wait := range []struct {
			setting, what string
			longest       time.Duration
		}{{"window", "the longest time outside of the window", m.Window.Longest()},
			{"pace", "the time between two recipients", rate.Interval()}} {
			if wait.longest > most {
				out = append(out,
					fmt.Sprintf("%s: %s (%s) is longer than max_age (%s): mail is given up that was never tried",
						place(m.Title(), m.Origin(wait.setting)), wait.what, api.Age(wait.longest), api.Age(most)))
			}
		}
	}
	return out
}

// certificateWarnings returns which files of certificates have expired, or will soon.
func certificateWarnings(cfg *config.Config, now time.Time) (out []string) {
	for _, f := range cfg.PEMFiles() {
		read, remedy := certificates.End, "renew it"
		switch f.Kind {
		case config.Authorities:
			read, remedy = certificates.LastAuthority, "replace it by valid authorities"
		case config.PrivateKey:
			continue
		}
		end, err := read(f.Path)
		if err != nil {
			continue // a file that can't be read is an error of the configuration
		}
		if f.Live {
			remedy += "; the relay reads the new file by itself"
		} else {
			remedy += ", then restart the relay"
		}
		if why := certificates.Ending(end, now); why != "" {
			out = append(out, fmt.Sprintf("%s: %s %s: %s", place(f.Title, f.Origin), f.Path, why, remedy))
		}
	}
	return out
}

// unsubscribeWarnings returns which tenants have links that nobody answers here.
func unsubscribeWarnings(cfg *config.Config) (out []string) {
	for _, t := range cfg.Tenants {
		answers := func(a *config.API) bool { return len(a.Tenants) == 0 || slices.Contains(a.Tenants, t.Name) }
		if t.Unsubscribe != "" && !slices.ContainsFunc(cfg.APIs, answers) {
			out = append(out,
				fmt.Sprintf("%s: no api block answers the unsubscribe links of tenant %q: they work only if another "+
					"relay of the cluster, or with the same unsubscribe-secret, does", t.Origin("unsubscribe"), t.Name))
		}
	}
	return out
}

// clusterWarnings returns what the nodes of a cluster can't share.
func clusterWarnings(cfg *config.Config) []string {
	c := &cfg.Cluster
	if !c.On() || c.SecretsKey != "" {
		return nil
	}
	return []string{place("cluster", c.Origin("database")) + ": without secrets_key the other nodes refuse this " +
		"node's unsubscribe links, API keys and reports about its mail, and this node theirs: docs/cluster.md"}
}

// tlsReportWarnings returns what keeps receivers from believing TLS reports by mail.
func tlsReportWarnings(cfg *config.Config) []string {
	t := cfg.TLSReports
	if !t.On() {
		return nil
	}
	_, domain, _ := strings.Cut(t.From, "@")
	if len(cfg.DKIMFor("", domain)) > 0 {
		return nil
	}
	return []string{
		fmt.Sprintf("%s: no dkim block signs mail from %s, and receivers refuse TLS reports that are not signed (RFC "+
			"8460, 3)", place("tls_reports", t.Origin("from")), domain)}
}

// asideWarnings are those of damaged files that were set aside.
func asideWarnings(cfg *config.Config) (out []string) {
	names, _ := datadir.Aside(cfg, datadir.Places(cfg)) // who may not read the folder checks a draft
	for _, name := range names {
		out = append(out,
			name+": it was damaged, and the relay has set it aside: check the disk and its memory, then move the "+
				"file away")
	}
	return out
}

// accountingWarnings adds up what the files of the accounting log take at the pace of those that are there.
func accountingWarnings(cfg *config.Config) []string {
	const day = 24 * time.Hour
	a := &cfg.Accounting
	octets, over := accounting.Pace(a.Path)
	if !a.Enabled || a.Keep == 0 || a.KeepSize == 0 || over < day {
		return nil
	}
	of := func(d time.Duration) int64 { return int64(float64(octets) * float64(d) / float64(over)) }
	if of(a.Keep) <= int64(a.KeepSize) {
		return nil
	}
	after := time.Duration(float64(over) * float64(a.KeepSize) / float64(octets))
	return []string{fmt.Sprintf(
		"%s: the accounting log grows by %s a day, so that its oldest files are deleted after %s, before keep = %s: "+
			"raise keep_size to %s, or lower keep", place("accounting", a.Origin("keep_size")), legible.Size(of(day)),
		api.Age(after.Round(time.Hour)), api.Age(a.Keep), legible.Size(of(a.Keep)*5/4))}
}
