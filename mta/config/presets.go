package config

import (
	_ "embed"
	"reflect"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

//go:embed presets.hcl
var presetsText []byte

// presetsFile is the name that origins of settings have which are from a preset.
const presetsFile = "presets"

// presets gives the providers that are known without a file.
func presets() []*Provider {
	problems := &collector{src: presetsText}
	file, diags := hclsyntax.ParseConfig(presetsText, presetsFile, hcl.InitialPos)
	problems.syntax(diags, presetsFile)
	var c Config
	if len(problems.found) == 0 {
		d := &decoder{problems: problems, eval: evaluation(nil)}
		d.body(file.Body.(*hclsyntax.Body), reflect.ValueOf(&c).Elem(), &c.block, "", "at the top")
	}
	if len(problems.found) > 0 {
		panic("config: " + problems.sorted().Error())
	}
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
			c.Providers[i].inherit(preset)
		case len(preset.MX) > 0:
			c.Providers = append(c.Providers, preset)
		}
	}
}

// inherit takes over what preset sets and p doesn't.
func (p *Provider) inherit(preset *Provider) {
	from := make(map[string]field)
	for f := range leaves(reflect.ValueOf(preset).Elem(), "") {
		from[f.name] = f
	}
	for f := range leaves(reflect.ValueOf(p).Elem(), "") {
		if preset.set(f.name) && !p.set(f.name) {
			f.value.Set(from[f.name].value)
			p.note(f.name, preset.at[f.name])
		}
	}
}

// inFile reports whether the file itself has the setting, and not a preset.
func (b *block) inFile(setting string) bool {
	at, ok := b.at[setting]
	return ok && at.Filename != presetsFile
}

// presetNames lists the presets.
func presetNames() []string {
	var names []string
	for _, p := range presets() {
		names = append(names, p.Name)
	}
	return names
}
