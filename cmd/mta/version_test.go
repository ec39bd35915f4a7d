package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionLine(t *testing.T) {
	vcs := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "08b27a72aab0c0ffee"}, {Key: "vcs.time", Value: "2026-11-22T09:37:00Z"},
	}
	for _, c := range []struct {
		name   string
		linked string
		info   debug.BuildInfo
		want   string
	}{
		{"a release", "0.1.0", debug.BuildInfo{Settings: vcs},
			"mta 0.1.0 (commit 08b27a72aab0 of 2026-11-22T09:37:00Z, go1, linux/amd64)"},
		{"a changed checkout", "", debug.BuildInfo{Main: debug.Module{Version: "(devel)"},
			Settings: append(vcs[:2:2], debug.BuildSetting{Key: "vcs.modified", Value: "true"})},
			"mta (devel) (commit 08b27a72aab0 of 2026-11-22T09:37:00Z with uncommitted changes, go1, linux/amd64)"},
		{"without a repository", "0.1.0", debug.BuildInfo{}, "mta 0.1.0 (go1, linux/amd64)"},
	} {
		b := build{Version: c.linked, Go: "go1", OS: "linux", Arch: "amd64"}
		b.fill(&c.info)
		if got := b.String(); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}
