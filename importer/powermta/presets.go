package powermta

import (
	"maps"
	"slices"
	"time"
)

// preset is what mta limits at a large provider by itself. It takes precedence over defaults, and so over what
// <domain *> says.
type preset struct {
	connections, deliveries int   // of each source, and of each connection
	perMinute               int64 // connections of each source
	mx                      []string
}

// presets are those of mta/config/presets.hcl.
var presets = map[string]preset{
	"google":     {5, 50, 100, []string{"*.google.com", "*.googlemail.com"}},
	"microsoft":  {5, 50, 100, []string{"*.protection.outlook.com", "*.mx.microsoft", "*.protection.office365.us"}},
	"yahoo":      {10, 20, 100, []string{"*.yahoodns.net"}},
	"apple":      {10, 5, 100, []string{"*.icloud.com"}},
	"comcast":    {10, 500, 100, []string{"*.comcast.net"}},
	"gmx":        {5, 100, 100, []string{"*.gmx.net", "*.web.de", "*.mail.com"}},
	"mail.ru":    {5, 50, 100, []string{"*.mail.ru"}},
	"orange":     {3, 100, 60, []string{"*.orange.fr", "*.wanadoo.fr"}},
	"mimecast":   {10, 100, 100, []string{"*.mimecast.com", "*.mimecast.co.za", "*.mimecast-offshore.com"}},
	"proofpoint": {5, 50, 100, []string{"*.pphosted.com", "*.ppe-hosted.com"}},
}

// inForce reports whether a preset has exchangers that no mx-rollup-list gives to another provider.
func (c *conversion) inForce(name string) bool {
	taken := slices.Concat(slices.Collect(maps.Values(c.rollups))...)
	return c.rollups[name] != nil || slices.ContainsFunc(presets[name].mx, func(mx string) bool {
		return !slices.Contains(taken, mx)
	})
}

// most is the preset's limit in the measure of said.strict, 0 for none.
func (p preset) most(setting string) float64 {
	switch setting {
	case "connection_limit_per_source":
		return float64(p.connections)
	case "max_deliveries_per_connection":
		return float64(p.deliveries)
	case "max_connection_rate_per_source":
		return rate{p.perMinute, time.Minute}.perDay()
	}
	return 0
}

// overPresets gives a limit of <domain *> to the providers whose preset is higher. strict is the limit, and value how
// it is written.
func (c *conversion) overPresets(q *queue, setting string, strict float64, value any, s said) {
	if q.domain != "*" {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(presets)) {
		if presets[name].most(setting) <= strict || !c.inForce(name) || c.saidOf(name, setting) {
			continue
		}
		if c.draft.Find("provider", name) == nil {
			c.draft.Inner("provider", name).Comment("<domain *> is stricter than the preset.")
		}
		c.draft.Inner("provider", name).Set(setting, value, s.Origin)
	}
}

// saidOf reports whether the provider that a mx-rollup-list names has a setting.
func (c *conversion) saidOf(rollup, setting string) bool {
	return slices.ContainsFunc(c.order, func(q *queue) bool {
		return c.rollups[rollup] != nil && q.domain == rollup && len(q.said[setting]) > 0
	})
}

// withRollup adds what is said of the provider whose exchangers take a domain's mail: PowerMTA puts it into that queue,
// whatever the scope of the domain says, and a block domain takes precedence over its provider.
func (c *conversion) withRollup(q *queue, setting string, all []said) []said {
	name := c.provider(q.domain)
	if name == q.domain || c.rollups[name] == nil {
		return all
	}
	for _, other := range c.order {
		if other.domain != name {
			continue
		}
		for _, s := range other.said[setting] {
			if s.strict > 0 && !slices.Contains(all, s) {
				all = append(slices.Clip(all), s)
			}
		}
	}
	return all
}
