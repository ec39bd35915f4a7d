package config

import (
	"fmt"
	"maps"
	"reflect"

	"example.org/mta/internal/settings"
)

// schema is what the struct tags refer to.
func schema() *settings.Schema {
	all := maps.Clone(remedies)
	for _, of := range []any{new(Defaults), new(Provider), new(Domain)} {
		for f := range settings.Fields(reflect.ValueOf(of).Elem()) {
			all["ProviderLimits "+f.Name], all["DomainLimits "+f.Name] = notOwn, notOwn
		}
	}
	return &settings.Schema{Checks: checks, Remedies: all}
}

// notOwn is the hint about a setting of a destination that sources and pools can't have.
const notOwn = "write it in a provider or domain block at the top of the file: it applies to all sources; the blocks " +
	"of a source or pool have limits only"

// remedies are hints about settings that stood in the file in earlier versions.
var remedies = map[string]string{
	"Plan mode":                `the pool decides about mail that exceeds the plan: overflow = "shared" or "hold"`,
	"Plan burst":               noPacing,
	"Plan bucket_seconds":      noPacing,
	"Plan peak":                noPacing,
	"Plan sliding_hour_factor": noPacing,
	"Plan hour":                "remove the line: an hour of a plan has 60 minutes",
	"Suppression feed_status":  `remove the line: the class of a refusal decides now, and class "NAME" blocks change which; 'mta bounce classify --reply' shows the class of a reply`,
	"backlog_threshold": "remove the line: the relay now opens another connection when mail would wait longer " +
		"than one round trip to the host",
}

const noPacing = "remove the line: the relay always uses the tested value; 'mta warmup simulate' tries others, in a " +
	"plan file"

// Load reads the file at path, and the files that it names (certificates). env looks up
// environment variables, as os.Getenv does. When the content is wrong the error is
// settings.Problems.
func Load(path string, env func(string) string) (*Config, error) {
	src, err := settings.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	c, problems := parse(src, path, env, systemHostname)
	if problems.Err() == nil {
		checkFiles(c, problems)
		if err := c.shortenHours(env(testHours)); err != nil {
			return nil, err
		}
	}
	return checked(c, problems)
}

// Parse reads a configuration that is in memory and looks at nothing else on the machine but
// its name. filename is for messages. When the content is wrong the error is
// settings.Problems.
func Parse(src []byte, filename string, env func(string) string) (*Config, error) {
	return checked(parse(src, filename, env, systemHostname))
}

func checked(c *Config, problems *settings.Collector) (*Config, error) {
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Default is what is in force without a file: mail is taken from this machine only, on
// 127.0.0.1:2525, and kept in ./mta-data.
func Default() *Config {
	c := builtIn()
	c.complete(systemHostname())
	return c
}

// parse gives a configuration that is complete only when there are no problems.
func parse(src []byte, filename string, env func(string) string,
	hostname func() string) (*Config, *settings.Collector) {
	c := builtIn()
	listeners := c.Listeners
	c.Listeners = nil
	problems, parsed := schema().Read(src, filename, env, c)
	if len(c.Listeners) == 0 {
		c.Listeners = listeners
	}
	if parsed {
		c.warnings = problems.Warnings
		c.complete(hostname())
		c.check(problems)
	}
	return c, problems
}

// complete adds what the file leaves to presets, to other settings and to the machine.
func (c *Config) complete(hostname string) {
	c.addPresets()
	c.addPlanPresets()
	c.derive(hostname)
	c.index()
}

// The kinds of values that know no mail.
type (
	Size     = settings.Size
	ByteRate = settings.ByteRate
	Rate     = settings.Rate
	Mode     = settings.Mode
	Secret   = settings.Secret
	Retry    = settings.Retry

	block = settings.Block // where a block and its settings stand in the file
)
