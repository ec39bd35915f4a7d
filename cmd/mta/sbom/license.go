package sbom

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// texts are what licences say that no other one says, by their SPDX identifiers. Spaces stand for any white space.
var texts = []struct{ id, has, hasNot string }{
	{"Apache-2.0", "apache license version 2.0", ""},
	{"MPL-2.0", "mozilla public license version 2.0", ""},
	{"BSD-3-Clause", "redistribution and use in source and binary forms,? with or without modification,? are permitted .* neither the name", ""},
	{"BSD-2-Clause", "redistribution and use in source and binary forms,? with or without modification,? are permitted", "neither the name|may not be used to endorse"},
	{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy", ""},
	{"ISC", "permission to use, copy, modify, and/?(or)? distribute this software for any purpose with or without fee is hereby granted", ""},
	{"Unlicense", "this is free and unencumbered software released into the public domain", ""},
	{"CC0-1.0", "cc0 1.0 universal", ""},
}

// licenseFile matches the names of files with a licence.
var licenseFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)([-.].*)?$`)

// Licenses returns the SPDX identifiers of the licences that lie at the top of a module, sorted. It is an error if
// there are none, or one that is not known: a person must look then.
func Licenses(module fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(module, ".")
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) || path.Ext(e.Name()) == ".go" {
			continue
		}
		text, err := fs.ReadFile(module, e.Name())
		if err != nil {
			return nil, err
		}
		found := identify(string(text))
		if len(found) == 0 {
			return nil, fmt.Errorf("%s is not a known licence: add it to package sbom", e.Name())
		}
		ids = append(ids, found...)
	}
	if len(ids) == 0 {
		return nil, errors.New("there is no file with a licence")
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// identify finds the licences in a text.
func identify(text string) (ids []string) {
	// Comments and rules around a text are no part of it.
	text = strings.ToLower(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n*#/", r) }), " "))
	text = strings.ReplaceAll(text, "license, version", "license version")
	for _, l := range texts {
		if regexp.MustCompile(l.has).MatchString(text) && (l.hasNot == "" || !regexp.MustCompile(l.hasNot).MatchString(text)) {
			ids = append(ids, l.id)
		}
	}
	return ids
}
