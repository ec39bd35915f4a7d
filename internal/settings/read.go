// Package settings reads one declarative file in HCL into tagged structs, reports everything that is
// wrong with it at once, and prints what is in force. It knows nothing of what the settings are for.
//
// The struct tags are the schema: conf names a setting or a block ("name", "name,block", ",label",
// ",inline"); default is its value where the file has none; oneof, min, max and check bound its value; was is
// a former name, which is still read with a warning; example shows how a map is written; reload:"restart" marks a
// setting or a block that a running program can't take over, reload:"whole" a block that waits as a whole while one of
// these does; only:"defaults" a setting that blocks marked Sparse can't have.
//
// Schema.Read walks the HCL tree along the structs (decode.go), value.go and bounds.go take each value.
// Origins lays blocks over one another. Print and Object show what is in force, Diff what changes, and
// Keep what a restart would bring. The package starts no goroutines and keeps no state.
package settings

import (
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Schema has what the struct tags refer to and what they can't express.
type Schema struct {
	// Checks test texts, by the tag check. Their errors come from Wrong.
	Checks map[string]func(string) error
	// Remedies are hints about names that are unknown where they stand, by struct and name ("Plan mode").
	Remedies map[string]string
	// Retired has what holds instead of settings and blocks that there were once: by the name, or by struct and name
	// ("Plan mode"). A file that still has one is read, with a warning.
	Retired map[string]string
}

// largestFile is far above any configuration. It keeps a device or a log given by mistake from being
// read into memory.
const largestFile = 4 << 20

// ReadFile reads a file of ordinary size.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, largestFile+1))
	if err != nil {
		return nil, err
	}
	if len(src) > largestFile {
		return nil, fmt.Errorf("%s is larger than %s: is it the right file?", path, Size(largestFile))
	}
	return src, nil
}

// Read reads src into the struct that root points to; settings that src does not have keep the values
// that they have there. env looks up environment variables, as os.Getenv does; filename is for messages.
// parsed is false when src is not HCL: then nothing was read and the only problems are those of the
// syntax, since everything else said about such a text would be misleading.
func (s *Schema) Read(src []byte, filename string, env func(string) string, root any) (c *Collector, parsed bool) {
	v := reflect.ValueOf(root).Elem()
	c = &Collector{src: src}
	if at, deep := tooDeep(src, filename); deep {
		c.Add(at, "is it the right file?", "the blocks are nested too deeply")
		return c, false
	}
	file, diags := hclsyntax.ParseConfig(src, filename, hcl.InitialPos)
	if diags.HasErrors() {
		c.syntax(diags, filename, v.Type())
		return c, false
	}
	d := &decoder{Schema: s, problems: c, eval: evaluation(env), root: v.Type(), taken: make(map[blockName]*Block)}
	d.body(file.Body.(*hclsyntax.Body), v, BlockOf(v), "", "at the top of the file")
	return c, true
}

// Presets reads settings that the program has built in. It panics when they are wrong.
func (s *Schema) Presets(src []byte, root any) {
	if c, _ := s.Read(src, presetsFile, func(string) string { return "" }, root); c.Err() != nil {
		panic("settings: " + c.Err().Error())
	}
}
