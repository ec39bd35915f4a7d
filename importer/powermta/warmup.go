package powermta

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/mta/importer"
)

// providerOf are the presets that the large providers' domains belong to.
var providerOf = map[string]string{
	"gmail.com": "google", "googlemail.com": "google",
	"hotmail.com": "microsoft", "outlook.com": "microsoft", "live.com": "microsoft", "msn.com": "microsoft",
	"yahoo.com": "yahoo", "aol.com": "yahoo", "ymail.com": "yahoo",
	"icloud.com": "apple", "me.com": "apple", "mac.com": "apple",
	"comcast.net": "comcast", "gmx.de": "gmx", "gmx.net": "gmx", "web.de": "gmx", "mail.ru": "mail.ru",
	"orange.fr": "orange", "wanadoo.fr": "orange",
}

// exchangers are what the names of their exchangers end in.
var exchangers = map[string]string{
	"google": "google.com", "microsoft": "protection.outlook.com", "yahoo": "yahoodns.net", "apple": "icloud.com",
	"comcast": "comcast.net",
	"gmx":     "gmx.net", "mail.ru": "mail.ru", "orange": "orange.fr",
}

// provider is whose caps those for a domain are, "" for nobody's.
func (c *conversion) provider(domain string) string {
	if c.rollups[domain] != nil {
		return domain
	}
	preset := providerOf[domain]
	for _, name := range slices.Sorted(maps.Keys(c.rollups)) {
		for _, mx := range c.rollups[name] {
			if preset != "" && strings.HasSuffix(mx, exchangers[preset]) {
				return name // which has taken the exchangers over
			}
		}
	}
	return preset
}

// readCold reads the list of days of max-cold-virtual-mta-msg.
func readCold(_ *conversion, q *queue, d *directive, v *vmta) error {
	var daily []int
	for _, text := range names(d.value) {
		r, _, err := d.rate(text)
		switch {
		case err != nil:
			return err
		case r.count == 0:
			daily = append(daily, 0)
		case r.per != 24*time.Hour:
			return d.fault("%s: %s is not a number per day: write it as 50/day", d.name, short(text))
		default:
			daily = append(daily, int(r.count))
		}
	}
	if len(daily) == 0 {
		return d.fault("%s has no value: write numbers such as 50/day", d.name)
	}
	if v == nil || v.cold == "" {
		q.block.Lost(d.Origin, "no cold-virtual-mta belongs to it", false)
		return nil
	}
	if strings.Contains(strings.ToLower(d.value), "unlimited") {
		q.block.Noted(d.Origin, "a stage has caps: finish = true in the plan ends them after its last stage")
	}
	v.days = append(v.days, coldDays{d, q.domain, daily})
	return nil
}

// writePlans makes a warm-up plan of each cold virtual MTA, and gives the plans by source.
func (c *conversion) writePlans() map[string]string {
	plans := make(map[string]string)
	for _, v := range c.vmtas {
		cold := c.vmta(v.cold)
		if cold == nil || len(v.days) == 0 {
			if cold != nil {
				c.draft.Inner("source", v.sources[0]).Lost(v.Origin,
					"its cold virtual MTA has no max-cold-virtual-mta-msg, and so no mail", false)
			}
			continue
		}
		if reason := c.unfit(cold); reason != "" {
			for _, days := range v.days {
				c.draft.Inner("source", cold.sources[0]).Lost(days.Origin, reason, true)
			}
			continue
		}
		if name := plans[cold.sources[0]]; name != "" {
			for _, days := range v.days {
				c.draft.Inner("plan", name).Lost(days.Origin,
					"another virtual MTA has the same cold one: the first list of days is its plan", true)
			}
			continue
		}
		if c.writePlan(v, cold) {
			for _, s := range cold.sources {
				plans[s] = cold.name
			}
		}
	}
	return plans
}

// unfit returns why a virtual MTA can't warm up under a plan, "" if it can.
func (c *conversion) unfit(cold *vmta) string {
	for i, a := range cold.at {
		if !a.IsValid() {
			return "a warm-up plan needs a source with an address"
		}
		for _, other := range c.vmtas {
			for j, b := range other.at {
				if (other != cold || i != j) && (a == b || !b.IsValid()) {
					return fmt.Sprintf(
						"a warm-up plan counts all mail from its address, and virtual MTA %s may have the address of "+
							"%s, too", other.name, cold.name)
				}
			}
		}
	}
	return ""
}

// writePlan makes the plan: a stage for each day. False: it would send nothing.
func (c *conversion) writePlan(v, cold *vmta) bool {
	days := 0
	for _, d := range v.days {
		days = max(days, len(d.daily))
	}
	var stages []map[string]int // by provider, "" for all others
	for day := range days {
		stage := make(map[string]int)
		for _, d := range v.days {
			p := c.provider(d.domain)
			n := d.daily[min(day, len(d.daily)-1)]
			if p == "" && d.domain != "*" {
				continue
			}
			stage[p] = max(stage[p], n)
		}
		stages = append(stages, stage)
	}
	total := func(stage map[string]int) (n int) {
		for _, k := range stage {
			n += k
		}
		return min(n, 1<<30)
	}
	stages = slices.DeleteFunc(stages, func(s map[string]int) bool { return total(s) == 0 })
	if len(stages) == 0 {
		c.draft.Inner("source", cold.sources[0]).Lost(v.days[0].Origin,
			"a plan that lets nothing through, or only to single domains, is not a warm-up", true)
		return false
	}
	b := c.draft.Inner("plan", cold.name)
	for _, d := range v.days {
		b.From(d.Origin)
		switch {
		case d.domain != "*" && c.provider(d.domain) == "":
			b.Lost(d.Origin,
				fmt.Sprintf("a plan has caps for providers: %s belongs to none that mta knows; write a provider "+
					"block with its exchangers, and caps for it", d.domain), true)
		case d.domain == "*":
			b.Noted(d.Origin,
				"the number of each domain is that of all domains together here; every hour takes up to an eighth of "+
					"a day's; the list's last day is the last stage")
		default:
			b.Noted(d.Origin, "the cap of the whole provider, in each stage")
		}
	}
	// PowerMTA's lists end with the last number; the plan does the same, and doesn't end the caps.
	b.Set("finish", false, importer.Origin{})
	last := 0
	for i, stage := range stages {
		if i > 0 && total(stage) < last || i > 0 && shrinks(stages[i-1], stage) {
			b.Set("shrinking", true, importer.Origin{})
		}
		last = total(stage)
	}
	for _, stage := range stages {
		s := b.Add("stage")
		setCaps(s, total(stage))
		for _, p := range slices.Sorted(maps.Keys(stage)) {
			if p != "" && stage[p] > 0 && stage[p] < total(stage) {
				setCaps(s.Inner("provider", p), stage[p])
			}
		}
	}
	return true
}

func shrinks(before, after map[string]int) bool {
	for p, n := range before {
		if after[p] < n {
			return true
		}
	}
	return false
}

func setCaps(b *importer.Block, daily int) {
	b.Set("hourly", max(1, (daily+7)/8), importer.Origin{})
	b.Set("daily", daily, importer.Origin{})
}
