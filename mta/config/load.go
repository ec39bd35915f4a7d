package config

import (
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// largestFile is far above any configuration. It keeps a device or a log given by mistake from
// being read into memory.
const largestFile = 4 << 20

// Load reads the file at path, and the files that it names (certificates). env looks up
// environment variables, as os.Getenv does. When the content is wrong the error is Problems.
func Load(path string, env func(string) string) (*Config, error) {
	src, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	c, problems := parse(src, path, env, systemHostname)
	if len(problems.found) == 0 {
		checkFiles(c, problems)
		checkHours(c, problems, env)
	}
	if len(problems.found) > 0 {
		return nil, problems.sorted()
	}
	return c, nil
}

// Parse reads a configuration that is in memory and looks at nothing else on the machine but
// its name. filename is for messages. When the content is wrong the error is Problems.
func Parse(src []byte, filename string, env func(string) string) (*Config, error) {
	c, problems := parse(src, filename, env, systemHostname)
	if len(problems.found) > 0 {
		return nil, problems.sorted()
	}
	return c, nil
}

// Default is what is in force without a file: mail is taken from this machine only, on
// 127.0.0.1:2525, and kept in ./mta-data.
func Default() *Config {
	c := builtIn()
	c.addPresets()
	c.addPlanPresets()
	c.derive(systemHostname())
	c.index()
	return c
}

// parse gives a configuration that is complete only when there are no problems.
func parse(src []byte, filename string, env func(string) string, hostname func() string) (*Config, *collector) {
	problems := &collector{src: src}
	if at, deep := tooDeep(src, filename); deep {
		problems.add(at, "is it the right file?", "the blocks are nested too deeply")
		return nil, problems
	}
	file, diags := hclsyntax.ParseConfig(src, filename, hcl.InitialPos)
	if diags.HasErrors() {
		// What the parser makes of the rest after an error leads to complaints that are not
		// true, so these come alone.
		problems.syntax(diags, filename)
		return nil, problems
	}
	c := builtIn()
	d := &decoder{problems: problems, eval: evaluation(env)}
	d.config(file.Body.(*hclsyntax.Body), c)
	c.addPresets()
	c.addPlanPresets()
	c.derive(hostname())
	c.index()
	c.check(problems)
	return c, problems
}

func readFile(path string) ([]byte, error) {
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
