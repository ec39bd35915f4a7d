package config

import (
	_ "embed"
	"slices"

	"example.org/mta/internal/settings"
)

//go:embed presets.hcl
var presetsText []byte

// presets gives the providers that are known without a file.
func presets() []*Provider {
	var c Config
	schema().Presets(presetsText, &c)
	return c.Providers
}

// addPresets puts the presets behind the file's own providers. A provider of the file that has the
// name of a preset gets from it what it doesn't set itself; exchangers that the file gives to
// somebody are not a preset's any more.
func (c *Config) addPresets() {
	if !c.Presets {
		return
	}
	taken := func(mx Pattern) bool {
		return slices.ContainsFunc(c.Providers, func(p *Provider) bool {
			return slices.ContainsFunc(p.MX, func(own Pattern) bool { return own.covers(mx) })
		})
	}
	for _, preset := range presets() {
		preset.MX = slices.DeleteFunc(preset.MX, taken)
		i := slices.IndexFunc(c.Providers, func(p *Provider) bool { return p.Name == preset.Name })
		switch {
		case i >= 0:
			settings.Inherit(c.Providers[i], preset)
		case len(preset.MX) > 0:
			c.Providers = append(c.Providers, preset)
		}
	}
}

// presetNames lists the presets.
func presetNames() []string {
	var names []string
	for _, p := range presets() {
		names = append(names, p.Name)
	}
	return names
}
