// Package sbom makes a software bill of materials of a binary, in CycloneDX's JSON: the modules that Go recorded in
// it, with their licences. The same binary has the same one, wherever it is made. The program has it only when it is
// built with the tag "man".
package sbom

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Binary is what a bill is about.
type Binary struct {
	Name    string // of the file
	Version string // of the program
	SHA256  [sha256.Size]byte
	Build   *debug.BuildInfo
}

// document is a bill of materials (CycloneDX 1.5).
type document struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Licenses   []licensed `json:"licenses,omitempty"`
	Purl       string     `json:"purl,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type licensed struct {
	License license `json:"license"`
}

type license struct {
	ID string `json:"id"` // of SPDX's list
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// Make makes the bill of a binary. licenses returns the SPDX identifiers of a module's licences; an error of it ends
// the work, since a bill without licences is not to be shipped. date is that of the version.
func Make(b *Binary, date time.Time, licenses func(module debug.Module) ([]string, error)) ([]byte, error) {
	mods := []debug.Module{{Path: "std", Version: strings.TrimPrefix(b.Build.GoVersion, "go")}}
	for _, m := range b.Build.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		mods = append(mods, *m)
	}
	slices.SortFunc(mods, func(a, b debug.Module) int { return cmp.Compare(a.Path, b.Path) })

	main := b.Build.Main
	main.Version = b.Version
	app, err := describe("application", main, licenses)
	if err != nil {
		return nil, err
	}
	app.Hashes = []hash{{"SHA-256", hex.EncodeToString(b.SHA256[:])}}
	for _, s := range b.Build.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "vcs.revision" {
			app.Properties = append(app.Properties, property{"mta:build:" + s.Key, s.Value})
		}
	}
	app.Properties = append(app.Properties, property{"mta:file", b.Name})
	d := document{
		Schema: "http://cyclonedx.org/schema/bom-1.5.schema.json", Format: "CycloneDX", Spec: "1.5", Serial: serial(b.SHA256), Version: 1,
		Metadata: metadata{date.UTC().Format(time.RFC3339), app},
	}
	uses := dependency{Ref: app.Ref}
	for _, m := range mods {
		c, err := describe("library", m, licenses)
		if err != nil {
			return nil, err
		}
		d.Components = append(d.Components, c)
		d.Dependencies = append(d.Dependencies, dependency{Ref: c.Ref})
		uses.DependsOn = append(uses.DependsOn, c.Ref)
	}
	d.Dependencies = append([]dependency{uses}, d.Dependencies...)
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

func describe(kind string, m debug.Module, licenses func(debug.Module) ([]string, error)) (component, error) {
	c := component{Type: kind, Name: m.Path, Version: m.Version, Purl: "pkg:golang/" + m.Path}
	if m.Version != "" {
		c.Purl += "@" + strings.ReplaceAll(m.Version, "+", "%2B")
	}
	c.Ref = c.Purl
	if m.Sum != "" {
		c.Properties = []property{{"go:sum", m.Sum}}
	}
	ids, err := licenses(m)
	if err != nil {
		return c, fmt.Errorf("licence of %s: %w", m.Path, err)
	}
	for _, id := range ids {
		c.Licenses = append(c.Licenses, licensed{license{id}})
	}
	return c, nil
}

// serial makes a UUID (version 8, RFC 9562, 5.8) from a sum.
func serial(sum [sha256.Size]byte) string {
	u := sum[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
