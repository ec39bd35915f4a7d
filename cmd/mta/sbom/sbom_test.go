package sbom

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestBill(t *testing.T) {
	b := &Binary{Name: "mta", Version: "v1.2.3", SHA256: sha256.Sum256([]byte("binary")), Build: &debug.BuildInfo{
		GoVersion: "go1.26.0", Main: debug.Module{Path: "example.org/mta", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "z.example/z", Version: "v2.0.0+incompatible", Sum: "h1:z"},
			{Path: "a.example/a", Version: "v1.0.0", Replace: &debug.Module{Path: "b.example/b", Version: "v1.0.1", Sum: "h1:b"}},
		},
		Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "-ldflags", Value: "secret"}},
	}}
	mit := func(debug.Module) ([]string, error) { return []string{"MIT"}, nil }
	text, err := Make(b, time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC), mit)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Make(b, time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC), mit)
	if err != nil || string(again) != string(text) {
		t.Error("the second bill of the same binary differs")
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range d.Components {
		names = append(names, c.Purl)
		if len(c.Licenses) != 1 || c.Licenses[0].License.ID != "MIT" {
			t.Errorf("licences of %s: %v", c.Name, c.Licenses)
		}
	}
	if want := []string{"pkg:golang/b.example/b@v1.0.1", "pkg:golang/std@1.26.0", "pkg:golang/z.example/z@v2.0.0%2Bincompatible"}; !slices.Equal(names, want) {
		t.Errorf("components %v, want %v", names, want)
	}
	if d.Metadata.Component.Version != "v1.2.3" || !slices.Equal(d.Dependencies[0].DependsOn, names) || strings.Contains(string(text), "secret") {
		t.Errorf("%s", text)
	}
	if _, err := Make(b, time.Time{}, func(debug.Module) ([]string, error) { return nil, errors.New("none") }); err == nil {
		t.Error("a bill without licences is made")
	}
}

func TestLicenses(t *testing.T) {
	own, err := os.ReadFile("../../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	const mit = "MIT License\n\nPermission is hereby granted, free of\ncharge, to any person obtaining a copy\n"
	const bsd = "Redistribution and use in source and binary forms, with or without\n// modification, are permitted provided that:\n"
	for _, c := range []struct {
		files string
		text  string
		want  string
	}{
		{"LICENSE", string(own), "Apache-2.0"},
		{"LICENSE.md", mit, "MIT"},
		{"COPYING", bsd, "BSD-2-Clause"},
		{"LICENCE", bsd + " * Neither the name of X", "BSD-3-Clause"},
		{"LICENSE", mit + bsd, "BSD-2-Clause MIT"},
		{"LICENSE", "all rights reserved", ""},
		{"license.go", mit, ""},
	} {
		got, err := Licenses(fstest.MapFS{c.files: {Data: []byte(c.text)}})
		if strings.Join(got, " ") != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s with %.20q: %v, %v; want %q", c.files, c.text, got, err, c.want)
		}
	}
}
