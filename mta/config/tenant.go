package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"example.org/mta/internal/settings"
)

// tenantNetworks finds the tenant of an address in as many steps as there are lengths of prefixes.
type tenantNetworks struct {
	bits   []int // the lengths that there are, the longest first
	tenant map[netip.Prefix]string
}

func indexNetworks(tenants []*Tenant) tenantNetworks {
	n := tenantNetworks{tenant: make(map[netip.Prefix]string)}
	for _, t := range tenants {
		for _, p := range t.Networks {
			n.tenant[p] = t.Name
			if !slices.Contains(n.bits, p.Bits()) {
				n.bits = append(n.bits, p.Bits())
			}
		}
	}
	slices.Sort(n.bits)
	slices.Reverse(n.bits)
	return n
}

// TenantAt gives the tenant whose network an address is in, the smallest network first; "" when it is in
// none.
func (c *Config) TenantAt(a netip.Addr) string {
	a = a.Unmap()
	for _, bits := range c.resolved.networks.bits {
		if p, err := a.Prefix(bits); err == nil {
			if name, ok := c.resolved.networks.tenant[p]; ok {
				return name
			}
		}
	}
	return ""
}

func (k checker) tenants() {
	k.mails()
	whose := make(map[netip.Prefix]*Tenant)
	for _, t := range k.Tenants {
		if k.Pool(t.Pool) == nil {
			k.reference(&t.block, "pool", "pool", t.Pool, k.Names("pool"))
		}
		k.quotas(t)
		k.unsubscribe(t)
		for _, p := range t.Networks {
			if other := whose[p]; other != nil && other != t {
				k.problem(&t.block, "networks", "assign it to one of them",
					"networks: %s already belongs to tenant %q", p, other.Name)
			}
			whose[p] = t
		}
	}
}

// unsubscribe looks at the link that recipients of the tenant's mail get.
func (k checker) unsubscribe(t *Tenant) {
	if t.Unsubscribe == "" {
		return
	}
	const remedy = "write the address of an api block as recipients reach it, such as " +
		`"https://mail.acme.example/unsubscribe"`
	u, err := url.Parse(t.Unsubscribe)
	switch {
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil:
		k.problem(&t.block, "unsubscribe", remedy, "unsubscribe of tenant %q must be an https URL (RFC 8058)", t.Name)
	case u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(u.Path, "/") ||
		strings.ContainsFunc(t.Unsubscribe, notInURL):
		k.problem(&t.block, "unsubscribe", remedy,
			"unsubscribe of tenant %q: a slash and a token are appended to the URL, so it can't end in a slash or "+
				"have a query", t.Name)
	case len(t.Unsubscribe) > maxUnsubscribe:
		k.problem(&t.block, "unsubscribe", remedy, "unsubscribe of tenant %q has more than %d octets",
			t.Name, maxUnsubscribe)
	case k.Suppression.Mode == "off":
		k.problem(&t.block, "unsubscribe", `write suppression { mode = "refuse" }`,
			"unsubscribe of tenant %q: recipients who unsubscribe would still get mail, since suppression is off",
			t.Name)
	}
}

// maxUnsubscribe bounds the URL: with the token it is one word of a header line of 998 octets.
const maxUnsubscribe = 200

func notInURL(r rune) bool { return r <= ' ' || r >= 0x7f || r == '<' || r == '>' || r == '"' }

// lastTier is the tier that over_quota = "lower" moves mail to.
const lastTier = 5

// quotas looks for limits that can't work as they are written.
func (k checker) quotas(t *Tenant) {
	if t.OverQuota == "lower" {
		switch {
		case !t.Limited():
			k.problem(&t.block, "over_quota", "also write max_submission_rate, max_queued_messages or max_queued_bytes",
				"over_quota of tenant %q has no effect: there is no limit to be over", t.Name)
		case t.Tier == lastTier:
			k.problem(&t.block, "over_quota", `write "refuse", or give the tenant a better tier`,
				"over_quota of tenant %q has no effect: its mail is in the last tier already", t.Name)
		}
	}
	largest := Size(0)
	for _, l := range k.Listeners {
		largest = max(largest, l.MaxMessageSize)
	}
	if t.MaxQueuedBytes > 0 && t.MaxQueuedBytes < largest && t.OverQuota == "refuse" {
		k.problem(&t.block, "max_queued_bytes",
			fmt.Sprintf("write %q or more, or lower max_message_size of the listeners", largest),
			"max_queued_bytes of tenant %q is smaller than max_message_size (%s): messages between the two would be "+
				"refused for ever", t.Name, largest)
	}
}

// mailSettings are the settings of a mail block.
var mailSettings = []string{"max_age", "retry_interval", "delay_warning", "window", "pace"}

// mails looks at blocks that do nothing, or end mail before it is tried again.
func (k checker) mails() {
	for _, m := range k.Mails {
		first := m.RetryInterval.First
		if len(m.RetryInterval.List) > 0 {
			first = m.RetryInterval.List[0]
		}
		switch {
		case len(m.Match) == 0:
			k.problem(&m.block, "",
				`write, for example, match { campaign = ["otp"] }, or for all mail match { tier = [0, 1, 2, 3, 4, 5] }`,
				"%s has no match, and so no effect", m.Title())
		case !slices.ContainsFunc(mailSettings, m.Set):
			k.problem(&m.block, "", "write one of them: "+strings.Join(mailSettings, ", "),
				"%s has no setting, and so no effect", m.Title())
		case m.Set("max_age") && first > m.MaxAge:
			k.problem(&m.block, "retry_interval", "make max_age longer",
				"retry_interval: %s is longer than max_age, %s: mail would expire after one attempt",
				settings.FormatDuration(first), settings.FormatDuration(m.MaxAge))
		}
	}
}
