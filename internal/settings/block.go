package settings

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// Block is embedded in the struct of a block. It knows where the block and its settings stand in the
// file; it is empty for a block that the file does not have.
type Block struct {
	title  string               // as `provider "google"`
	header hcl.Range            // where title stands
	at     map[string]hcl.Range // by setting ("tls.key" in an inner block): where its value stands
	env    map[string]string    // by setting: the environment variable that its value is from

	kept   map[string]bool // settings that keep their old value until a restart
	failed []string        // settings with an invalid value

	sparse bool // see Sparse
}

// presetsFile is the file name in the places of settings that come from a preset.
const presetsFile = "presets"

// Title names the block as the file does: `provider "google"`. It is "" for a block that the file does
// not have.
func (b *Block) Title() string { return b.title }

// Line is the line of the file where the block begins, 0 for one that the file does not have.
func (b *Block) Line() int { return b.header.Start.Line }

// Set reports whether the file or a preset has the setting.
func (b *Block) Set(setting string) bool { _, ok := b.at[setting]; return ok }

// Sets reports whether the file itself has the setting, rather than a preset.
func (b *Block) Sets(setting string) bool {
	at, ok := b.at[setting]
	return ok && at.Filename != presetsFile
}

// Failed reports whether the value that the file has for the setting was invalid.
func (b *Block) Failed(setting string) bool { return slices.Contains(b.failed, setting) }

// Sparse marks a block as one that overrides others: a setting that it does not have has no value here,
// rather than a default.
func (b *Block) Sparse() { b.sparse = true }

// Preset marks a setting as taken from a preset.
func (b *Block) Preset(setting string) { b.note(setting, hcl.Range{Filename: presetsFile}) }

// Inside gives a block that a preset adds to b; problems with it point at b.
func (b *Block) Inside(title string) Block { return Block{title: title, header: b.header} }

// Where gives the place of a setting, or of the block when the file does not have the setting.
func (b *Block) Where(setting string) hcl.Range {
	if b.Sets(setting) {
		return b.at[setting]
	}
	return b.header
}

// Origin gives the place where a setting was made, as `source "a" (mta.conf:31)`, or "default".
func (b *Block) Origin(setting string) string {
	at, ok := b.at[setting]
	switch {
	case b.kept[setting]:
		return "kept until a restart"
	case !ok:
		return "default"
	}
	return fmt.Sprintf("%s (%s:%d)", b.title, at.Filename, at.Start.Line)
}

func (b *Block) note(setting string, at hcl.Range) {
	if b.at == nil {
		b.at = make(map[string]hcl.Range)
	}
	b.at[setting] = at
}

func (b *Block) positions() *Block { return b }

// BlockOf gives the Block that the struct v embeds, nil when it embeds none.
func BlockOf(v reflect.Value) *Block {
	if b, ok := v.Addr().Interface().(interface{ positions() *Block }); ok {
		return b.positions()
	}
	return nil
}
